//! Boxes of voxels, in any number of axes.
//!
//! Sizes are `u64`, because a volume need not fit into the address space. All arithmetic that could overflow is
//! checked or saturates, as shapes come from files.

use std::{fmt, ops::Range};

use serde::{Deserialize, Serialize};

use crate::VolumeError;

/// The sizes of an array, slowest axis first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Extent(Vec<u64>);

impl Extent {
    /// An extent with these sizes. None may be zero, and their product must fit 64 bits.
    pub fn new(sizes: impl Into<Vec<u64>>) -> Result<Self, VolumeError> {
        let sizes = sizes.into();
        let product = sizes.iter().try_fold(1_u64, |product, &size| product.checked_mul(size));
        match product {
            _ if sizes.is_empty() => Err(VolumeError::Invalid("a volume needs at least one axis".to_owned())),
            Some(0) => Err(VolumeError::Invalid(format!("{} has an empty axis", Self(sizes)))),
            Some(_) => Ok(Self(sizes)),
            None => Err(VolumeError::Invalid(format!("{} has more voxels than can be counted", Self(sizes)))),
        }
    }

    /// The size along each axis.
    pub fn sizes(&self) -> &[u64] {
        &self.0
    }

    /// How many axes there are.
    pub fn axes(&self) -> usize {
        self.0.len()
    }

    /// How many elements there are.
    pub fn voxels(&self) -> u64 {
        self.0.iter().fold(1, |product: u64, &size| product.saturating_mul(size))
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (axis, size) in self.0.iter().enumerate() {
            write!(f, "{}{size}", if axis == 0 { "" } else { " × " })?;
        }
        Ok(())
    }
}

/// A box of voxels: where it starts, and its size along each axis. It may be empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Region {
    start: Vec<u64>,
    size: Vec<u64>,
}

impl Region {
    /// A box; both have one value per axis, and where it ends must fit 64 bits.
    pub fn new(start: impl Into<Vec<u64>>, size: impl Into<Vec<u64>>) -> Result<Self, VolumeError> {
        let (start, size) = (start.into(), size.into());
        let ends = start.len() == size.len() && start.iter().zip(&size).all(|(a, b)| a.checked_add(*b).is_some());
        match ends {
            true => Ok(Self { start, size }),
            false => Err(VolumeError::Invalid(format!("{start:?} and {size:?} are no start and size of a region"))),
        }
    }

    /// Everything of this extent.
    pub fn whole(extent: &Extent) -> Self {
        Self { start: vec![0; extent.axes()], size: extent.sizes().to_vec() }
    }

    /// From here, inclusive, to there, exclusive, along each axis.
    pub fn between(from: &[u64], to: &[u64]) -> Self {
        let size = from.iter().zip(to).map(|(from, to)| to.saturating_sub(*from)).collect();
        Self { start: from.to_vec(), size }
    }

    /// These ranges, one for each axis.
    pub fn across(ranges: &[Range<u64>]) -> Self {
        let size = ranges.iter().map(|range| range.end.saturating_sub(range.start)).collect();
        Self { start: ranges.iter().map(|range| range.start).collect(), size }
    }

    /// The first voxel along each axis.
    pub fn start(&self) -> &[u64] {
        &self.start
    }

    /// The size along each axis.
    pub fn size(&self) -> &[u64] {
        &self.size
    }

    /// The first voxel behind it along each axis.
    pub fn end(&self) -> Vec<u64> {
        self.start.iter().zip(&self.size).map(|(start, size)| start.saturating_add(*size)).collect()
    }

    /// How many axes there are.
    pub fn axes(&self) -> usize {
        self.start.len()
    }

    /// How many voxels are inside.
    pub fn voxels(&self) -> u64 {
        self.size.iter().fold(1, |product: u64, &size| product.saturating_mul(size))
    }

    /// Whether it has no voxel.
    pub fn is_empty(&self) -> bool {
        self.size.contains(&0)
    }

    /// What both contain; empty where they do not meet.
    pub fn intersection(&self, other: &Region) -> Region {
        let start: Vec<u64> = self.start.iter().zip(&other.start).map(|(a, b)| *a.max(b)).collect();
        let end: Vec<u64> = self.end().iter().zip(other.end()).map(|(a, b)| *a.min(&b)).collect();
        Self::between(&start, &end)
    }

    /// Whether every voxel of the other is in this one.
    pub fn contains(&self, other: &Region) -> bool {
        self.axes() == other.axes()
            && (0..self.axes()).all(|axis| {
                let end = |region: &Region| region.start[axis].saturating_add(region.size[axis]);
                self.start[axis] <= other.start[axis] && end(other) <= end(self)
            })
    }

    /// Whether it lies in an array of this extent.
    pub fn is_within(&self, extent: &Extent) -> bool {
        Self::whole(extent).contains(self)
    }

    /// The same voxels, counted from the start of another region that contains them.
    pub fn relative_to(&self, outer: &Region) -> Region {
        let start = self.start.iter().zip(&outer.start).map(|(inner, outer)| inner.saturating_sub(*outer)).collect();
        Self { start, size: self.size.clone() }
    }
}

impl fmt::Display for Region {
    /// As `[0..64, 128..192]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[")?;
        for (axis, (start, size)) in self.start.iter().zip(&self.size).enumerate() {
            write!(f, "{}{start}..{}", if axis == 0 { "" } else { ", " }, start.saturating_add(*size))?;
        }
        write!(f, "]")
    }
}
