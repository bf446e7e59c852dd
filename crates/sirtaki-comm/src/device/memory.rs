//! Memory of a GPU, and memory of the host that a GPU copies fast.

use std::{
    ffi::c_void,
    fmt,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use super::{
    View,
    driver::{IpcHandle, IpcHandleByValue},
    gpu::{Gpu, Queue, Stream},
};
use crate::{CommError, DType};

/// Gives other GPUs access to another process's memory when it is opened.
const WITH_PEERS: u32 = 1;
/// Pinned memory that all contexts know.
const PORTABLE: u32 = 1;

/// Bytes in the memory of a GPU.
pub struct DeviceMemory {
    gpu: Arc<Gpu>,
    address: u64,
    bytes: usize,
    kind: Kind,
}

enum Kind {
    /// Freed directly, once the device has finished everything.
    Plain,
    /// Freed in the order of a stream.
    Ordered(Arc<Queue>),
    /// Another process's.
    Opened,
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of {:?}", self.bytes, self.gpu)
    }
}

impl DeviceMemory {
    /// Memory that can be shared with other processes.
    pub fn new(gpu: &Arc<Gpu>, bytes: usize) -> Result<Self, CommError> {
        gpu.enter()?;
        let mut address = 0;
        // SAFETY: it writes one address.
        let code = unsafe { (gpu.driver.functions.memory_alloc)(&raw mut address, bytes.max(1)) };
        gpu.driver.check(&format!("reserve {bytes} bytes on cuda:{}", gpu.number()), code)?;
        Ok(Self { gpu: gpu.clone(), address, bytes, kind: Kind::Plain })
    }

    /// Memory for work on this stream. Nothing waits for it, and it is freed in the order of the same stream unless
    /// [`DeviceMemory::free_on`] names another.
    pub fn on_stream(stream: &Stream, bytes: usize) -> Result<Self, CommError> {
        let gpu = stream.gpu();
        gpu.enter()?;
        let mut address = 0;
        let functions = &gpu.driver.functions;
        // SAFETY: it writes one address.
        let code = unsafe { (functions.memory_alloc_async)(&raw mut address, bytes.max(1), stream.handle()) };
        if code != 0 {
            // Some virtual machines do not support it.
            return Self::new(gpu, bytes);
        }
        Ok(Self { gpu: gpu.clone(), address, bytes, kind: Kind::Ordered(stream.queue()) })
    }

    /// The handle by which other processes open it; only for memory of [`DeviceMemory::new`].
    pub fn share(&self) -> Result<IpcHandle, CommError> {
        self.gpu.enter()?;
        let mut shared = [0; 64];
        // SAFETY: it writes one handle.
        let code = unsafe { (self.gpu.driver.functions.memory_handle)(&raw mut shared, self.address) };
        self.gpu.driver.check("share memory with other processes", code)?;
        Ok(shared)
    }

    /// Memory of another process, which says how many bytes there are.
    pub fn open(gpu: &Arc<Gpu>, shared: IpcHandle, bytes: usize) -> Result<Self, CommError> {
        gpu.enter()?;
        let mut address = 0;
        // SAFETY: it writes one address.
        let code =
            unsafe { (gpu.driver.functions.memory_open)(&raw mut address, IpcHandleByValue(shared), WITH_PEERS) };
        gpu.driver.check("open the memory of another process", code)?;
        Ok(Self { gpu: gpu.clone(), address, bytes, kind: Kind::Opened })
    }

    /// Where it is.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The elements that begin `offset` bytes after its start.
    pub fn view(&self, offset: usize, dtype: DType, elements: usize) -> Result<View, CommError> {
        let end = elements.checked_mul(dtype.size()).and_then(|bytes| bytes.checked_add(offset));
        if end.is_none_or(|end| end > self.bytes) {
            let problem = format!("{elements} {} at {offset} do not fit into {self:?}", dtype.name());
            return Err(CommError::Invalid { problem });
        }
        // SAFETY: it is inside this memory. That the memory lives long enough is up to the work that is queued, which is
        // why it is freed in the order of a stream.
        unsafe { View::new(self.address + offset as u64, dtype, elements) }
    }

