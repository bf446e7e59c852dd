//! A byte stream through a ring in the shared segment of an [arena](crate::communicator::Arena).
//!
//! One writer, one reader, two counters on cache lines of their own. Both ends ring the other's bell after a change; a
//! rank has one bell for all its rings.

use std::{
    io::IoSlice,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{Bell, Link, LinkError};
use crate::{Rank, communicator::Room};

/// One direction of a stream.
struct Ring {
    /// Bytes ever written.
    head: *const AtomicU64,
    /// Bytes ever read.
    tail: *const AtomicU64,
    bytes: *mut u8,
    /// A power of two.
    capacity: usize,
}

// SAFETY: the pointers lead into a shared mapping that the link's room keeps alive; counters are atomics, and the bytes
// between them belong to one side at a time.
unsafe impl Send for Ring {}

impl Ring {
    fn new(room: &Room, from: Rank, to: Rank) -> Self {
        let (start, capacity) = room.ring(from, to);
        // SAFETY: the layout reserves two pairs of lines and then the ring's bytes.
        let (tail, bytes) = unsafe { (start.add(128), start.add(256)) };
        Self { head: start.cast(), tail: tail.cast(), bytes, capacity }
    }

    fn head(&self) -> &AtomicU64 {
        // SAFETY: aligned and alive, see `new`.
        unsafe { &*self.head }
    }

    fn tail(&self) -> &AtomicU64 {
        // SAFETY: aligned and alive, see `new`.
        unsafe { &*self.tail }
    }

    /// The stretch from stream position `at`, at most `length` bytes and not beyond the ring's end.
    fn stretch(&self, at: u64, length: usize) -> (*mut u8, usize) {
        let offset = at as usize & (self.capacity - 1);
        // SAFETY: the offset is below the capacity.
        (unsafe { self.bytes.add(offset) }, length.min(self.capacity - offset))
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> usize {
        let start = self.head().load(Ordering::Relaxed);
        // The other side's counter is only trusted as far as it makes sense.
        let used = (start.wrapping_sub(self.tail().load(Ordering::Acquire)) as usize).min(self.capacity);
        let mut free = self.capacity - used;
        let mut at = start;
        for part in parts {
            let mut rest: &[u8] = &part[..part.len().min(free)];
            free -= rest.len();
            while !rest.is_empty() {
                let (place, length) = self.stretch(at, rest.len());
                // SAFETY: these bytes are free, so the reader does not look at them until `head` passes them.
                unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), place, length) };
                rest = &rest[length..];
                at += length as u64;
            }
        }
        self.head().store(at, Ordering::Release);
        (at - start) as usize
    }

    fn read(&self, limit: usize, sink: &mut dyn FnMut(&[u8])) -> usize {
        let start = self.tail().load(Ordering::Relaxed);
        let arrived = (self.head().load(Ordering::Acquire).wrapping_sub(start) as usize).min(self.capacity);
        let mut rest = arrived.min(limit);
        let mut at = start;
        while rest > 0 {
            let (place, length) = self.stretch(at, rest);
            // SAFETY: these bytes were written before `head` passed them; the writer leaves them alone until `tail`
            // passes them, below.
            sink(unsafe { std::slice::from_raw_parts(place, length) });
            rest -= length;
            at += length as u64;
        }
        self.tail().store(at, Ordering::Release);
        (at - start) as usize
    }
}

/// The two rings between this rank and another of the same host.
pub struct ShmLink {
    room: Arc<Room>,
    peer: Rank,
    out: Ring,
    into: Ring,
}

impl ShmLink {
    /// The link to `peer` of the room.
    pub(crate) fn new(room: Arc<Room>, peer: Rank) -> Self {
        let me = room.rank();
        let (out, into) = (Ring::new(&room, me, peer), Ring::new(&room, peer, me));
        Self { room, peer, out, into }
    }

    /// An error once nothing more is to be hoped for: the peer is gone, or some rank of the room has raised an alarm,
    /// after which the peer may never come. The arena reports that alarm, whatever the error here.
    fn presence(&self) -> Result<(), LinkError> {
        self.room.alarm().map_err(|error| LinkError::Closed(error.to_string()))?;
        self.room.presence(self.peer).map_err(|how| LinkError::Closed(how.into()))
    }
}

impl Link for ShmLink {
    fn push(&mut self, parts: &[IoSlice<'_>]) -> Result<usize, LinkError> {
        let written = self.out.write(parts);
        if written > 0 {
            self.room.bell(self.peer).advance();
        }
        Ok(written)
    }

    fn pull(&mut self, limit: usize, sink: &mut dyn FnMut(&[u8])) -> Result<usize, LinkError> {
        let read = self.into.read(limit, sink);
        if read > 0 {
            self.room.bell(self.peer).advance();
        } else if self.room.has_left(self.peer) || self.room.is_alarmed() {
            // Its last bytes were written before that, but possibly after the look above.
            let last = self.into.read(limit, sink);
            return if last > 0 { Ok(last) } else { self.presence().map(|()| 0) };
        }
        Ok(read)
    }

    fn bell(&self) -> Bell<'_> {
        Bell::Word(self.room.bell(self.room.rank()))
    }

    fn check(&mut self) -> Result<(), LinkError> {
        self.presence()
    }
}
