//! Buffers whose sum over the ranks is known, so that no figure is printed for a wrong result.

use half::{bf16, f16};
use sirtaki_comm::{CommError, DType, SliceMut};

/// Inputs are 0, 1 or 2, shifted from rank to rank: exact in every type, and a misplaced element shows.
fn input(index: usize, rank: usize) -> usize {
    (index + rank) % 3
}

/// `bytes` bytes, aligned for every element type.
#[derive(Debug)]
pub(super) struct Buffer {
    words: Vec<u64>,
    bytes: usize,
    dtype: DType,
}

impl Buffer {
    /// A buffer for whole elements of `dtype` in at most `bytes`.
    pub(super) fn new(dtype: DType, bytes: usize) -> Self {
        Self { words: vec![0; bytes.div_ceil(8)], bytes: bytes - bytes % dtype.size(), dtype }
    }

    /// How many bytes it has.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    fn raw(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.bytes]
    }

    /// The buffer as a collective takes it.
    pub(super) fn slice(&mut self) -> Result<SliceMut<'_>, CommError> {
        let dtype = self.dtype;
        SliceMut::new(dtype, self.raw())
    }

    /// Writes zeros, whose sums stay zeros however often they are added.
    pub(super) fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Writes the inputs of `rank`.
    pub(super) fn fill(&mut self, rank: usize) {
        let dtype = self.dtype;
        let patterns: [[u8; 8]; 3] = std::array::from_fn(|value| encode(dtype, value));
        for (index, element) in self.raw().chunks_exact_mut(dtype.size()).enumerate() {
            element.copy_from_slice(&patterns[input(index, rank)][..element.len()]);
        }
    }

    /// The first element that is not the sum over `ranks` ranks.
    pub(super) fn find_wrong(&mut self, ranks: usize) -> Option<usize> {
        let dtype = self.dtype;
        let sums: [[u8; 8]; 3] =
            std::array::from_fn(|index| encode(dtype, (0..ranks).map(|rank| input(index, rank)).sum()));
        let mut elements = self.raw().chunks_exact(dtype.size()).enumerate();
        elements.find(|(index, element)| **element != sums[index % 3][..element.len()]).map(|(index, _)| index)
    }
}

/// A small number in the first bytes of the result, in the machine's order.
fn encode(dtype: DType, value: usize) -> [u8; 8] {
    let mut bytes = [0; 8];
    let mut put = |encoded: &[u8]| bytes[..encoded.len()].copy_from_slice(encoded);
    match dtype {
        DType::F16 => put(&f16::from_f64(value as f64).to_ne_bytes()),
        DType::BF16 => put(&bf16::from_f64(value as f64).to_ne_bytes()),
        DType::F32 => put(&(value as f32).to_ne_bytes()),
        DType::F64 => put(&(value as f64).to_ne_bytes()),
        DType::I8 | DType::U8 => put(&[value as u8]),
        DType::I32 => put(&(value as i32).to_ne_bytes()),
        DType::I64 => put(&(value as i64).to_ne_bytes()),
        DType::Bool => put(&[u8::from(value != 0)]),
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rank_is_its_own_sum_and_a_changed_element_is_found() {
        for dtype in DType::ALL {
            let mut buffer = Buffer::new(dtype, 99);
            buffer.fill(0);
            assert_eq!(buffer.len(), 99 - 99 % dtype.size());
            assert_eq!(buffer.find_wrong(1), None, "{}", dtype.name());
            let last = buffer.len() / dtype.size() - 1;
            buffer.raw()[last * dtype.size()] ^= 1;
            assert_eq!(buffer.find_wrong(1), Some(last), "{}", dtype.name());
        }
    }

    #[test]
    fn sums_of_three_ranks_are_threes() {
        let mut buffer = Buffer::new(DType::F32, 40);
        bytemuck::cast_slice_mut::<u8, f32>(buffer.raw()).fill(3.0);
        assert_eq!(buffer.find_wrong(3), None);
        assert_eq!(buffer.find_wrong(2), Some(0));
    }
}
