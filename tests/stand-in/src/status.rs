//! The codes with which the driver reports the outcome of a call.

use std::ffi::{CStr, c_char, c_int};

pub(crate) const SUCCESS: c_int = 0;
pub(crate) const INVALID_VALUE: c_int = 1;
pub(crate) const OUT_OF_MEMORY: c_int = 2;
pub(crate) const NOT_INITIALIZED: c_int = 3;
pub(crate) const INVALID_DEVICE: c_int = 101;
pub(crate) const INVALID_CONTEXT: c_int = 201;
pub(crate) const NO_PEER_ACCESS: c_int = 217;
pub(crate) const INVALID_HANDLE: c_int = 400;
pub(crate) const NOT_READY: c_int = 600;
pub(crate) const NOT_SUPPORTED: c_int = 801;

/// Writes a result to where the caller wants it.
///
/// # Safety
/// `to` must be null or point to memory for a value of this type.
pub(crate) unsafe fn give<T>(to: *mut T, value: T) -> c_int {
    if to.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's promise.
    unsafe { to.write(value) };
    SUCCESS
}

#[unsafe(export_name = "cuGetErrorString")]
unsafe extern "C" fn error_text(code: c_int, to: *mut *const c_char) -> c_int {
    let text: &CStr = match code {
        SUCCESS => c"no error",
        INVALID_VALUE => c"invalid argument",
        OUT_OF_MEMORY => c"out of memory",
        NOT_INITIALIZED => c"initialization error",
        INVALID_DEVICE => c"invalid device ordinal",
        INVALID_CONTEXT => c"invalid device context",
        NO_PEER_ACCESS => c"peer access is not supported between these two devices",
        INVALID_HANDLE => c"invalid resource handle",
        NOT_READY => c"device not ready",
        NOT_SUPPORTED => c"operation not supported",
        _ => return INVALID_VALUE,
    };
    // SAFETY: the caller wants the address of a text there.
    unsafe { give(to, text.as_ptr()) }
}
