//! Memory of the devices and pinned memory: ordinary memory. New memory is filled with a pattern that is not a
//! plausible number, and with another one before it is freed, so that tests notice reads that come too early or too
//! late.

use std::{
    alloc::{Layout, alloc, dealloc},
    collections::BTreeMap,
    ffi::{c_int, c_uint, c_void},
    fs::File,
    sync::Mutex,
};

use crate::{
    device, lock, setting,
    shared::{self, Address, Map},
    status::{INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, NO_PEER_ACCESS, OUT_OF_MEMORY, SUCCESS, give},
    stream,
};

/// What new memory holds.
const NEW: u8 = 0xa5;
/// What freed memory holds.
const FREED: u8 = 0xdd;
/// As strict as the driver.
const ALIGNMENT: usize = 512;

/// Where a handle says to which device memory belongs.
const DEVICE: std::ops::Range<usize> = 48..48 + size_of::<usize>();

/// All memory that was handed out, by address.
static BLOCKS: Mutex<BTreeMap<u64, Block>> = Mutex::new(BTreeMap::new());

/// The structure as C passes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct IpcHandle(pub(crate) [u8; 64]);

enum Block {
    /// In a file, so that it can be passed to other processes.
    Shareable(Map, File),
    /// Allocated in the order of a stream.
    Ordered(Heap),
    /// Of the host.
    Pinned(Heap),
    /// Of another process.
    Opened(Map),
}

impl Block {
    fn start(&self) -> u64 {
        match self {
            Block::Shareable(map, _) | Block::Opened(map) => map.start() as u64,
            Block::Ordered(heap) | Block::Pinned(heap) => heap.start as u64,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Block::Shareable(map, _) | Block::Opened(map) => map.bytes(),
            Block::Ordered(heap) | Block::Pinned(heap) => heap.layout.size(),
        }
    }
}

/// Memory of this process alone.
struct Heap {
    start: *mut u8,
    layout: Layout,
}

// SAFETY: it is plain memory.
unsafe impl Send for Heap {}

impl Heap {
    fn new(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes, ALIGNMENT).ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the size is not zero.
        let start = unsafe { alloc(layout) };
        if start.is_null() {
            return None;
        }
        // SAFETY: this many bytes were just reserved.
        unsafe { start.write_bytes(NEW, bytes) };
        Some(Self { start, layout })
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: it was allocated here with this layout, and is not used any more.
        unsafe {
            self.start.write_bytes(FREED, self.layout.size());
            dealloc(self.start, self.layout);
        }
    }
}

/// Whether this range lies in memory that was handed out; `None` for an unknown address.
pub(crate) fn fits(address: u64, bytes: usize) -> Option<bool> {
    let blocks = lock(&BLOCKS);
    let (start, block) = blocks.range(..=address).next_back()?;
    let offset = address - start;
    (offset < block.bytes() as u64).then(|| bytes as u64 <= block.bytes() as u64 - offset)
}

/// Hands a block out.
fn keep(block: Option<Block>) -> Result<u64, c_int> {
    if device::check_context() != SUCCESS {
        return Err(device::check_context());
    }
    let block = block.ok_or(OUT_OF_MEMORY)?;
    let address = block.start();
    lock(&BLOCKS).insert(address, block);
    Ok(address)
}

/// Takes back the block that begins there, if it is of the right kind.
fn take(address: u64, kind: impl FnOnce(&Block) -> bool) -> Option<Block> {
    let mut blocks = lock(&BLOCKS);
    blocks.get(&address).is_some_and(kind).then(|| blocks.remove(&address)).flatten()
}

fn is_device(block: &Block) -> bool {
    matches!(block, Block::Shareable(..) | Block::Ordered(_))
}

#[unsafe(export_name = "cuMemAlloc_v2")]
unsafe extern "C" fn allocate(to: *mut u64, bytes: usize) -> c_int {
    if bytes == 0 {
        return INVALID_VALUE;
    }
    let made = shared::create(bytes).and_then(|file| Ok(Block::Shareable(Map::new(&file, bytes)?, file)));
    if let Ok(block) = &made {
        // SAFETY: this many bytes were just reserved.
        unsafe { (block.start() as *mut u8).write_bytes(NEW, bytes) };
    }
    // SAFETY: the caller wants an address there.
    keep(made.ok()).map_or_else(|error| error, |address| unsafe { give(to, address) })
}

#[unsafe(export_name = "cuMemFree_v2")]
extern "C" fn free(address: u64) -> c_int {
    let Some(block) = take(address, is_device) else { return INVALID_VALUE };
    stream::finish_all();
    drop(block);
    SUCCESS
}

