//! NVIDIA's management library, loaded at run time: how much of a GPU is in use, and how GPUs are connected. It comes
//! with the driver; in containers it is often missing, and then nothing is known.
//!
//! Its figures are of the whole device, whichever processes use it.

use std::{
    ffi::{CString, c_char, c_int, c_uint},
    path::Path,
    sync::{Arc, OnceLock},
};

use super::driver::Handle;
use crate::{
    CommError,
    library::{functions, open, reason},
};

functions! {
    /// The functions, all of which the driver of CUDA 11.8 has.
    Functions {
        init: "nvmlInit_v2"();
        by_uuid: "nvmlDeviceGetHandleByUUID"(*const c_char, *mut Handle);
        memory: "nvmlDeviceGetMemoryInfo"(Handle, *mut [u64; 3]);
        utilisation: "nvmlDeviceGetUtilizationRates"(Handle, *mut [c_uint; 2]);
        peer_status: "nvmlDeviceGetP2PStatus"(Handle, Handle, c_int, *mut c_int);
    }
}

/// What two GPUs may be able to do, as the library numbers it.
const READ: c_int = 0;
const NVLINK: c_int = 2;

/// How much of a GPU is in use, by all processes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuUsage {
    /// Bytes of its memory.
    pub memory: u64,
    /// Of how many.
    pub total: u64,
    /// Percent of the last moments in which it did anything, if it says so.
    pub busy: Option<u32>,
}

/// What lies between two GPUs of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GpuLink {
    /// NVIDIA's own connection.
    NvLink,
    /// The bus, without a detour through the host's memory.
    PciePeer,
    /// The bus and the host's memory.
    Pcie,
}

impl GpuLink {
    /// Its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            GpuLink::NvLink => "NVLink",
            GpuLink::PciePeer => "PCIe",
            GpuLink::Pcie => "PCIe without peer access",
        }
    }
}

/// The library, ready for use.
pub struct Nvml {
    functions: Functions,
}

impl std::fmt::Debug for Nvml {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nvml").finish_non_exhaustive()
    }
}

impl Nvml {
    /// Loads it: the file at `path`, or the system's. The first call of a process decides.
    pub fn load(path: Option<&Path>) -> Result<Arc<Nvml>, CommError> {
        static NVML: OnceLock<Result<Arc<Nvml>, CommError>> = OnceLock::new();
        NVML.get_or_init(|| Self::open(path).map(Arc::new)).clone()
    }

    fn open(path: Option<&Path>) -> Result<Nvml, CommError> {
        let unavailable = |reason: String| CommError::Unavailable { what: "NVML".into(), reason };
        let library = open("NVML", path, &["libnvidia-ml.so.1", "libnvidia-ml.so"])?;
        // SAFETY: these are the library's own types; a symbol keeps its type.
        let functions = unsafe { Functions::bind(library) }.map_err(|error| unavailable(reason(&error)))?;
        // SAFETY: it may be called at any time, and often.
        match unsafe { (functions.init)() } {
            0 => Ok(Nvml { functions }),
            code => Err(unavailable(format!("it cannot be initialised (error {code})"))),
        }
    }

    /// The GPU that has this identity for the CUDA driver too.
    pub fn device(self: &Arc<Self>, uuid: [u8; 16]) -> Option<NvmlDevice> {
        let name = CString::new(written(uuid)).ok()?;
        let mut handle = 0;
        // SAFETY: a text goes in, one handle comes out.
        let code = unsafe { (self.functions.by_uuid)(name.as_ptr(), &raw mut handle) };
        (code == 0).then(|| NvmlDevice { nvml: self.clone(), handle })
    }
}

/// A GPU as this library knows it.
#[derive(Debug, Clone)]
pub struct NvmlDevice {
    nvml: Arc<Nvml>,
    handle: Handle,
}

impl NvmlDevice {
    /// How much of it is in use now.
    pub fn usage(&self) -> Option<GpuUsage> {
        let (mut memory, mut rates) = ([0; 3], [0; 2]);
        let functions = &self.nvml.functions;
        // SAFETY: the handle is the library's, and three and two numbers are written: total, free, used; GPU, memory.
        let codes = unsafe {
            ((functions.memory)(self.handle, &raw mut memory), (functions.utilisation)(self.handle, &raw mut rates))
        };
        let [total, _, used] = memory;
        (codes.0 == 0).then(|| GpuUsage { memory: used, total, busy: (codes.1 == 0).then_some(rates[0].min(100)) })
    }

    /// What lies between it and another one of its host.
    pub fn link(&self, other: &NvmlDevice) -> GpuLink {
        let can = |what: c_int| {
            let mut status = -1;
            // SAFETY: both handles are the library's, and one number is written.
            let code = unsafe { (self.nvml.functions.peer_status)(self.handle, other.handle, what, &raw mut status) };
            code == 0 && status == 0
        };
        if can(NVLINK) {
            GpuLink::NvLink
        } else if can(READ) {
            GpuLink::PciePeer
        } else {
            GpuLink::Pcie
        }
    }
}

/// An identity as this library writes it.
fn written(uuid: [u8; 16]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let [a, b, c, d, e] = [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]].map(hex);
    format!("GPU-{a}-{b}-{c}-{d}-{e}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_written_as_nvidia_smi_does() {
        let uuid = std::array::from_fn(|index| index as u8 + 0xf0);
        assert_eq!(written(uuid), "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff");
    }
}
