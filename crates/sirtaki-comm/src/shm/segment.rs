//! A piece of anonymous memory mapped by several processes of one host.
//!
//! It has no name in any file system: the creator makes a memory file and tells the others its process id and
//! descriptor, and they open it through `/proc`. The kernel lets only the same user do that, so no socket, permission
//! or clean-up is needed, and nothing can be left behind when processes are killed.
//!
//! Its size is sealed: reading memory beyond the end of a file that was shortened would kill the reader.

use std::{
    fs::{File, OpenOptions},
    os::fd::AsRawFd,
};

use memmap2::{MmapOptions, MmapRaw};
use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create},
    mm::{MapFlags, ProtFlags, mmap_anonymous},
};

use crate::CommError;

/// What is no longer allowed with the file, even for its creator.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Shared memory, zeroed when created. Unmapped when the last handle is dropped.
#[derive(Debug)]
pub struct Segment {
    map: MmapRaw,
    file: File,
}

impl Segment {
    /// New memory of `bytes` bytes.
    pub fn create(bytes: usize) -> Result<Self, CommError> {
        let what = |error| CommError::io(format!("cannot create {bytes} bytes of shared memory"), error);
        let file =
            memfd_create("sirtaki", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(|e| what(e.into()))?;
        let file = File::from(file);
        file.set_len(bytes as u64).map_err(what)?;
        // Taking the pages now turns a full memory into an error here instead of a SIGBUS later.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes as u64)
            .map_err(|e| what(e.into()))?;
        fcntl_add_seals(&file, SEALS).map_err(|e| what(e.into()))?;
        Self::map(file, bytes).map_err(what)
    }

    /// How another process of this host and user can open it: see [`Segment::open`].
    pub fn address(&self) -> (u32, i32) {
        (std::process::id(), self.file.as_raw_fd())
    }

    /// The memory that process `pid` created as descriptor `fd`, which must have `bytes` bytes.
    pub fn open(pid: u32, fd: i32, bytes: usize) -> Result<Self, CommError> {
        let path = format!("/proc/{pid}/fd/{fd}");
        let what = |error| CommError::io(format!("cannot open the shared memory of process {pid}"), error);
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(what)?;
        let length = file.metadata().map_err(what)?.len();
        if length != bytes as u64 {
            let problem = format!("process {pid} shares {length} bytes of memory instead of {bytes}");
            return Err(CommError::Invalid { problem });
        }
        if !fcntl_get_seals(&file).map_err(|e| what(e.into()))?.contains(SealFlags::SHRINK) {
            let problem = format!("process {pid} shares memory that it can take away while it is in use");
            return Err(CommError::Invalid { problem });
        }
        Self::map(file, bytes).map_err(what)
    }

    fn map(file: File, bytes: usize) -> std::io::Result<Self> {
        let map = MmapOptions::new().len(bytes).populate().map_raw(&file)?;
        Ok(Self { map, file })
    }

    /// Where it starts in this process; aligned to a page.
    pub fn start(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    /// Puts zeroed memory of this process alone at the segment's addresses. Other processes keep the shared memory, and
    /// nothing they do to it is visible here any more.
    pub(crate) fn detach(&self) -> std::io::Result<()> {
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the range is exactly our own mapping, which is replaced; it is unmapped as before.
        let map = unsafe { mmap_anonymous(self.start().cast(), self.len(), ProtFlags::READ | ProtFlags::WRITE, flags) };
        map.map(drop).map_err(Into::into)
    }

    /// How long it is.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_keeps_its_size() {
        let segment = Segment::create(8192).unwrap();
        let (pid, fd) = segment.address();
        let again = Segment::open(pid, fd, 8192).unwrap();
        for file in [&segment.file, &again.file] {
            assert!(file.set_len(4096).is_err(), "it could be shortened");
            assert!(file.set_len(16384).is_err(), "it could be lengthened");
        }
    }

    #[test]
    fn memory_that_can_be_taken_away_is_refused() {
        let file = File::from(memfd_create("other", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap());
        file.set_len(4096).unwrap();
        let error = Segment::open(std::process::id(), file.as_raw_fd(), 4096).unwrap_err();
        assert!(error.to_string().contains("can take away"), "{error}");
    }
}