#[unsafe(export_name = "cuMemAllocAsync")]
unsafe extern "C" fn allocate_on(to: *mut u64, bytes: usize, stream: usize) -> c_int {
    if bytes == 0 {
        return INVALID_VALUE;
    }
    if stream::find(stream).is_none() {
        return INVALID_HANDLE;
    }
    // SAFETY: the caller wants an address there.
    keep(Heap::new(bytes).map(Block::Ordered)).map_or_else(|error| error, |address| unsafe { give(to, address) })
}

#[unsafe(export_name = "cuMemFreeAsync")]
extern "C" fn free_on(address: u64, stream: usize) -> c_int {
    let Some(stream) = stream::find(stream) else { return INVALID_HANDLE };
    let Some(block) = take(address, is_device) else { return INVALID_VALUE };
    stream.push(move || drop(block));
    SUCCESS
}

#[unsafe(export_name = "cuMemHostAlloc")]
unsafe extern "C" fn allocate_pinned(to: *mut *mut c_void, bytes: usize, _flags: c_uint) -> c_int {
    if bytes == 0 {
        return INVALID_VALUE;
    }
    let kept = keep(Heap::new(bytes).map(Block::Pinned));
    // SAFETY: the caller wants an address there.
    kept.map_or_else(|error| error, |address| unsafe { give(to, address as *mut c_void) })
}

#[unsafe(export_name = "cuMemFreeHost")]
extern "C" fn free_pinned(address: *mut c_void) -> c_int {
    let Some(block) = take(address as u64, |block| matches!(block, Block::Pinned(_))) else { return INVALID_VALUE };
    stream::finish_all();
    drop(block);
    SUCCESS
}

#[unsafe(export_name = "cuMemcpyAsync")]
extern "C" fn copy(to: u64, from: u64, bytes: usize, stream: usize) -> c_int {
    if [to, from].iter().any(|address| *address == 0 || fits(*address, bytes) == Some(false)) {
        return INVALID_VALUE;
    }
    let Some(stream) = stream::find(stream) else { return INVALID_HANDLE };
    // SAFETY: the caller keeps both alive until the stream is past this.
    stream.push(move || unsafe { (from as *const u8).copy_to(to as *mut u8, bytes) });
    SUCCESS
}

#[unsafe(export_name = "cuMemsetD8Async")]
extern "C" fn fill(address: u64, value: u8, bytes: usize, stream: usize) -> c_int {
    if fits(address, bytes) != Some(true) {
        return INVALID_VALUE;
    }
    let Some(stream) = stream::find(stream) else { return INVALID_HANDLE };
    // SAFETY: the caller keeps it alive until the stream is past this.
    stream.push(move || unsafe { (address as *mut u8).write_bytes(value, bytes) });
    SUCCESS
}

#[unsafe(export_name = "cuIpcGetMemHandle")]
unsafe extern "C" fn share(to: *mut IpcHandle, address: u64) -> c_int {
    let blocks = lock(&BLOCKS);
    let Some(Block::Shareable(_, file)) = blocks.get(&address) else { return INVALID_VALUE };
    let Ok(address) = shared::address(file) else { return INVALID_VALUE };
    let mut handle = IpcHandle([0; 64]);
    address.write(&mut handle.0);
    handle.0[DEVICE].copy_from_slice(&device::context().to_ne_bytes());
    // SAFETY: the caller wants a handle there.
    unsafe { give(to, handle) }
}

#[unsafe(export_name = "cuIpcOpenMemHandle_v2")]
unsafe extern "C" fn open(to: *mut u64, handle: IpcHandle, _flags: c_uint) -> c_int {
    // As with the driver, because this process already has the memory.
    if Address::read(&handle.0).is_some_and(|address| address.is_own()) {
        return INVALID_CONTEXT;
    }
    let elsewhere = handle.0[DEVICE] != device::context().to_ne_bytes();
    if elsewhere && setting("STAND_IN_PEERS") == Some(0) {
        return NO_PEER_ACCESS;
    }
    let map = |address: Address| Map::new(&address.open().ok()?, address.bytes()).ok();
    let Some(map) = Address::read(&handle.0).and_then(map) else { return INVALID_VALUE };
    // SAFETY: the caller wants an address there.
    keep(Some(Block::Opened(map))).map_or_else(|error| error, |address| unsafe { give(to, address) })
}

#[unsafe(export_name = "cuIpcCloseMemHandle")]
extern "C" fn close(address: u64) -> c_int {
    let Some(block) = take(address, |block| matches!(block, Block::Opened(_))) else { return INVALID_VALUE };
    stream::finish_all();
    drop(block);
    SUCCESS
}
