//! XLA's C interface for functions that its programs call (`xla/ffi/api/c_api.h`, versions 0.1 to 0.3), declared by hand:
//! only what is needed, so no header of XLA's is there at build time, and one file serves all versions of JAX from 0.5.
//!
//! XLA adds fields at the end of a structure and never moves any; each structure begins with its size.

use std::ffi::{c_char, c_int, c_void};

/// The newest minor version that these declarations are for.
pub(super) const MINOR: c_int = 3;
/// The oldest one with all that is used here. An XLA that does not tell its own while it asks for ours has this one.
pub(super) const OLDEST_MINOR: c_int = 1;

/// An extension that asks what version a handler was written for.
pub(super) const METADATA: c_int = 1;
/// The stage in which a handler does its work.
pub(super) const EXECUTE: c_int = 3;

/// An argument or a result that is a buffer.
pub(super) const BUFFER: c_int = 1;

/// Kinds of attributes.
pub(super) const ARRAY: c_int = 1;
pub(super) const SCALAR: c_int = 3;
pub(super) const STRING: c_int = 4;

/// Types of attributes.
pub(super) const S64: c_int = 5;
pub(super) const F64: c_int = 12;

/// Kinds of errors.
#[derive(Debug, Clone, Copy)]
#[repr(i32)]
pub(super) enum Code {
    InvalidArgument = 3,
    FailedPrecondition = 9,
    Unimplemented = 12,
    Unavailable = 14,
}

#[repr(C)]
pub(super) struct Extension {
    pub(super) size: usize,
    pub(super) kind: c_int,
    pub(super) next: *mut Extension,
}

#[repr(C)]
pub(super) struct Version {
    size: usize,
    extensions: *mut Extension,
    pub(super) major: c_int,
    pub(super) minor: c_int,
}

#[repr(C)]
pub(super) struct Metadata {
    size: usize,
    pub(super) version: Version,
    pub(super) traits: u32,
}

#[repr(C)]
pub(super) struct MetadataExtension {
    base: Extension,
    pub(super) metadata: *mut Metadata,
}

#[repr(C)]
pub(super) struct Span {
    pub(super) start: *const u8,
    pub(super) len: usize,
}

#[repr(C)]
pub(super) struct Scalar {
    pub(super) dtype: c_int,
    pub(super) value: *const c_void,
}

#[repr(C)]
pub(super) struct Array {
    pub(super) dtype: c_int,
    pub(super) len: usize,
    pub(super) start: *const c_void,
}

#[repr(C)]
pub(super) struct Buffer {
    size: usize,
    extensions: *mut Extension,
    pub(super) dtype: c_int,
    pub(super) start: *mut u8,
    pub(super) rank: i64,
    pub(super) extents: *const i64,
}

/// Arguments or results.
#[repr(C)]
pub(super) struct Items {
    size: usize,
    extensions: *mut Extension,
    pub(super) len: i64,
    pub(super) kinds: *const c_int,
    pub(super) items: *const *const c_void,
}

#[repr(C)]
pub(super) struct Attributes {
    size: usize,
    extensions: *mut Extension,
    pub(super) len: i64,
    pub(super) kinds: *const c_int,
    pub(super) names: *const *const Span,
    pub(super) items: *const *const c_void,
}

#[repr(C)]
pub(super) struct ErrorArguments {
    pub(super) size: usize,
    pub(super) extensions: *mut Extension,
    pub(super) message: *const c_char,
    pub(super) code: Code,
}

#[repr(C)]
pub(super) struct FutureArguments {
    pub(super) size: usize,
    pub(super) extensions: *mut Extension,
    pub(super) future: *mut c_void,
}

#[repr(C)]
pub(super) struct FutureErrorArguments {
    pub(super) size: usize,
    pub(super) extensions: *mut Extension,
    pub(super) future: *mut c_void,
    pub(super) error: *mut c_void,
}

/// What XLA offers to handlers. Functions return an error or null.
#[repr(C)]
pub(super) struct Api {
    size: usize,
    extensions: *mut Extension,
    pub(super) version: Version,
    internal: *const c_void,
    pub(super) create_error: unsafe extern "C" fn(*mut ErrorArguments) -> *mut c_void,
    unused: [*const c_void; 12],
    pub(super) create_future: unsafe extern "C" fn(*mut FutureArguments) -> *mut c_void,
    pub(super) complete: unsafe extern "C" fn(*mut FutureArguments) -> *mut c_void,
    pub(super) fail: unsafe extern "C" fn(*mut FutureErrorArguments) -> *mut c_void,
}

/// One call of a handler.
#[repr(C)]
pub(super) struct Frame {
    size: usize,
    pub(super) extensions: *mut Extension,
    /// Null in some versions while the version is asked for.
    pub(super) api: *const Api,
    context: *mut c_void,
    pub(super) stage: c_int,
    pub(super) arguments: Items,
    pub(super) results: Items,
    pub(super) attributes: Attributes,
    /// Set by a handler that is not done when it returns.
    pub(super) future: *mut c_void,
}
