//! The reference: all voxels in memory, found one by one.

use proptest::prelude::*;
use sirtaki_volume::{
    Extent, Region,
    format::{Dtype, VolumeLayout},
};

/// Voxels in memory.
#[derive(Debug, Clone)]
pub(crate) struct Array {
    pub(crate) shape: Vec<u64>,
    pub(crate) dtype: Dtype,
    pub(crate) bytes: Vec<u8>,
}

impl Array {
    /// Voxels that differ from each other, with holes of zeros. Every bit pattern is a value, but truth values have two.
    pub(crate) fn patterned(shape: &[u64], dtype: Dtype, seed: u64) -> Self {
        let voxels = shape.iter().product::<u64>();
        let voxel = |at: u64| {
            let mixed = (at + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(seed).rotate_left(23);
            let bytes = if (at / 37 + seed).is_multiple_of(3) { [0; 8] } else { mixed.to_le_bytes() };
            let bytes = if dtype == Dtype::Bool { bytes.map(|byte| byte & 1) } else { bytes };
            bytes.into_iter().take(dtype.size())
        };
        Self { shape: shape.to_vec(), dtype, bytes: (0..voxels).flat_map(voxel).collect() }
    }

    pub(crate) fn layout(&self) -> VolumeLayout {
        VolumeLayout::new(Extent::new(self.shape.clone()).unwrap(), self.dtype)
    }

    pub(crate) fn whole(&self) -> Region {
        Region::whole(&Extent::new(self.shape.clone()).unwrap())
    }

    /// The voxels of a region, found one by one.
    pub(crate) fn read(&self, region: &Region) -> Vec<u8> {
        let width = self.dtype.size();
        let mut out = Vec::new();
        for number in 0..region.voxels() {
            let (mut rest, mut at, mut step) = (number, 0, 1);
            for axis in (0..self.shape.len()).rev() {
                let size = region.size()[axis];
                at += (region.start()[axis] + rest % size) * step;
                rest /= size;
                step *= self.shape[axis];
            }
            out.extend_from_slice(&self.bytes[at as usize * width..][..width]);
        }
        out
    }
}

pub(crate) fn dtypes() -> impl Strategy<Value = Dtype> {
    prop::sample::select(Dtype::ALL.to_vec())
}

/// Arrays of so many axes.
pub(crate) fn arrays(
    axes: std::ops::RangeInclusive<usize>,
    of: impl Strategy<Value = Dtype>,
) -> impl Strategy<Value = Array> {
    (prop::collection::vec(1_u64..14, axes), of, 0_u64..1000)
        .prop_map(|(shape, dtype, seed)| Array::patterned(&shape, dtype, seed))
}

/// A region of an array of this shape, made from random numbers.
pub(crate) fn region_of(shape: &[u64], numbers: &[(u64, u64)]) -> Region {
    let start: Vec<u64> = shape.iter().zip(numbers).map(|(size, (start, _))| start % size).collect();
    let size: Vec<u64> = (0..shape.len()).map(|axis| 1 + numbers[axis].1 % (shape[axis] - start[axis])).collect();
    Region::new(start, size).unwrap()
}

/// Random numbers for [`region_of`].
pub(crate) fn numbers() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((any::<u64>(), any::<u64>()), 5)
}
