//! TensorFlow's tensors: what they are, and how they become the engine's.

use std::slice;

use sirtaki_comm::DType;
use sirtaki_engine::Tensor;

use crate::tensorflow::interface::{Pointer, tensorflow};

/// TensorFlow's number for 64-bit integers.
pub(super) const INT64: i32 = 9;
/// TensorFlow's number for 32-bit integers.
pub(super) const INT32: i32 = 3;

/// A reference to a tensor, which keeps its memory.
pub(super) struct Held(Pointer);

// SAFETY: TensorFlow counts references to memory atomically, and a reference is used by one thread at a time.
unsafe impl Send for Held {}

impl Held {
    /// # Safety
    /// The pointer must be a reference that nobody else gives up.
    pub(super) unsafe fn new(tensor: Pointer) -> Self {
        Self(tensor)
    }

    pub(super) fn pointer(&self) -> Pointer {
        self.0
    }

    pub(super) fn data_type(&self) -> i32 {
        // SAFETY: it is a tensor.
        unsafe { (tensorflow().data_type)(self.0) }
    }

    /// Elements along each dimension.
    pub(super) fn shape(&self) -> Vec<usize> {
        // SAFETY: it is a tensor, and the dimensions are those it has.
        let extent = |dimension| unsafe { (tensorflow().extent)(self.0, dimension) };
        // SAFETY: it is a tensor.
        let dimensions = unsafe { (tensorflow().dimensions)(self.0) };
        (0..dimensions).map(|dimension| usize::try_from(extent(dimension)).unwrap_or(0)).collect()
    }

    fn data(&self) -> (*mut u8, usize) {
        // SAFETY: it is a tensor.
        unsafe { ((tensorflow().data)(self.0).cast(), (tensorflow().bytes)(self.0)) }
    }

    /// The elements as bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        let (start, bytes) = self.data();
        if bytes == 0 {
            return &[];
        }
        // SAFETY: the reference keeps the memory, and inputs of kernels are not written meanwhile.
        unsafe { slice::from_raw_parts(start, bytes) }
    }

    /// The elements of a new tensor, to write.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let (start, bytes) = self.data();
        if bytes == 0 {
            return &mut [];
        }
        // SAFETY: it was allocated for the kernel that writes it, and no other reads it before that returns.
        unsafe { slice::from_raw_parts_mut(start, bytes) }
    }

    /// The numbers in a tensor of 64-bit integers.
    pub(super) fn integers(&self) -> Vec<i64> {
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, i64::from_ne_bytes);
        self.bytes().chunks_exact(8).map(number).collect()
    }

    /// The tensor for the engine, with its shape; elements of types that the engine does not know are passed as bytes.
    /// `rows` says how many rows go with it, if not all.
    pub(super) fn into_engine(self, rows: Option<usize>) -> (Tensor, DType, Vec<usize>) {
        let (dtype, shape) = described(self.data_type(), self.shape(), self.data().1);
        let shape = match (rows, shape.split_first()) {
            (Some(rows), Some((_, rest))) => [&[rows], rest].concat(),
            _ => shape,
        };
        let elements: usize = shape.iter().product();
        if elements == 0 {
            return (Tensor::zeros(dtype, 0), dtype, shape);
        }
        let start = self.data().0;
        // SAFETY: the reference keeps the memory; kernels hand in what nobody else writes until the engine is done.
        (unsafe { Tensor::foreign(start, dtype, elements, Box::new(self)) }, dtype, shape)
    }

    /// A copy of the tensor for the engine, which may write it.
    pub(super) fn to_engine(&self) -> (Tensor, DType, Vec<usize>) {
        let (dtype, shape) = described(self.data_type(), self.shape(), self.data().1);
        let mut copy = Tensor::zeros(dtype, shape.iter().product());
        copy.bytes_mut().copy_from_slice(self.bytes());
        (copy, dtype, shape)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the reference is given up once, here.
        unsafe { (tensorflow().delete_tensor)(self.0) }
    }
}

/// The engine's type and the shape, from TensorFlow's number of the type and the size in bytes.
fn described(data_type: i32, shape: Vec<usize>, bytes: usize) -> (DType, Vec<usize>) {
    let known = match data_type {
        1 => DType::F32,
        2 => DType::F64,
        3 => DType::I32,
        4 => DType::U8,
        6 => DType::I8,
        9 => DType::I64,
        10 => DType::Bool,
        14 => DType::BF16,
        19 => DType::F16,
        _ => return (DType::U8, [shape.as_slice(), &[width(data_type, &shape, bytes)]].concat()),
    };
    (known, shape)
}

/// Bytes of an element of a type that the engine does not know; even a rank without elements has to say it.
fn width(data_type: i32, shape: &[usize], bytes: usize) -> usize {
    match (data_type, shape.iter().product()) {
        (5 | 17, _) => 2,
        (22, _) => 4,
        (8 | 23, _) => 8,
        (18, _) => 16,
        (_, 0) => 1,
        (_, elements) => bytes / elements,
    }
}

/// Whether elements of this type are passed to the engine as bytes, in one more dimension.
pub(super) fn is_opaque(data_type: i32) -> bool {
    !matches!(data_type, 1 | 2 | 3 | 4 | 6 | 9 | 10 | 14 | 19)
}
