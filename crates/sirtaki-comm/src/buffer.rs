//! Memory in which collectives work without copying.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

use crate::{CommError, Rank, shm::Segment};

/// Zeroed memory from [`Communicator::buffer`](crate::Communicator::buffer), aligned to 64 bytes at least.
#[derive(Debug)]
pub struct Buffer {
    memory: Memory,
    length: usize,
}

#[derive(Debug)]
enum Memory {
    Private(Vec<Aligned>),
    Shared(Arc<SharedMemory>),
}

#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Aligned([u8; 64]);

/// One segment per rank of a host, each mapped by all of them.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    pub(crate) id: u64,
    pub(crate) rank: Rank,
    pub(crate) segments: Vec<Segment>,
}

impl SharedMemory {
    /// Where `bytes` lie in this rank's segment, if they do.
    pub(crate) fn offset_of(&self, bytes: &[u8]) -> Option<usize> {
        let start = self.segments[self.rank].start() as usize;
        let at = (bytes.as_ptr() as usize).checked_sub(start)?;
        (at + bytes.len() <= self.segments[self.rank].len()).then_some(at)
    }
}

impl Buffer {
    /// Memory of this process alone.
    pub(crate) fn private(length: usize) -> Result<Self, CommError> {
        let mut memory = Vec::new();
        let lines = length.div_ceil(size_of::<Aligned>());
        memory.try_reserve_exact(lines).map_err(|_| CommError::Unavailable {
            what: format!("a buffer of {length} bytes"),
            reason: "there is not enough memory".into(),
        })?;
        memory.resize(lines, Aligned([0; 64]));
        Ok(Self { memory: Memory::Private(memory), length })
    }

    pub(crate) fn shared(memory: Arc<SharedMemory>, length: usize) -> Self {
        Self { memory: Memory::Shared(memory), length }
    }

    fn start(&self) -> *mut u8 {
        match &self.memory {
            Memory::Private(lines) => lines.as_ptr().cast::<u8>().cast_mut(),
            Memory::Shared(memory) => memory.segments[memory.rank].start(),
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is at least this long and lives as long as the buffer. Other ranks touch it only during a
        // collective on it, which borrows the buffer mutably here.
        unsafe { std::slice::from_raw_parts(self.start(), self.length) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; nobody else in this process has a handle to this memory, and the private lines are ours.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.length) }
    }
}
