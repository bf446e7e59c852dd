//! Objects numbered over the whole output.
//!
//! A tile numbers its own objects and keeps them in a file of the job's folder, with the layers at its faces. When all tiles
//! are done, one process looks at the faces, joins what touches and writes down the name of each object; then all of
//! them take tiles once more and write them with these names. Every stage is a step of the ledger whose input stays as it
//! is, so that a job which is killed at any moment goes on where it was. Renaming the output in place was rejected: half a
//! renamed tile cannot be told from a whole one.

mod kept;

use std::{
    collections::{BTreeMap, HashMap},
    time::Instant,
};

use sirtaki_volume::{
    Region, VolumeError,
    grid::plan::Tile,
    stitch::{
        Connectivity, Stitch,
        components::components,
        faces::{Layer, touching},
    },
};

use self::kept::{End, Kept, Names};
use crate::{
    InferError,
    place::Place,
    sink::{Sink, to_bytes},
    work::{Shared, at},
};

/// The step in which what touches is joined.
const STITCH: u64 = u64::MAX - 1;
/// What is added to the number of a tile for the step that writes it with the names of the volume.
const RENAME: u64 = 1 << 62;

/// The steps of a job that numbers objects.
pub(crate) fn steps(tiles: &[u64]) -> Vec<u64> {
    tiles.iter().copied().chain([STITCH]).chain(tiles.iter().map(|tile| tile + RENAME)).collect()
}

/// What this process has done after all tiles were computed.
#[derive(Debug, Default)]
pub(crate) struct Labelled {
    pub(crate) seconds: f64,
    pub(crate) objects: Option<u64>,
}

/// How many voxels of a place are not what it was written as: those that are objects here or there alone, and those whose
/// connected voxels have other names.
pub(crate) fn differing(place: &Region, classes: &[u32], written: &[u8]) -> Result<u64, VolumeError> {
    let (labels, _) = components(classes, &usizes(place.size()), Connectivity::Faces)?;
    let mut names = HashMap::from([(0, 0)]);
    let pairs = labels.into_iter().zip(numbers(written));
    let differs = |(label, name): &(u64, u32)| match *name == 0 {
        true => *label != 0,
        false => *names.entry(*label).or_insert(*name) != *name,
    };
    Ok(pairs.filter(differs).count() as u64)
}

impl Shared<'_> {
    /// Numbers the objects of a tile and keeps them; the checksum of the labels.
    pub(crate) fn keep_labels(
        &self,
        sink: &Sink<'_>,
        tile: &Tile,
        channels: usize,
        values: &[f32],
    ) -> Result<u64, InferError> {
        let classes = sink.classes(&tile.core, channels, values)?;
        let (labels, objects) = components(&classes, &usizes(tile.core.size()), Connectivity::Faces)?;
        let labels: Vec<u32> = labels.into_iter().map(|label| label as u32).collect();
        Ok(self.kept()?.write(tile, objects, &labels, &classes)?)
    }

    /// What is left to do when all tiles have numbers of their own.
    pub(crate) fn label(&self, sink: &Sink<'_>) -> Result<Labelled, InferError> {
        if self.is_over() {
            return Ok(Labelled::default());
        }
        let began = Instant::now();
        let kept = self.kept()?;
        if self.claim(&[STITCH])?.is_some() {
            let sum = self.stitch(&kept)?;
            self.ledger().finish(STITCH, sum)?;
        }
        let steps: Vec<u64> = self.order.iter().map(|tile| tile + RENAME).collect();
        let mut names = None;
        while let Some(step) = self.claim(&steps)? {
            let tile = self.plan.tile(step - RENAME);
            let names = match &names {
                Some(names) => names,
                None => names.insert(Names::open(&kept.names())?),
            };
            let written = self.rename(&kept, names, &tile, sink).map_err(|error| at(&tile, error.into()))?;
            self.ledger().finish(step, written)?;
        }
        Ok(Labelled { seconds: began.elapsed().as_secs_f64(), objects: names.map(|names| names.objects) })
    }

    fn kept(&self) -> Result<Kept, InferError> {
        Ok(Kept { folder: Place::of(&self.job.settings.output)?.folder().to_owned() })
    }

    /// Joins the objects of all tiles and writes their names down; the checksum of these.
    fn stitch(&self, kept: &Kept) -> Result<u64, InferError> {
        let mut counts = BTreeMap::new();
        for tile in &self.order {
            counts.insert(*tile, kept.objects(*tile)?);
        }
        let mut stitch = Stitch::new(counts.clone())?;
        let shape = self.plan.shape();
        for number in counts.keys().copied() {
            let place = self.plan.place(number);
            for axis in 0..shape.len() {
                let mut beyond = place.clone();
                beyond[axis] += 1;
                if beyond[axis] >= shape[axis] || !counts.contains_key(&self.plan.number(&beyond)) {
                    continue;
                }
                self.join(kept, &mut stitch, (number, self.plan.number(&beyond)), axis)?;
            }
        }
        let offsets: Vec<(u64, u64)> = counts.keys().map(|tile| (*tile, stitch.offset(*tile).unwrap_or(0))).collect();
        let names = stitch.finish();
        Ok(kept.write_names(&offsets, &names)?)
    }

    /// Joins what touches where two tiles meet.
    fn join(&self, kept: &Kept, stitch: &mut Stitch, (low, high): (u64, u64), axis: usize) -> Result<(), InferError> {
        let mut sizes = usizes(self.plan.tile(low).core.size());
        sizes.remove(axis);
        let one = kept.face(&self.plan.tile(low), axis, End::Last)?;
        let two = kept.face(&self.plan.tile(high), axis, End::First)?;
        let (below, above) = (Layer { labels: &one.0, classes: &one.1 }, Layer { labels: &two.0, classes: &two.1 });
        let (first, second) = (stitch.offset(low).unwrap_or(0), stitch.offset(high).unwrap_or(0));
        for (one, two) in touching(below, above, &sizes, Connectivity::Faces)? {
            stitch.join(one + first, two + second)?;
        }
        Ok(())
    }

    /// Writes a tile with the names of the volume; the checksum of what was written.
    fn rename(&self, kept: &Kept, names: &Names, tile: &Tile, sink: &Sink<'_>) -> Result<u64, VolumeError> {
        let sum = self.ledger().done().get(&tile.number).map(|done| done.sum);
        let labels = kept.labels(tile, sum)?;
        let own = names.of(tile.number, kept.objects(tile.number)?)?;
        let name = |label: &u32| match label.checked_sub(1) {
            Some(place) => own.get(place as usize).copied().unwrap_or(0),
            None => 0,
        };
        sink.write(&tile.core, &to_bytes(&labels, |label| name(label).to_ne_bytes()))
    }
}

fn usizes(sizes: &[u64]) -> Vec<usize> {
    sizes.iter().map(|size| *size as usize).collect()
}

/// Numbers of 32 bits in bytes.
fn numbers(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| u32::from_ne_bytes(*bytes))
}
