//! Reads a call of XLA's: everything is copied out of the frame, which is gone when the handler returns. The only file
//! that follows XLA's pointers.

use std::{ffi::c_int, slice};

use sirtaki_comm::DType;
use sirtaki_engine::Tensor;

use super::{
    abi::{self, Array, Attributes, Buffer, Frame, Items, MetadataExtension, Scalar, Span},
    future::Future,
};

/// Where the elements of an argument or a result are. XLA keeps them there until the call is completed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Place {
    start: *mut u8,
    pub(super) kind: Kind,
    pub(super) shape: Vec<usize>,
}

// SAFETY: the memory belongs to the call, and whoever has the place is the one that may use it.
unsafe impl Send for Place {}

/// What the elements are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// Something to compute with.
    Known(DType),
    /// Something that can only be sent, with so many bytes each.
    Opaque(usize),
}

impl Kind {
    fn of(code: c_int) -> Option<Self> {
        Some(match code {
            1 => Kind::Known(DType::Bool),
            2 => Kind::Known(DType::I8),
            4 => Kind::Known(DType::I32),
            5 => Kind::Known(DType::I64),
            6 => Kind::Known(DType::U8),
            10 => Kind::Known(DType::F16),
            11 => Kind::Known(DType::F32),
            12 => Kind::Known(DType::F64),
            16 => Kind::Known(DType::BF16),
            19 | 20 | 23..=25 | 28 | 29 | 33 => Kind::Opaque(1),
            3 | 7 => Kind::Opaque(2),
            8 => Kind::Opaque(4),
            9 | 15 => Kind::Opaque(8),
            18 => Kind::Opaque(16),
            _ => return None,
        })
    }

    fn size(self) -> usize {
        match self {
            Kind::Known(dtype) => dtype.size(),
            Kind::Opaque(size) => size,
        }
    }
}

impl Place {
    pub(super) fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.kind.size()
    }

    /// Type and shape for the engine: what it cannot compute with travels as bytes.
    pub(super) fn described(&self) -> (DType, Vec<usize>) {
        match self.kind {
            Kind::Known(dtype) => (dtype, self.shape.clone()),
            Kind::Opaque(size) => (DType::U8, [self.shape.as_slice(), &[size]].concat()),
        }
    }

    /// The elements, for the engine; the call is not completed before the engine lets go of them.
    pub(super) fn tensor(&self, future: &Future) -> Tensor {
        let (dtype, shape) = self.described();
        let elements = shape.iter().product();
        if elements == 0 {
            return Tensor::zeros(dtype, 0);
        }
        // SAFETY: XLA's promise for the buffers of a call that is not completed, and `future` completes it when the last
        // owner is dropped.
        unsafe { Tensor::foreign(self.start, dtype, elements, Box::new(future.clone())) }
    }

    /// Copies the elements of another place of the same size, unless it is the same.
    pub(super) fn fill_from(&self, other: &Place) {
        if self.start != other.start && self.bytes() == other.bytes() {
            // SAFETY: both are as large as that, and XLA gives a result no part of an argument.
            unsafe { std::ptr::copy_nonoverlapping(other.start, self.start, self.bytes()) }
        }
    }

    /// Copies bytes here; says whether they were as many as there is room for.
    pub(super) fn fill(&self, bytes: &[u8]) -> bool {
        let fits = bytes.len() == self.bytes();
        if fits && !bytes.is_empty() {
            // SAFETY: the result is as large as that, and nobody else uses it before the call is completed.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start, bytes.len()) }
        }
        fits
    }
}

/// Answers a question about the version; says whether it was one.
///
/// # Safety
/// `frame` is what XLA passes to a handler.
pub(super) unsafe fn handshake(frame: &Frame) -> bool {
    // SAFETY: a list of XLA's; the metadata is there to be written to.
    unsafe {
        let mut next = frame.extensions;
        while let Some(extension) = next.as_ref() {
            if extension.kind == abi::METADATA {
                let metadata = &mut *(*next.cast::<MetadataExtension>()).metadata;
                let theirs = frame.api.as_ref().map_or(abi::OLDEST_MINOR, |api| api.version.minor);
                (metadata.version.major, metadata.version.minor) = (0, theirs.min(abi::MINOR));
                metadata.traits = 0;
                return true;
            }
            next = extension.next;
        }
    }
    false
}

