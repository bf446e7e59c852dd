//! Devices and contexts of the driver.

use std::{
    cell::Cell,
    ffi::{c_char, c_int, c_uint},
    sync::atomic::{AtomicBool, Ordering},
};

use crate::{
    setting,
    status::{INVALID_CONTEXT, INVALID_DEVICE, INVALID_VALUE, NOT_INITIALIZED, SUCCESS, give},
};

/// The context of device 0; the others follow.
const FIRST_CONTEXT: usize = 0xc000;

/// The identity of all devices, but for the last byte.
pub(crate) const UUID: [u8; 16] = *b"stand-in device?";

static INITIALISED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The context in which this thread makes its calls.
    static CONTEXT: Cell<usize> = const { Cell::new(0) };
}

/// How many devices there are.
pub(crate) fn count() -> c_int {
    setting("STAND_IN_DEVICES").and_then(|count| c_int::try_from(count).ok()).unwrap_or(8)
}

/// An error for a device that does not exist.
fn check(device: c_int) -> c_int {
    if !INITIALISED.load(Ordering::SeqCst) {
        NOT_INITIALIZED
    } else if (0..count()).contains(&device) {
        SUCCESS
    } else {
        INVALID_DEVICE
    }
}

/// The context of this thread; zero without one.
pub(crate) fn context() -> usize {
    CONTEXT.get()
}

/// An error unless this thread has a context.
pub(crate) fn check_context() -> c_int {
    if CONTEXT.get() == 0 { INVALID_CONTEXT } else { SUCCESS }
}

#[unsafe(export_name = "cuInit")]
extern "C" fn init(flags: c_uint) -> c_int {
    if flags != 0 {
        return INVALID_VALUE;
    }
    INITIALISED.store(true, Ordering::SeqCst);
    SUCCESS
}

#[unsafe(export_name = "cuDriverGetVersion")]
unsafe extern "C" fn version(to: *mut c_int) -> c_int {
    // SAFETY: the caller wants a number there.
    unsafe { give(to, 12_040) }
}

#[unsafe(export_name = "cuDeviceGetCount")]
unsafe extern "C" fn device_count(to: *mut c_int) -> c_int {
    if !INITIALISED.load(Ordering::SeqCst) {
        return NOT_INITIALIZED;
    }
    // SAFETY: the caller wants a number there.
    unsafe { give(to, count()) }
}

#[unsafe(export_name = "cuDeviceGet")]
unsafe extern "C" fn device(to: *mut c_int, number: c_int) -> c_int {
    match check(number) {
        // SAFETY: the caller wants a number there.
        SUCCESS => unsafe { give(to, number) },
        error => error,
    }
}

#[unsafe(export_name = "cuDeviceGetName")]
unsafe extern "C" fn device_name(to: *mut c_char, length: c_int, device: c_int) -> c_int {
    let name = c"stand-in".to_bytes_with_nul();
    if to.is_null() || usize::try_from(length).is_ok_and(|length| length < name.len()) {
        return INVALID_VALUE;
    }
    // SAFETY: the caller promises the buffer's length, and no more than that is written.
    unsafe { to.cast::<u8>().copy_from(name.as_ptr(), name.len()) };
    check(device)
}

#[unsafe(export_name = "cuDeviceGetUuid")]
unsafe extern "C" fn device_uuid(to: *mut [u8; 16], device: c_int) -> c_int {
    let mut uuid = UUID;
    uuid[15] = device.to_le_bytes()[0];
    match check(device) {
        // SAFETY: the caller wants sixteen bytes there.
        SUCCESS => unsafe { give(to, uuid) },
        error => error,
    }
}

#[unsafe(export_name = "cuDeviceCanAccessPeer")]
unsafe extern "C" fn can_access_peer(to: *mut c_int, device: c_int, peer: c_int) -> c_int {
    match (check(device), check(peer)) {
        // SAFETY: the caller wants a number there.
        (SUCCESS, SUCCESS) => unsafe { give(to, c_int::from(device != peer)) },
        (SUCCESS, error) | (error, _) => error,
    }
}

#[unsafe(export_name = "cuDevicePrimaryCtxRetain")]
unsafe extern "C" fn retain_context(to: *mut usize, device: c_int) -> c_int {
    match check(device) {
        // SAFETY: the caller wants a handle there.
        SUCCESS => unsafe { give(to, FIRST_CONTEXT + device as usize) },
        error => error,
    }
}

#[unsafe(export_name = "cuCtxSetCurrent")]
extern "C" fn set_context(context: usize) -> c_int {
    let known = FIRST_CONTEXT..FIRST_CONTEXT + count() as usize;
    if context != 0 && !known.contains(&context) {
        return INVALID_CONTEXT;
    }
    CONTEXT.set(context);
    SUCCESS
}
