//! All tiles of a volume, and what they cost.
//!
//! Tiles are computed from their number when somebody asks: a volume can have millions of them. What a whole plan costs
//! is a product over the axes, so it is known without looking at any tile.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{
    halo::Halo,
    region::{Extent, Region},
};
use crate::VolumeError;

/// How much tiles read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reads {
    /// As little as possible: less at the ends of the volume.
    #[default]
    Least,
    /// All the same, the smallest size with which that is possible: what bitwise results on GPUs need.
    Alike,
    /// All this size: what models with a fixed input need.
    Exactly(Extent),
}

/// What a plan is made from. Each has one value per spatial axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanSpec {
    /// The volume that is read.
    pub input: Extent,
    /// The volume that is written.
    pub output: Extent,
    /// What is written at once: a chunk, or a shard where chunks are stored in those.
    pub chunk: Extent,
    /// The core of a tile: a multiple of the chunk, or all of an axis.
    pub core: Extent,
    /// How far the network looks.
    pub halo: Vec<Halo>,
    /// How much tiles read.
    pub reads: Reads,
    /// The part of the output that is wanted; the rest is left as it is.
    pub wanted: Option<Region>,
}

/// Tiles whose cores divide the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    spec: PlanSpec,
    /// Tiles along each axis that meet what is wanted: the first, and the one behind the last.
    along: Vec<Range<u64>>,
}

/// A part of the volume that is computed at once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Its number in the plan.
    pub number: u64,
    /// What it writes, in the output.
    pub core: Region,
    /// What it reads, in the input.
    pub read: Region,
    /// Where the core is in what the network makes of the read region.
    pub crop: Region,
}

impl Plan {
    /// A plan, if everything in it fits together.
    pub fn new(spec: PlanSpec) -> Result<Self, VolumeError> {
        let axes = spec.output.axes();
        let counts = [spec.input.axes(), spec.chunk.axes(), spec.core.axes(), spec.halo.len()];
        if counts.iter().any(|&count| count != axes) || spec.wanted.as_ref().is_some_and(|wanted| wanted.axes() != axes)
        {
            let problem = format!("a plan for {axes} axes was given values for {counts:?} of them");
            return Err(VolumeError::Invalid(problem));
        }
        if spec.halo.iter().any(|halo| halo.input == 0 || halo.output == 0) {
            return Err(VolumeError::Invalid("a network cannot move in steps of 0 voxels".to_owned()));
        }
        for axis in 0..axes {
            let (core, chunk, all) = (spec.core.sizes()[axis], spec.chunk.sizes()[axis], spec.output.sizes()[axis]);
            if !core.is_multiple_of(chunk) && core < all {
                return Err(VolumeError::refused(
                    format!("tiles of {core} voxels along axis {axis} would share chunks of {chunk}"),
                    format!("use a multiple of {chunk}"),
                ));
            }
        }
        check_reads(&spec)?;
        let wanted = spec.wanted.clone().unwrap_or_else(|| Region::whole(&spec.output));
        if wanted.is_empty() || !wanted.is_within(&spec.output) {
            let problem = format!("the region {wanted} is not inside the volume of {}", spec.output);
            return Err(VolumeError::Invalid(problem));
        }
        let ends = wanted.end();
        let along = (0..axes).map(|axis| {
            let core = spec.core.sizes()[axis];
            wanted.start()[axis] / core..ends[axis].div_ceil(core)
        });
        let along = along.collect();
        Ok(Self { spec, along })
    }

    /// What it was made from.
    pub fn spec(&self) -> &PlanSpec {
        &self.spec
    }

    /// How many tiles there are along each axis.
    pub fn shape(&self) -> Vec<u64> {
        self.along.iter().map(|along| along.end - along.start).collect()
    }

    /// How many tiles there are.
    pub fn tiles(&self) -> u64 {
        self.shape().iter().product()
    }

    /// The tile with this number; the last axis counts fastest.
    pub fn tile(&self, number: u64) -> Tile {
        self.tile_at(&self.place(number))
    }

    /// The place among the tiles of the one with this number.
    pub fn place(&self, number: u64) -> Vec<u64> {
        let mut rest = number;
        let mut place = vec![0; self.along.len()];
        for (axis, along) in self.along.iter().enumerate().rev() {
            let count = along.end - along.start;
            place[axis] = rest % count;
            rest /= count;
        }
        place
    }

