//! Labels of tiles turned into labels of the volume.
//!
//! Each tile numbers its objects from 1 on. An object that lies in several tiles has a number in each of them; where two
//! tiles meet, the numbers that touch belong together. A union–find structure joins them, in time that is as good as linear
//! in the number of labels and contacts, and gives the volume's objects consecutive numbers. These follow from the tiles
//! alone: who computed which tile, and in which order faces were looked at, makes no difference.
//!
//! - [`components`]: objects of one tile, as connected voxels of equal class.
//! - [`faces`]: which labels on both sides of a cut through the volume touch.
//! - [`overlap`]: which labels of two tiles that overlap are the same object, for networks that find objects themselves.
//! - [`Stitch`]: the labels of all tiles, joined.

pub mod components;
pub mod faces;
mod forest;
pub mod overlap;

use std::collections::BTreeMap;

use crate::VolumeError;
use forest::Forest;

/// Which voxels touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connectivity {
    /// Those that share a face: 6 in space.
    Faces,
    /// Those that share a face, an edge or a corner: 26 in space.
    Corners,
}

/// The labels of all tiles, while they are joined.
///
/// A label of a tile is made one of its own in the volume by adding the tile's [offset](Stitch::offset) to it. All other
/// functions take labels of this kind; 0 is no object.
#[derive(Debug, Default)]
pub struct Stitch {
    forest: Forest,
    /// How many labels there are before each tile's.
    offsets: BTreeMap<u64, u64>,
    labels: u64,
}

/// The numbers of the volume's objects.
#[derive(Debug)]
pub struct Names {
    /// For each label, from 1 on, the object.
    names: Vec<u32>,
    objects: u64,
}

impl Stitch {
    /// For tiles with so many labels each; tiles that are not listed have none.
    pub fn new(tiles: impl IntoIterator<Item = (u64, u64)>) -> Result<Self, VolumeError> {
        let (mut offsets, mut labels) = (BTreeMap::new(), 0_u64);
        let sorted: BTreeMap<u64, u64> = tiles.into_iter().collect();
        for (tile, count) in sorted {
            offsets.insert(tile, labels);
            labels = labels.saturating_add(count);
        }
        Ok(Self { forest: Forest::new(labels)?, offsets, labels })
    }

    /// What is added to the labels of a tile.
    pub fn offset(&self, tile: u64) -> Option<u64> {
        self.offsets.get(&tile).copied()
    }

    /// Says that two labels are one object.
    pub fn join(&mut self, one: u64, two: u64) -> Result<(), VolumeError> {
        let (one, two) = (place(one, self.labels)?, place(two, self.labels)?);
        self.forest.join(one, two);
        Ok(())
    }

    /// The numbers of all objects: consecutive from 1 on, in the order of the label that each has first.
    pub fn finish(self) -> Names {
        let (names, objects) = self.forest.names();
        Names { names, objects: objects.into() }
    }
}

impl Names {
    /// How many objects the volume has.
    pub fn objects(&self) -> u64 {
        self.objects
    }

    /// The object of each label, from label 1 on.
    pub fn list(&self) -> &[u32] {
        &self.names
    }

    /// Replaces labels by the numbers of objects.
    pub fn rename(&self, labels: &mut [u64]) -> Result<(), VolumeError> {
        for label in labels.iter_mut().filter(|label| **label != 0) {
            *label = self.names[place(*label, self.names.len() as u64)? as usize].into();
        }
        Ok(())
    }
}

/// The place of a label among all.
fn place(label: u64, labels: u64) -> Result<u32, VolumeError> {
    let place = label.checked_sub(1).filter(|place| *place < labels).and_then(|place| u32::try_from(place).ok());
    place.ok_or_else(|| VolumeError::Invalid(format!("there are labels 1 to {labels}, and not {label}")))
}

#[cfg(test)]
mod tests;
