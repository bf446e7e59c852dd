//! NCCL's communicators and errors, as C calls them.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    ptr::null_mut,
    sync::atomic::{AtomicPtr, Ordering},
};

use crate::{
    comm::{self, COMMS, Comm},
    number::{Operation, Type},
    setting,
};

pub(crate) const SUCCESS: c_int = 0;
pub(crate) const SYSTEM_ERROR: c_int = 2;
pub(crate) const INTERNAL_ERROR: c_int = 3;
pub(crate) const INVALID_ARGUMENT: c_int = 4;
pub(crate) const INVALID_USAGE: c_int = 5;

/// The text of the last error. Texts are never freed, because a caller may still be reading one when the next one is
/// stored.
static LAST_ERROR: AtomicPtr<c_char> = AtomicPtr::new(null_mut());

/// Why a call failed: NCCL's code, and an explanation in words.
pub(crate) struct Failure(pub(crate) c_int, pub(crate) String);

impl Failure {
    /// Makes it the last error.
    pub(crate) fn report(self) -> c_int {
        if let Ok(text) = CString::new(format!("stand-in: {}\n", self.1)) {
            LAST_ERROR.store(text.into_raw(), Ordering::SeqCst);
        }
        self.0
    }
}

/// The structure as C passes it.
#[repr(C)]
struct UniqueId([u8; 128]);

/// The beginning of NCCL's configuration.
#[repr(C)]
struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
}

/// Writes a result to where the caller wants it.
///
/// # Safety
/// `to` must be null or point to memory for a value of this type.
unsafe fn give<T>(to: *mut T, value: T) -> c_int {
    if to.is_null() {
        return Failure(INVALID_ARGUMENT, "a null pointer".into()).report();
    }
    // SAFETY: the caller's promise.
    unsafe { to.write(value) };
    SUCCESS
}

fn with_comm(handle: usize, act: impl FnOnce(&Comm) -> c_int) -> c_int {
    match COMMS.get(handle) {
        Some(comm) => act(&comm),
        None => Failure(INVALID_ARGUMENT, "this is no communicator".into()).report(),
    }
}

#[unsafe(export_name = "ncclGetVersion")]
unsafe extern "C" fn version(to: *mut c_int) -> c_int {
    let version = setting("STAND_IN_NCCL_VERSION").and_then(|version| c_int::try_from(version).ok());
    // SAFETY: the caller wants a number there.
    unsafe { give(to, version.unwrap_or(22_809)) }
}

#[unsafe(export_name = "ncclGetErrorString")]
extern "C" fn error_text(code: c_int) -> *const c_char {
    let text: &CStr = match code {
        SUCCESS => c"no error",
        1 => c"unhandled cuda error",
        SYSTEM_ERROR => c"unhandled system error",
        INTERNAL_ERROR => c"internal error",
        INVALID_ARGUMENT => c"invalid argument",
        INVALID_USAGE => c"invalid usage",
        6 => c"remote process exited or there was a network error",
        7 => c"NCCL operation in progress",
        _ => c"unknown result code",
    };
    text.as_ptr()
}

#[unsafe(export_name = "ncclGetLastError")]
extern "C" fn last_error(_comm: usize) -> *const c_char {
    let text = LAST_ERROR.load(Ordering::SeqCst);
    if text.is_null() { c"".as_ptr() } else { text }
}

#[unsafe(export_name = "ncclGetUniqueId")]
unsafe extern "C" fn unique_id(to: *mut UniqueId) -> c_int {
    match comm::identity() {
        // SAFETY: the caller wants an identity there.
        Ok(id) => unsafe { give(to, UniqueId(id)) },
        Err(failure) => failure.report(),
    }
}

#[unsafe(export_name = "ncclCommInitRankConfig")]
unsafe extern "C" fn connect(to: *mut usize, size: c_int, id: UniqueId, rank: c_int, config: *const Config) -> c_int {
    // SAFETY: the caller gives a configuration or none.
    let config = unsafe { config.as_ref() };
    let valid =
        |config: &Config| config.size >= size_of::<Config>() && config.magic == 0xcafe_beef && config.version >= 21_400;
    if config.is_some_and(|config| !valid(config)) {
        return Failure(INVALID_ARGUMENT, "this is no configuration".into()).report();
    }
    if crate::device::check_context() != 0 {
        return Failure(1, "this thread uses no device".into()).report();
    }
    if config.is_some_and(|config| config.blocking == 0) {
        return Failure(INVALID_ARGUMENT, "the stand-in has only communicators that block".into()).report();
    }
    match Comm::join(&id.0, rank, size) {
        // SAFETY: the caller wants a handle there.
        Ok(comm) => unsafe { give(to, COMMS.add(comm)) },
        Err(failure) => failure.report(),
    }
}

#[unsafe(export_name = "ncclCommGetAsyncError")]
unsafe extern "C" fn state(comm: usize, to: *mut c_int) -> c_int {
    // SAFETY: the caller wants a number there.
    with_comm(comm, |comm| unsafe { give(to, comm.state()) })
}

#[unsafe(export_name = "ncclCommAbort")]
extern "C" fn abort(comm: usize) -> c_int {
    let code = with_comm(comm, |comm| {
        comm.abort();
        SUCCESS
    });
    COMMS.remove(comm);
    code
}

#[unsafe(export_name = "ncclCommDestroy")]
extern "C" fn destroy(comm: usize) -> c_int {
    match COMMS.remove(comm) {
        Some(_) => SUCCESS,
        None => Failure(INVALID_ARGUMENT, "this is no communicator".into()).report(),
    }
}

#[unsafe(export_name = "ncclRedOpCreatePreMulSum")]
unsafe extern "C" fn scaled_sum(
    to: *mut c_int,
    factor: *const c_void,
    dtype: c_int,
    residence: c_int,
    comm: usize,
) -> c_int {
    let Some(dtype) = Type::from_code(dtype).filter(|_| !factor.is_null() && residence == 1) else {
        let problem = "an unknown type, or a factor that is not in the host's memory, which the stand-in cannot read";
        return Failure(INVALID_ARGUMENT, problem.into()).report();
    };
    let mut bytes = [0; 8];
    // SAFETY: there is one element of this type.
    unsafe { bytes.as_mut_ptr().copy_from(factor.cast(), dtype.size()) };
    with_comm(comm, |comm| match comm.check() {
        // SAFETY: the caller wants a number there.
        Ok(()) => unsafe { give(to, comm.add_operation(dtype, Operation::Scaled(bytes))) },
        Err(failure) => failure.report(),
    })
}

#[unsafe(export_name = "ncclRedOpDestroy")]
extern "C" fn drop_scaled_sum(op: c_int, comm: usize) -> c_int {
    with_comm(comm, |comm| {
        let known = comm.remove_operation(op);
        if known { SUCCESS } else { Failure(INVALID_ARGUMENT, "this is no operation".into()).report() }
    })
}
