//! Buffers of any element type, filled from and compared as plain numbers.

use half::{bf16, f16};
use sirtaki_comm::{DType, Slice, SliceMut};

/// Elements of one type. They start one element into their memory, so that nothing can rely on more alignment than an
/// element has.
#[derive(Debug, Clone)]
pub struct Data {
    dtype: DType,
    words: Vec<u64>,
    bytes: usize,
}

impl Data {
    /// `count` zeros.
    pub fn zeros(dtype: DType, count: usize) -> Data {
        let bytes = count * dtype.size();
        Data { dtype, words: vec![0; (bytes + dtype.size()).div_ceil(8)], bytes }
    }

    /// These numbers, which the type should be able to hold.
    pub fn new(dtype: DType, numbers: &[f64]) -> Data {
        let mut data = Data::zeros(dtype, numbers.len());
        for (i, &number) in numbers.iter().enumerate() {
            let element = &mut data.bytes_mut()[i * dtype.size()..(i + 1) * dtype.size()];
            match dtype {
                DType::F16 => element.copy_from_slice(&f16::from_f64(number).to_ne_bytes()),
                DType::BF16 => element.copy_from_slice(&bf16::from_f64(number).to_ne_bytes()),
                DType::F32 => element.copy_from_slice(&(number as f32).to_ne_bytes()),
                DType::F64 => element.copy_from_slice(&number.to_ne_bytes()),
                DType::I8 => element.copy_from_slice(&(number as i8).to_ne_bytes()),
                DType::U8 => element.copy_from_slice(&(number as u8).to_ne_bytes()),
                DType::I32 => element.copy_from_slice(&(number as i32).to_ne_bytes()),
                DType::I64 => element.copy_from_slice(&(number as i64).to_ne_bytes()),
                DType::Bool => element[0] = u8::from(number != 0.0),
            }
        }
        data
    }

    /// A copy of a slice.
    pub fn copy(slice: Slice<'_>) -> Data {
        let mut data = Data::zeros(slice.dtype(), slice.len());
        data.bytes_mut().copy_from_slice(slice.bytes());
        data
    }

    /// The elements as numbers.
    pub fn numbers(&self) -> Vec<f64> {
        let element = |bytes: &[u8]| match self.dtype {
            DType::F16 => bytemuck::pod_read_unaligned::<f16>(bytes).to_f64(),
            DType::BF16 => bytemuck::pod_read_unaligned::<bf16>(bytes).to_f64(),
            DType::F32 => bytemuck::pod_read_unaligned::<f32>(bytes).into(),
            DType::F64 => bytemuck::pod_read_unaligned(bytes),
            DType::I8 => bytemuck::pod_read_unaligned::<i8>(bytes).into(),
            DType::U8 | DType::Bool => bytes[0].into(),
            DType::I32 => bytemuck::pod_read_unaligned::<i32>(bytes).into(),
            DType::I64 => bytemuck::pod_read_unaligned::<i64>(bytes) as f64,
        };
        self.bytes().chunks_exact(self.dtype.size()).map(element).collect()
    }

    /// The bytes of the elements.
    pub fn bytes(&self) -> &[u8] {
        let start = self.dtype.size();
        &bytemuck::cast_slice(&self.words)[start..start + self.bytes]
    }

    /// The bytes of the elements, to change.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let start = self.dtype.size();
        &mut bytemuck::cast_slice_mut(&mut self.words)[start..start + self.bytes]
    }

    /// The elements, to pass to a collective.
    pub fn slice(&self) -> Slice<'_> {
        Slice::new(self.dtype, self.bytes()).unwrap()
    }

    /// The elements, to be changed by a collective.
    pub fn slice_mut(&mut self) -> SliceMut<'_> {
        SliceMut::new(self.dtype, self.bytes_mut()).unwrap()
    }

    /// The elements `from..to`.
    pub fn part(&self, from: usize, to: usize) -> Data {
        let size = self.dtype.size();
        Data::copy(Slice::new(self.dtype, &self.bytes()[from * size..to * size]).unwrap())
    }

    /// A number that differs, in all likelihood, when any bit differs.
    pub fn digest(&self) -> i64 {
        let mix = |sum: u64, &byte: &u8| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        self.bytes().iter().fold(0xcbf2_9ce4_8422_2325, mix) as i64
    }
}

/// What rank `rank` puts at position `i`: small whole numbers, so that every type holds them and their sums exactly.
pub fn number(dtype: DType, rank: usize, i: usize, seed: usize) -> f64 {
    let mixed = (i + 1).wrapping_mul(0x9e37_79b9).wrapping_add(rank * 7919 + seed * 104_729);
    let small = ((mixed >> 7) % 4) as f64;
    match dtype {
        DType::Bool => f64::from(!(mixed >> 5).is_multiple_of(3)),
        DType::U8 => small,
        _ if mixed.is_multiple_of(5) => -small,
        _ => small,
    }
}

/// `count` of these numbers.
pub fn numbers(dtype: DType, rank: usize, count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| number(dtype, rank, i, seed)).collect()
}
