//! A byte stream through a ring in the shared segment of an [arena](crate::communicator::Arena).
//!
//! One writer, one reader, two counters on cache lines of their own. Both ends ring the other's bell after a change; a
//! rank has one bell for all its rings.

use std::{io::IoSlice, sync::Arc};

use super::{Bell, Link, LinkError};
use crate::{
    Rank,
    communicator::{Counters, Room},
    shm::sync::Ordering,
};

/// One direction of a stream.
struct Ring {
    room: Arc<Room>,
    from: Rank,
    to: Rank,
    /// A power of two.
    capacity: usize,
}

impl Ring {
    fn new(room: Arc<Room>, from: Rank, to: Rank) -> Self {
        let capacity = room.memory.layout.ring;
        Self { room, from, to, capacity }
    }

    fn counters(&self) -> &Counters {
        self.room.memory.counters(self.from, self.to)
    }

    /// Where the stretch from stream position `at` lies, and its length: at most `length`, and not beyond the ring's end.
    fn stretch(&self, at: u64, length: usize) -> (usize, usize) {
        let offset = at as usize & (self.capacity - 1);
        (self.room.memory.layout.ring_bytes(self.from, self.to) + offset, length.min(self.capacity - offset))
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> usize {
        let Counters { head, tail } = self.counters();
        let start = head.0.load(Ordering::Relaxed);
        // The other side's counter is only trusted where it makes sense.
        let used = (start.wrapping_sub(tail.0.load(Ordering::Acquire)) as usize).min(self.capacity);
        let mut free = self.capacity - used;
        let mut at = start;
        for part in parts {
            let mut rest: &[u8] = &part[..part.len().min(free)];
            free -= rest.len();
            while !rest.is_empty() {
                let (place, length) = self.stretch(at, rest.len());
                // SAFETY: these bytes are free, so the reader does not look at them until `head` passes them.
                unsafe { self.room.memory.write(place, length) }.copy_from_slice(&rest[..length]);
                rest = &rest[length..];
                at = at.wrapping_add(length as u64);
            }
        }
        head.0.store(at, Ordering::Release);
        at.wrapping_sub(start) as usize
    }

    fn read(&self, limit: usize, sink: &mut dyn FnMut(&[u8])) -> usize {
        let Counters { head, tail } = self.counters();
        let start = tail.0.load(Ordering::Relaxed);
        let arrived = (head.0.load(Ordering::Acquire).wrapping_sub(start) as usize).min(self.capacity);
        let mut rest = arrived.min(limit);
        let mut at = start;
        while rest > 0 {
            let (place, length) = self.stretch(at, rest);
            // SAFETY: these bytes were written before `head` passed them; the writer leaves them alone until `tail`
            // passes them, below.
            sink(&unsafe { self.room.memory.read(place, length) });
            rest -= length;
            at = at.wrapping_add(length as u64);
        }
        tail.0.store(at, Ordering::Release);
        at.wrapping_sub(start) as usize
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
        let (out, into) = (Ring::new(room.clone(), me, peer), Ring::new(room.clone(), peer, me));
        Self { room, peer, out, into }
    }

    /// An error once nothing more can be expected: the peer is gone, or some rank of the room has raised an alarm,
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
            // Its last bytes were written before that, but possibly after the read above.
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

#[cfg(all(test, loom))]
mod model {
    use std::time::Duration;

    use loom::thread;

    use super::*;
    use crate::communicator::model::{groups, rooms};

    /// What the links track as one.
    const GRAIN: usize = 8;
    /// More than a ring holds.
    const PIECES: u8 = 3;

    /// Tries until something has moved, and sleeps in between as a mesh does.
    fn insist(link: &mut ShmLink, mut attempt: impl FnMut(&mut ShmLink) -> usize) {
        loop {
            let room = link.room.clone();
            let bell = room.bell(room.rank());
            let seen = bell.get();
            if attempt(link) > 0 {
                return;
            }
            bell.sleep(seen, Duration::MAX);
        }
    }

    /// A wake-up that is lost is a deadlock, because the model's sleep has no time limit.
    #[test]
    fn every_byte_passes_the_ring_and_no_wake_up_is_lost() {
        let groups = groups(2);
        loom::model(move || {
            let rooms = rooms(&groups, 64, 2 * GRAIN);
            let mut sender = ShmLink::new(rooms[0].clone(), 1);
            let mut receiver = ShmLink::new(rooms[1].clone(), 0);
            let sending = thread::spawn(move || {
                for piece in 1..=PIECES {
                    insist(&mut sender, |link| link.push(&[IoSlice::new(&[piece; GRAIN])]).expect("the link works"));
                }
            });
            for piece in 1..=PIECES {
                let mut got = [0; GRAIN];
                insist(&mut receiver, |link| link.fill(&mut got).expect("the link works"));
                assert_eq!(got, [piece; GRAIN]);
            }
            sending.join().expect("the sender does not panic");
        });
    }
}
