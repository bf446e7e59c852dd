//! What NVIDIA's management library says about the devices: figures that tests can recognise.

use std::ffi::{CStr, c_char, c_int, c_uint};

use crate::{
    device::{UUID, count},
    status::give,
};

const SUCCESS: c_int = 0;
const NOT_FOUND: c_int = 6;
/// The handle of device 0; the others follow.
const FIRST: usize = 0xd000;
/// Bytes of every device's memory, and of those in use on device 0; every other device uses one more.
const TOTAL: u64 = 80 << 30;
const USED: u64 = 3 << 30;
/// Percent of the time in which a device is in use.
const BUSY: c_uint = 42;
/// Devices below this number are connected by NVLink.
const LINKED: usize = 4;

fn device(handle: usize) -> Option<usize> {
    handle.checked_sub(FIRST).filter(|device| *device < count() as usize)
}

#[unsafe(export_name = "nvmlInit_v2")]
extern "C" fn init() -> c_int {
    SUCCESS
}

#[unsafe(export_name = "nvmlDeviceGetHandleByUUID")]
unsafe extern "C" fn by_uuid(name: *const c_char, to: *mut usize) -> c_int {
    // SAFETY: the caller gives a text.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().replace('-', "");
    let mut known = UUID;
    let found = (0..count()).find(|device| {
        known[15] = device.to_le_bytes()[0];
        name == format!("GPU{}", known.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    });
    match found {
        // SAFETY: the caller wants a handle there.
        Some(device) => unsafe { give(to, FIRST + device as usize) },
        None => NOT_FOUND,
    }
}

#[unsafe(export_name = "nvmlDeviceGetMemoryInfo")]
unsafe extern "C" fn memory(handle: usize, to: *mut [u64; 3]) -> c_int {
    let Some(device) = device(handle) else { return NOT_FOUND };
    let used = USED + device as u64;
    // SAFETY: the caller wants three numbers there.
    unsafe { give(to, [TOTAL, TOTAL - used, used]) }
}

#[unsafe(export_name = "nvmlDeviceGetUtilizationRates")]
unsafe extern "C" fn utilisation(handle: usize, to: *mut [c_uint; 2]) -> c_int {
    match device(handle) {
        // SAFETY: the caller wants two numbers there.
        Some(_) => unsafe { give(to, [BUSY, 0]) },
        None => NOT_FOUND,
    }
}

#[unsafe(export_name = "nvmlDeviceGetP2PStatus")]
unsafe extern "C" fn peer_status(one: usize, other: usize, what: c_int, to: *mut c_int) -> c_int {
    const NVLINK: c_int = 2;
    let (Some(one), Some(other)) = (device(one), device(other)) else { return NOT_FOUND };
    let can = what != NVLINK || one.max(other) < LINKED;
    // SAFETY: the caller wants a number there.
    unsafe { give(to, c_int::from(!can)) }
}
