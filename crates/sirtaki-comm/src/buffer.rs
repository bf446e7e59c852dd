//! Memory in which collectives work without copying.

use std::{
    ops::{Deref, DerefMut},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytemuck::{Pod, Zeroable};

use crate::{CommError, Rank, shm::Segment};

/// Zeroed memory from [`Communicator::buffer`](crate::Communicator::buffer), aligned to 64 bytes at least.
///
/// Where ranks share a host, they work in each other's buffers. A rank that gives up an all-reduce on one, for example
/// because another rank is too late, takes its own back: from then on it is memory of this process alone, filled with
/// zeros, and what the late rank may still write does not arrive. (Should the system not allow even that, the buffer is
/// empty from then on.)
#[derive(Debug)]
pub struct Buffer {
    memory: Memory,
    length: usize,
}

#[derive(Debug)]
enum Memory {
    Private(Vec<Line>),
    Shared(Arc<SharedMemory>),
}

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// One segment per rank of a host, each mapped by all of them.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    pub(crate) id: u64,
    rank: Rank,
    segments: Vec<Segment>,
    /// Others may still write to my own segment, and it could not be detached: this process must not look at it again.
    lost: AtomicBool,
}

impl SharedMemory {
    /// The memory of `rank`, with the segments of all ranks.
    pub(crate) fn new(id: u64, rank: Rank, segments: Vec<Segment>) -> Self {
        Self { id, rank, segments, lost: AtomicBool::new(false) }
    }

    /// The segments of all ranks. While ranks are in a collective, they decide who touches what.
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Where `bytes` lie in this rank's segment, if they do.
    pub(crate) fn offset_of(&self, bytes: &[u8]) -> Option<usize> {
        let start = self.segments[self.rank].start() as usize;
        let at = (bytes.as_ptr() as usize).checked_sub(start)?;
        (at + bytes.len() <= self.segments[self.rank].len()).then_some(at)
    }

    /// Ends the sharing of this rank's segment, which others may still write to.
    pub(crate) fn detach(&self) {
        if self.segments[self.rank].detach().is_err() {
            self.lost.store(true, Ordering::Relaxed);
        }
    }
}

impl Buffer {
    /// Memory of this process alone.
    pub(crate) fn private(length: usize) -> Result<Self, CommError> {
        let mut memory = Vec::new();
        let lines = length.div_ceil(size_of::<Line>());
        memory.try_reserve_exact(lines).map_err(|_| CommError::Unavailable {
            what: format!("a buffer of {length} bytes"),
            reason: "there is not enough memory".into(),
        })?;
        memory.resize(lines, Line::zeroed());
        Ok(Self { memory: Memory::Private(memory), length })
    }

    pub(crate) fn shared(memory: Arc<SharedMemory>, length: usize) -> Self {
        Self { memory: Memory::Shared(memory), length }
    }
}

/// The first `length` bytes of this rank's segment, none once it is lost.
fn own(memory: &SharedMemory, length: usize) -> (*mut u8, usize) {
    let lost = memory.lost.load(Ordering::Relaxed);
    (memory.segments[memory.rank].start(), if lost { 0 } else { length })
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Private(lines) => &bytemuck::cast_slice(lines)[..self.length],
            Memory::Shared(memory) => {
                let (start, length) = own(memory, self.length);
                // SAFETY: the segment is at least this long and lives as long as the buffer. Other ranks touch it only
                // during a collective on it, which borrows the buffer mutably here. If the collective ends here before
                // it ends everywhere, the segment is detached: others no longer reach what is at this address.
                unsafe { std::slice::from_raw_parts(start, length) }
            }
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Private(lines) => &mut bytemuck::cast_slice_mut(lines)[..self.length],
            Memory::Shared(memory) => {
                let (start, length) = own(memory, self.length);
                // SAFETY: as above; nobody else in this process has a handle to this memory.
                unsafe { std::slice::from_raw_parts_mut(start, length) }
            }
        }
    }
}
