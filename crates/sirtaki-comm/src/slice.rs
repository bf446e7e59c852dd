//! Typed views of bytes: what a collective takes and fills.
//!
//! A view knows its element type at run time, because the callers above (an engine that fuses tensors, a Python
//! adapter) do. Construction checks length and alignment once, so nothing below has to.
//! Elements in the memory of a GPU are a [`View`](crate::device::View) instead.

use crate::{CommError, DType, Element};

/// Elements to read.
#[derive(Debug, Clone, Copy)]
pub struct Slice<'a> {
    dtype: DType,
    bytes: &'a [u8],
}

/// Elements to read and overwrite.
#[derive(Debug)]
pub struct SliceMut<'a> {
    dtype: DType,
    bytes: &'a mut [u8],
}

fn check(dtype: DType, bytes: &[u8]) -> Result<(), CommError> {
    let size = dtype.size();
    if !bytes.len().is_multiple_of(size) {
        let problem = format!("{} bytes are not a whole number of {} elements", bytes.len(), dtype.name());
        return Err(CommError::Invalid { problem });
    }
    if !bytes.is_empty() && !(bytes.as_ptr() as usize).is_multiple_of(size) {
        let problem = format!("a buffer of {} must start at a multiple of {size} bytes", dtype.name());
        return Err(CommError::Invalid { problem });
    }
    Ok(())
}

impl<'a> Slice<'a> {
    /// Views `bytes` as elements of `dtype`; refuses an incomplete element at the end and a misaligned start.
    pub fn new(dtype: DType, bytes: &'a [u8]) -> Result<Self, CommError> {
        check(dtype, bytes)?;
        Ok(Self { dtype, bytes })
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes themselves.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a> SliceMut<'a> {
    /// Views `bytes` as elements of `dtype`; refuses an incomplete element at the end and a misaligned start.
    pub fn new(dtype: DType, bytes: &'a mut [u8]) -> Result<Self, CommError> {
        check(dtype, bytes)?;
        Ok(Self { dtype, bytes })
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes, to read.
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// The bytes, to change.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// The same view for a shorter time, so that it can be passed on and used again.
    pub fn reborrow(&mut self) -> SliceMut<'_> {
        SliceMut { dtype: self.dtype, bytes: self.bytes }
    }

    /// The same elements, read only.
    pub fn as_slice(&self) -> Slice<'_> {
        Slice { dtype: self.dtype, bytes: self.bytes }
    }

    /// The elements `from..to`.
    pub fn part(&mut self, from: usize, to: usize) -> SliceMut<'_> {
        let size = self.dtype.size();
        SliceMut { dtype: self.dtype, bytes: &mut self.bytes[from * size..to * size] }
    }
}

impl<'a, T: Element> From<&'a [T]> for Slice<'a> {
    fn from(elements: &'a [T]) -> Self {
        Slice { dtype: T::DTYPE, bytes: bytemuck::cast_slice(elements) }
    }
}

impl<'a, T: Element> From<&'a mut [T]> for SliceMut<'a> {
    fn from(elements: &'a mut [T]) -> Self {
        SliceMut { dtype: T::DTYPE, bytes: bytemuck::cast_slice_mut(elements) }
    }
}

impl<'a, T: Element> From<&'a mut Vec<T>> for SliceMut<'a> {
    fn from(elements: &'a mut Vec<T>) -> Self {
        elements.as_mut_slice().into()
    }
}

impl<'a, T: Element> From<&'a Vec<T>> for Slice<'a> {
    fn from(elements: &'a Vec<T>) -> Self {
        elements.as_slice().into()
    }
}
