//! NCCL, loaded at run time: the one that the process has already loaded (PyTorch's, usually), or one of the system's.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use super::driver::Handle;
use crate::{
    CommError, DType,
    library::{functions, open, path_of, reason},
};

/// The identity that the ranks of a communicator share before they are connected.
pub type UniqueId = [u8; 128];

/// The structure as C passes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct UniqueIdByValue(pub(super) UniqueId);

/// The first version with a configuration and with errors that can be queried.
const OLDEST: c_int = 21400;
/// NCCL's code for success.
const SUCCESS: c_int = 0;

functions! {
    /// The functions, all of which the oldest version has.
    Functions {
        unique_id: "ncclGetUniqueId"(*mut UniqueIdByValue);
        connect: "ncclCommInitRankConfig"(*mut Handle, c_int, UniqueIdByValue, c_int, *mut Config);
        state: "ncclCommGetAsyncError"(Handle, *mut c_int);
        abort: "ncclCommAbort"(Handle);
        destroy: "ncclCommDestroy"(Handle);
        group_start: "ncclGroupStart"();
        group_end: "ncclGroupEnd"();
        all_reduce: "ncclAllReduce"(u64, u64, usize, c_int, c_int, Handle, Handle);
        broadcast: "ncclBroadcast"(u64, u64, usize, c_int, c_int, Handle, Handle);
        all_gather: "ncclAllGather"(u64, u64, usize, c_int, Handle, Handle);
        reduce_scatter: "ncclReduceScatter"(u64, u64, usize, c_int, c_int, Handle, Handle);
        reduce: "ncclReduce"(u64, u64, usize, c_int, c_int, c_int, Handle, Handle);
        send: "ncclSend"(u64, usize, c_int, c_int, Handle, Handle);
        receive: "ncclRecv"(u64, usize, c_int, c_int, Handle, Handle);
        scaled_sum: "ncclRedOpCreatePreMulSum"(*mut c_int, *const c_void, c_int, c_int, Handle);
        drop_scaled_sum: "ncclRedOpDestroy"(c_int, Handle);
    }
}

/// The beginning of NCCL's configuration, as in the oldest version. Later versions use defaults for the rest.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
}

impl Config {
    /// A communicator whose calls return once their work is queued.
    pub(super) fn new() -> Self {
        Self { size: size_of::<Self>(), magic: 0xcafe_beef, version: OLDEST as u32, blocking: 1 }
    }
}

/// The library, ready for use.
pub struct Nccl {
    pub(super) functions: Functions,
    error_text: unsafe extern "C" fn(c_int) -> *const c_char,
    /// The last error in words; only newer versions have it.
    last_error: Option<unsafe extern "C" fn(Handle) -> *const c_char>,
    version: c_int,
    path: PathBuf,
}

impl std::fmt::Debug for Nccl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NCCL {} at {}", self.version(), self.path.display())
    }
}

impl Nccl {
    /// Loads it: the file at `path`, or what the process or the system has. The first call of a process decides.
    pub fn load(path: Option<&Path>) -> Result<Arc<Nccl>, CommError> {
        static NCCL: OnceLock<Result<Arc<Nccl>, CommError>> = OnceLock::new();
        NCCL.get_or_init(|| Self::open(path).map(Arc::new)).clone()
    }

    fn open(path: Option<&Path>) -> Result<Nccl, CommError> {
        let library = open("NCCL", path, &["libnccl.so.2", "libnccl.so"])?;
        let path = path_of(library, "ncclGetVersion").or_else(|| path.map(Into::into)).unwrap_or_default();
        let what = format!("NCCL at {}", path.display());
        let unavailable = |reason: String| CommError::Unavailable { what: what.clone(), reason };
        type Version = unsafe extern "C" fn(*mut c_int) -> c_int;
        let mut version = 0;
        // SAFETY: the type of this function is the same in all versions, and it writes one number.
        let known = unsafe { library.get::<Version>(b"ncclGetVersion") }
            .is_ok_and(|ask| unsafe { ask(&raw mut version) } == SUCCESS);
        if !known {
            return Err(unavailable("it does not say which version it is".into()));
        }
        if version < OLDEST {
            let reason = format!("it is version {}, and {} or later is needed", words(version), words(OLDEST));
            return Err(unavailable(reason));
        }
        // SAFETY: these are NCCL's own types; a symbol keeps its type.
        unsafe {
            Ok(Nccl {
                functions: Functions::bind(library).map_err(|error| unavailable(reason(&error)))?,
                error_text: *library.get(b"ncclGetErrorString").map_err(|error| unavailable(reason(&error)))?,
                last_error: library.get(b"ncclGetLastError").ok().map(|symbol| *symbol),
                version,
                path: path.clone(),
            })
        }
    }

    /// Its version, such as `2.28.9`.
    pub fn version(&self) -> String {
        words(self.version)
    }

    /// The same as one number, as NCCL itself writes it, such as 22809.
    pub fn version_code(&self) -> i32 {
        self.version
    }

    /// The file it was loaded from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A new identity for a communicator; one rank makes it, and all of them need it.
    pub fn unique_id(&self) -> Result<UniqueId, CommError> {
        let mut id = UniqueIdByValue([0; 128]);
        // SAFETY: it writes one identity.
        self.check("make an identity", unsafe { (self.functions.unique_id)(&raw mut id) })?;
        Ok(id.0)
    }

    /// An error unless NCCL reports success.
    pub(super) fn check(&self, action: &str, code: c_int) -> Result<(), CommError> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: it returns a text that lives for ever.
        let mut text = unsafe { CStr::from_ptr((self.error_text)(code)) }.to_string_lossy().into_owned();
        if let Some(ask) = self.last_error {
            // SAFETY: it takes any communicator or none, and returns a text that lives until the next error.
            let last = unsafe { ask(0) };
            if !last.is_null() {
                // SAFETY: as above.
                let last = unsafe { CStr::from_ptr(last) }.to_string_lossy();
                let last = last.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().trim();
                text = if last.is_empty() { text } else { format!("{text}: {last}") };
            }
        }
        Err(CommError::Device { problem: format!("NCCL {} cannot {action}: {text}", self.version()) })
    }
}

/// A version number in words.
fn words(version: c_int) -> String {
    format!("{}.{}.{}", version / 10000, version / 100 % 100, version % 100)
}

/// NCCL's code for an element type. Truth values are bytes there, whose maximum and minimum are "any" and "all".
pub(super) fn code(dtype: DType) -> c_int {
    match dtype {
        DType::I8 => 0,
        DType::U8 | DType::Bool => 1,
        DType::I32 => 2,
        DType::I64 => 4,
        DType::F16 => 6,
        DType::F32 => 7,
        DType::F64 => 8,
        DType::BF16 => 9,
    }
}
