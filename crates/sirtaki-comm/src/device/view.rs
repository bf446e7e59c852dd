//! Elements in the memory of a GPU.

use crate::{CommError, DType};

/// Where a number of elements of a type lie. A plain value: the creator keeps the memory it describes alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    address: u64,
    dtype: DType,
    elements: usize,
}

impl View {
    /// Elements at an address, which must be a multiple of their size.
    ///
    /// # Safety
    /// They must be in memory that the GPU which works on them can read and write, and stay there until it has done so; all
    /// others must leave them alone meanwhile, or order what they do by the streams that are used.
    pub unsafe fn new(address: u64, dtype: DType, elements: usize) -> Result<Self, CommError> {
        if elements > 0 && (address == 0 || !address.is_multiple_of(dtype.size() as u64)) {
            let problem = format!("{address:#x} in device memory cannot be the address of {}", dtype.name());
            return Err(CommError::Invalid { problem });
        }
        Ok(Self { address, dtype, elements })
    }

    /// Where the first element is.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.elements
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.elements == 0
    }

    /// How many bytes they take.
    pub fn bytes(&self) -> usize {
        self.elements * self.dtype.size()
    }

    /// The elements `from..to`, which must exist.
    #[must_use]
    pub fn part(&self, from: usize, to: usize) -> View {
        assert!(from <= to && to <= self.elements, "elements {from}..{to} of {}", self.elements);
        View { address: self.address + (from * self.dtype.size()) as u64, dtype: self.dtype, elements: to - from }
    }

    /// The same memory as bytes.
    #[must_use]
    pub fn as_bytes(&self) -> View {
        View { address: self.address, dtype: DType::U8, elements: self.bytes() }
    }
}