/// The elements of a list of XLA's, which may have no address if there are none.
///
/// # Safety
/// There are `len` of them at `start`.
unsafe fn list<'a, T>(start: *const T, len: i64) -> &'a [T] {
    match usize::try_from(len) {
        // SAFETY: the caller's promise.
        Ok(len) if len > 0 && !start.is_null() => unsafe { slice::from_raw_parts(start, len) },
        _ => &[],
    }
}

/// The places of arguments or results.
///
/// # Safety
/// They are those of a call.
pub(super) unsafe fn places(items: &Items) -> Result<Vec<Place>, String> {
    // SAFETY: lists of XLA's, with the length that it says.
    let (kinds, items) = unsafe { (list(items.kinds, items.len), list(items.items, items.len)) };
    let place = |(&kind, &item): (&c_int, &*const std::ffi::c_void)| {
        if kind != abi::BUFFER {
            return Err("an argument is not an array".to_string());
        }
        // SAFETY: this kind of item is a buffer.
        let (buffer, extents) = unsafe {
            let buffer = &*item.cast::<Buffer>();
            (buffer, list(buffer.extents, buffer.rank))
        };
        let kind =
            Kind::of(buffer.dtype).ok_or_else(|| format!("arrays of XLA's type {} cannot travel", buffer.dtype))?;
        let shape = extents.iter().map(|&extent| usize::try_from(extent).unwrap_or(0)).collect();
        Ok(Place { start: buffer.start, kind, shape })
    };
    kinds.iter().zip(items).map(place).collect()
}

/// Attributes of a call, by name.
pub(super) struct Named<'a>(&'a Attributes);

impl<'a> Named<'a> {
    /// # Safety
    /// They are those of a call.
    pub(super) unsafe fn new(attributes: &'a Attributes) -> Self {
        Self(attributes)
    }

    fn find<T>(&self, name: &str, wanted: c_int) -> Option<&'a T> {
        let attributes = self.0;
        // SAFETY: lists of XLA's with the length that it says, and each kind of attribute has its own structure, which
        // the caller has chosen by `wanted`.
        unsafe {
            let names = list(attributes.names, attributes.len);
            let at = names.iter().position(|&span| text(&*span) == Some(name))?;
            let kind = *list(attributes.kinds, attributes.len).get(at)?;
            (kind == wanted).then(|| &*list(attributes.items, attributes.len)[at].cast::<T>())
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.find::<Span>(name, abi::STRING).and_then(text)
    }

    pub(super) fn integer(&self, name: &str) -> Option<u64> {
        let scalar = self.find::<Scalar>(name, abi::SCALAR).filter(|scalar| scalar.dtype == abi::S64)?;
        // SAFETY: this type of scalar is one of these.
        u64::try_from(unsafe { scalar.value.cast::<i64>().read_unaligned() }).ok()
    }

    pub(super) fn number(&self, name: &str) -> Option<f64> {
        let scalar = self.find::<Scalar>(name, abi::SCALAR).filter(|scalar| scalar.dtype == abi::F64)?;
        // SAFETY: this type of scalar is one of these.
        Some(unsafe { scalar.value.cast::<f64>().read_unaligned() })
    }

    pub(super) fn counts(&self, name: &str) -> Option<Vec<usize>> {
        let array = self.find::<Array>(name, abi::ARRAY).filter(|array| array.dtype == abi::S64)?;
        // SAFETY: this type of array has elements of that many bytes.
        let numbers = (0..array.len).map(|index| unsafe { array.start.cast::<i64>().add(index).read_unaligned() });
        numbers.map(|number| usize::try_from(number).ok()).collect()
    }
}

fn text(span: &Span) -> Option<&str> {
    if span.len == 0 {
        return Some("");
    }
    // SAFETY: XLA's strings are as long as they say, and live as long as the call's frame.
    std::str::from_utf8(unsafe { slice::from_raw_parts(span.start, span.len) }).ok()
}
