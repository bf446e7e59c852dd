//! Memory that processes of one host share. It has no name: others open it through `/proc`, by the process that made it
//! and its descriptor in that process, and it is freed when the last process that has it open exits.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    ptr::null_mut,
};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    mm::{MapFlags, ProtFlags, mmap, munmap},
};

/// What an [`Address`] begins with, so that other bytes are not taken for one.
const MAGIC: [u8; 8] = *b"stand-in";

/// Where another process finds a memory file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address {
    pid: u32,
    descriptor: i32,
    /// Distinguishes it from files that get the same descriptor later.
    inode: u64,
    bytes: u64,
}

impl Address {
    /// Writes it to the beginning of these bytes.
    pub(crate) fn write(&self, to: &mut [u8]) {
        to[..8].copy_from_slice(&MAGIC);
        to[8..12].copy_from_slice(&self.pid.to_ne_bytes());
        to[12..16].copy_from_slice(&self.descriptor.to_ne_bytes());
        to[16..24].copy_from_slice(&self.inode.to_ne_bytes());
        to[24..32].copy_from_slice(&self.bytes.to_ne_bytes());
    }

    /// Reads what [`Address::write`] wrote.
    pub(crate) fn read(from: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_ne_bytes(from.get(at..at + 8)?.try_into().ok()?));
        let half = |at: usize| Some(u32::from_ne_bytes(from.get(at..at + 4)?.try_into().ok()?));
        (from.get(..8)? == MAGIC).then_some(())?;
        Some(Self { pid: half(8)?, descriptor: half(12)? as i32, inode: word(16)?, bytes: word(24)? })
    }

    /// Whether this process made it.
    pub(crate) fn is_own(&self) -> bool {
        self.pid == std::process::id()
    }

    /// How long the file was when the address was made.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Opens the file.
    pub(crate) fn open(&self) -> io::Result<File> {
        let file =
            OpenOptions::new().read(true).write(true).open(format!("/proc/{}/fd/{}", self.pid, self.descriptor))?;
        let same = file.metadata()?.ino() == self.inode;
        if same { Ok(file) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

/// A new file in memory.
pub(crate) fn create(bytes: usize) -> io::Result<File> {
    let file = File::from(memfd_create("stand-in", MemfdFlags::CLOEXEC)?);
    file.set_len(bytes as u64)?;
    Ok(file)
}

/// Where other processes find the file while this process has it open.
pub(crate) fn address(file: &File) -> io::Result<Address> {
    let about = file.metadata()?;
    let (pid, descriptor) = (std::process::id(), file.as_raw_fd());
    Ok(Address { pid, descriptor, inode: about.ino(), bytes: about.len() })
}

/// A file in memory, mapped into this process until the value is dropped.
pub(crate) struct Map {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: it is plain memory; its users order their accesses.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the first `bytes` bytes of a file, which must have at least that many.
    pub(crate) fn new(file: &File, bytes: usize) -> io::Result<Self> {
        // SAFETY: the system chooses an unused place.
        let start =
            unsafe { mmap(null_mut(), bytes.max(1), ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)? };
        Ok(Self { start: start.cast(), bytes })
    }

    /// Where it begins.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    /// How long it is.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: it was mapped here and is not used any more.
        let _ = unsafe { munmap(self.start.cast(), self.bytes.max(1)) };
    }
}