    /// The tile at this place among the tiles.
    pub fn tile_at(&self, place: &[u64]) -> Tile {
        let (cores, reads): (Vec<_>, Vec<_>) =
            place.iter().enumerate().map(|(axis, &at)| self.ranges(axis, at)).unzip();
        let (core, read) = (Region::across(&cores), Region::across(&reads));
        let positions: Vec<u64> = (0..place.len())
            .map(|axis| self.spec.halo[axis].position(core.start()[axis], read.start()[axis]))
            .collect();
        let crop = positions.iter().zip(core.size()).map(|(at, size)| *at..at + size).collect::<Vec<_>>();
        let crop = Region::across(&crop);
        Tile { number: self.number(place), core, read, crop }
    }

    /// The number of the tile at this place.
    pub fn number(&self, place: &[u64]) -> u64 {
        self.along.iter().zip(place).fold(0, |number, (along, at)| number * (along.end - along.start) + at)
    }

    /// The core and the read range of tile `at` along one axis.
    fn ranges(&self, axis: usize, at: u64) -> (Range<u64>, Range<u64>) {
        let (core, all) = (self.spec.core.sizes()[axis], self.spec.output.sizes()[axis]);
        let begin = (self.along[axis].start + at).saturating_mul(core);
        let mut range = begin..begin.saturating_add(core).min(all);
        if let Some(wanted) = &self.spec.wanted {
            let end = wanted.start()[axis] + wanted.size()[axis];
            range = range.start.max(wanted.start()[axis])..range.end.min(end);
        }
        let (halo, size) = (self.spec.halo[axis], self.spec.input.sizes()[axis]);
        let read = halo.read(range.clone(), size);
        let width = match &self.spec.reads {
            Reads::Least => return (range, read),
            Reads::Alike => halo.widest(core, size),
            Reads::Exactly(sizes) => sizes.sizes()[axis],
        };
        // That size, like the volume's, is the same modulo the stride, so the range may end at the end of the volume and
        // still begin on a multiple of the stride.
        let begin = read.start.min(size - width);
        (range, begin..begin + width)
    }

    /// The largest region that a tile reads, along each axis.
    pub fn largest_read(&self) -> Extent {
        let sizes: Vec<u64> = (0..self.along.len()).map(|axis| self.along_axis(axis).1).collect();
        Extent::new(sizes).unwrap_or_else(|_| self.spec.input.clone())
    }

    /// How many voxels the network computes for each voxel that is written: 1 is no recomputation.
    pub fn cost(&self) -> f64 {
        let ratio = |axis: usize| {
            let halo = self.spec.halo[axis];
            let (read, _, core) = self.along_axis(axis);
            read as f64 * halo.output as f64 / (core as f64 * halo.input as f64)
        };
        (0..self.along.len()).map(ratio).product()
    }

    /// How many voxels all tiles read together.
    pub fn voxels_read(&self) -> u128 {
        (0..self.along.len()).map(|axis| u128::from(self.along_axis(axis).0)).product()
    }

    /// Along one axis: what all tiles read, the most that one reads, and what all of them write.
    fn along_axis(&self, axis: usize) -> (u64, u64, u64) {
        let count = self.along[axis].end - self.along[axis].start;
        (0..count).map(|at| self.ranges(axis, at)).fold((0, 0, 0), |(sum, most, written), (core, read)| {
            let size = read.end - read.start;
            (sum + size, most.max(size), written + (core.end - core.start))
        })
    }
}

/// Whether tiles of a given size can be read everywhere.
fn check_reads(spec: &PlanSpec) -> Result<(), VolumeError> {
    let Reads::Exactly(sizes) = &spec.reads else { return Ok(()) };
    if sizes.axes() != spec.input.axes() {
        return Err(VolumeError::Invalid(format!("tiles of {sizes} do not have the axes of {}", spec.input)));
    }
    for (axis, halo) in spec.halo.iter().enumerate() {
        let (width, size, core) = (sizes.sizes()[axis], spec.input.sizes()[axis], spec.core.sizes()[axis]);
        let said = format!("the model takes {width} voxels along axis {axis}");
        if width > size {
            let problem = format!("{said}, and the volume has {size}");
            return Err(VolumeError::refused(problem, "export the model with dynamic axes, or pad the volume"));
        }
        if !(size - width).is_multiple_of(halo.input) {
            return Err(VolumeError::refused(
                format!(
                    "{said}, and the volume's {size} differ from that by no multiple of its stride, {}",
                    halo.input
                ),
                "pad or cut the volume, or export the model with dynamic axes",
            ));
        }
        let least = halo.widest(core, size);
        if width < least {
            return Err(VolumeError::refused(
                format!("{said}, and a core of {core} needs {least}"),
                "write smaller chunks, or export the model with dynamic axes or a larger input",
            ));
        }
    }
    Ok(())
}
