//! The CUDA driver, loaded at run time. It comes with the machine's kernel module, so a process that has a GPU has it.

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    path::Path,
    sync::{Arc, OnceLock},
};

use crate::{
    CommError,
    library::{functions, open, reason},
};

/// Addresses and handles of the driver, which are as wide as pointers.
pub(super) type Handle = usize;

/// Sixty-four bytes that identify memory or an event to other processes.
pub type IpcHandle = [u8; 64];

functions! {
    /// The functions, under the names of their present versions.
    Functions {
        init: "cuInit"(c_uint);
        version: "cuDriverGetVersion"(*mut c_int);
        error_text: "cuGetErrorString"(c_int, *mut *const c_char);
        device_count: "cuDeviceGetCount"(*mut c_int);
        device: "cuDeviceGet"(*mut c_int, c_int);
        device_name: "cuDeviceGetName"(*mut c_char, c_int, c_int);
        device_uuid: "cuDeviceGetUuid"(*mut [u8; 16], c_int);
        can_access_peer: "cuDeviceCanAccessPeer"(*mut c_int, c_int, c_int);
        retain_context: "cuDevicePrimaryCtxRetain"(*mut Handle, c_int);
        set_context: "cuCtxSetCurrent"(Handle);
        capture_mode: "cuThreadExchangeStreamCaptureMode"(*mut c_int);
        stream_create: "cuStreamCreateWithPriority"(*mut Handle, c_uint, c_int);
        stream_destroy: "cuStreamDestroy_v2"(Handle);
        stream_wait: "cuStreamWaitEvent"(Handle, Handle, c_uint);
        stream_query: "cuStreamQuery"(Handle);
        stream_captures: "cuStreamIsCapturing"(Handle, *mut c_int);
        event_create: "cuEventCreate"(*mut Handle, c_uint);
        event_destroy: "cuEventDestroy_v2"(Handle);
        event_record: "cuEventRecord"(Handle, Handle);
        event_query: "cuEventQuery"(Handle);
        event_elapsed: "cuEventElapsedTime"(*mut f32, Handle, Handle);
        memory_alloc: "cuMemAlloc_v2"(*mut u64, usize);
        memory_free: "cuMemFree_v2"(u64);
        memory_alloc_async: "cuMemAllocAsync"(*mut u64, usize, Handle);
        memory_free_async: "cuMemFreeAsync"(u64, Handle);
        host_alloc: "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
        host_free: "cuMemFreeHost"(*mut c_void);
        copy: "cuMemcpyAsync"(u64, u64, usize, Handle);
        fill: "cuMemsetD8Async"(u64, u8, usize, Handle);
        memory_handle: "cuIpcGetMemHandle"(*mut IpcHandle, u64);
        memory_open: "cuIpcOpenMemHandle_v2"(*mut u64, IpcHandleByValue, c_uint);
        memory_close: "cuIpcCloseMemHandle"(u64);
        event_handle: "cuIpcGetEventHandle"(*mut IpcHandle, Handle);
        event_open: "cuIpcOpenEventHandle"(*mut Handle, IpcHandleByValue);
        module_load: "cuModuleLoadData"(*mut Handle, *const c_char);
        module_function: "cuModuleGetFunction"(*mut Handle, Handle, *const c_char);
        launch: "cuLaunchKernel"(
            Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void,
        );
    }
}

/// The handle as C passes a structure of this size.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct IpcHandleByValue(pub(super) IpcHandle);

/// What the driver says when something is not done yet.
const NOT_READY: c_int = 600;

/// The driver of this machine, ready for use.
pub struct Driver {
    pub(super) functions: Functions,
    version: i32,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Driver {
    /// Loads and initialises it: the file at `path`, or the system's. The first call of a process decides.
    pub fn load(path: Option<&Path>) -> Result<Arc<Driver>, CommError> {
        static DRIVER: OnceLock<Result<Arc<Driver>, CommError>> = OnceLock::new();
        DRIVER.get_or_init(|| Self::open(path).map(Arc::new)).clone()
    }

    fn open(path: Option<&Path>) -> Result<Driver, CommError> {
        let unavailable = |reason: String| CommError::Unavailable { what: "the CUDA driver".into(), reason };
        let library = open("the CUDA driver", path, &["libcuda.so.1", "libcuda.so"])?;
        // SAFETY: these are the driver's own types; a symbol keeps its type.
        let functions = unsafe { Functions::bind(library) }
            .map_err(|error| unavailable(format!("it is older than CUDA 11.8: {}", reason(&error))))?;
        let mut driver = Driver { functions, version: 0 };
        let (mut version, functions) = (0, &driver.functions);
        // SAFETY: it may be called at any time.
        driver.check("initialise", unsafe { (functions.init)(0) })?;
        // SAFETY: it writes one number.
        driver.check("ask for its version", unsafe { (functions.version)(&raw mut version) })?;
        driver.version = version;
        Ok(driver)
    }

    /// The CUDA version that it was made for, such as 12.4.
    pub fn version(&self) -> String {
        format!("{}.{}", self.version / 1000, self.version % 1000 / 10)
    }

    /// How many GPUs this process sees.
    pub fn count(&self) -> Result<u32, CommError> {
        let mut count = 0;
        // SAFETY: it writes one number.
        self.check("count devices", unsafe { (self.functions.device_count)(&raw mut count) })?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    /// An error unless the driver reports success.
    pub(super) fn check(&self, action: &str, code: c_int) -> Result<(), CommError> {
        if code == 0 {
            return Ok(());
        }
        let mut text = std::ptr::null();
        // SAFETY: it writes the address of a text that lives for ever, or nothing.
        let known = unsafe { (self.functions.error_text)(code, &raw mut text) } == 0 && !text.is_null();
        // SAFETY: as above.
        let text = if known { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() } else { "?".into() };
        Err(CommError::Device { problem: format!("the CUDA driver cannot {action}: {text} (error {code})") })
    }

    /// Whether something is done, from the driver's answer.
    pub(super) fn is_ready(&self, action: &str, code: c_int) -> Result<bool, CommError> {
        if code == NOT_READY { Ok(false) } else { self.check(action, code).map(|()| true) }
    }
}