    /// Has it freed in the order of another stream.
    pub fn free_on(&mut self, stream: &Stream) {
        if let Kind::Ordered(queue) = &mut self.kind {
            *queue = stream.queue();
        }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.gpu.enter().is_err() {
            return;
        }
        let functions = &self.gpu.driver.functions;
        // SAFETY: it is ours, and the driver waits for work that uses it, or frees in the order of the stream.
        unsafe {
            match &self.kind {
                Kind::Plain => (functions.memory_free)(self.address),
                Kind::Ordered(queue) => (functions.memory_free_async)(self.address, queue.handle),
                Kind::Opened => (functions.memory_close)(self.address),
            }
        };
    }
}

/// Memory of the host that GPUs copy from and to directly.
pub struct PinnedMemory {
    gpu: Arc<Gpu>,
    start: *mut u8,
    bytes: usize,
}

// SAFETY: it is plain memory with one owner.
unsafe impl Send for PinnedMemory {}

impl fmt::Debug for PinnedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pinned bytes", self.bytes)
    }
}

impl PinnedMemory {
    /// Zeroed memory.
    pub fn new(gpu: &Arc<Gpu>, bytes: usize) -> Result<Self, CommError> {
        gpu.enter()?;
        let mut start: *mut c_void = std::ptr::null_mut();
        // SAFETY: it writes one address.
        let code = unsafe { (gpu.driver.functions.host_alloc)(&raw mut start, bytes.max(1), PORTABLE) };
        gpu.driver.check(&format!("pin {bytes} bytes of the host's memory"), code)?;
        let start = start.cast::<u8>();
        // SAFETY: this many bytes were just allocated.
        unsafe { start.write_bytes(0, bytes) };
        Ok(Self { gpu: gpu.clone(), start, bytes })
    }

    /// Has a stream fill the bytes from `offset` on with elements of the device. They must not be touched until it has.
    pub fn copy_from(&mut self, offset: usize, from: View, stream: &Stream) -> Result<(), CommError> {
        self.check(offset, from.bytes())?;
        copy(self.start as u64 + offset as u64, from.address(), from.bytes(), stream)
    }

    /// Has a stream copy the bytes from `offset` on to the device. They must not be touched until it has.
    pub fn copy_to(&self, offset: usize, to: View, stream: &Stream) -> Result<(), CommError> {
        self.check(offset, to.bytes())?;
        copy(to.address(), self.start as u64 + offset as u64, to.bytes(), stream)
    }

    fn check(&self, offset: usize, bytes: usize) -> Result<(), CommError> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err(CommError::Invalid { problem: format!("{bytes} bytes at {offset} do not fit into {self:?}") });
        }
        Ok(())
    }
}

impl Deref for PinnedMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is ours; streams that fill it are waited for before it is read.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }
}

impl DerefMut for PinnedMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: it is ours, and the driver waits for copies that use it.
            unsafe { (self.gpu.driver.functions.host_free)(self.start.cast()) };
        }
    }
}

impl Stream {
    /// Copies elements within the device; both views must have the same number of bytes.
    pub fn copy(&self, to: View, from: View) -> Result<(), CommError> {
        if to.bytes() != from.bytes() {
            let problem = format!("{} bytes cannot be copied to {}", from.bytes(), to.bytes());
            return Err(CommError::Invalid { problem });
        }
        copy(to.address(), from.address(), from.bytes(), self)
    }

    /// Fills with zeros.
    pub fn clear(&self, view: View) -> Result<(), CommError> {
        if view.is_empty() {
            return Ok(());
        }
        self.gpu().enter()?;
        let driver = &self.gpu().driver;
        // SAFETY: a view is memory that may be written.
        driver.check("clear memory", unsafe { (driver.functions.fill)(view.address(), 0, view.bytes(), self.handle()) })
    }
}

fn copy(to: u64, from: u64, bytes: usize, stream: &Stream) -> Result<(), CommError> {
    if bytes == 0 {
        return Ok(());
    }
    stream.gpu().enter()?;
    let driver = &stream.gpu().driver;
    // SAFETY: both are memory of this many bytes, by the types they come from.
    driver.check("copy memory", unsafe { (driver.functions.copy)(to, from, bytes, stream.handle()) })
}
