//! Two ends of a link inside one process, for running many ranks as threads.
//!
//! A bounded ring of bytes per direction behind a lock: slow, but small enough to be obviously right.

use std::{
    collections::{HashMap, VecDeque},
    io::IoSlice,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sirtaki_comm::{
    CommError, Group, Rank,
    link::{Link, LinkError},
    rendezvous::Exchange,
};

#[derive(Debug, Default)]
struct Stream {
    bytes: VecDeque<u8>,
    /// Nothing more will come.
    closed: bool,
    /// Nobody reads it any more.
    abandoned: bool,
}

type Shared = Arc<Mutex<Stream>>;

fn lock(stream: &Shared) -> MutexGuard<'_, Stream> {
    stream.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One end of an in-memory link.
#[derive(Debug)]
pub struct Pipe {
    capacity: usize,
    outgoing: Shared,
    incoming: Shared,
}

/// Two connected ends, each direction holding at most `capacity` bytes.
pub fn pipe(capacity: usize) -> (Pipe, Pipe) {
    let (there, back) = (Shared::default(), Shared::default());
    let one = Pipe { capacity, outgoing: there.clone(), incoming: back.clone() };
    (one, Pipe { capacity, outgoing: back, incoming: there })
}

fn gone() -> LinkError {
    LinkError::Closed("its end of the pipe was closed".into())
}

impl Link for Pipe {
    fn push(&mut self, parts: &[IoSlice<'_>]) -> Result<usize, LinkError> {
        let mut stream = lock(&self.outgoing);
        if stream.abandoned || stream.closed {
            return Err(gone());
        }
        let mut room = self.capacity - stream.bytes.len();
        let before = room;
        for part in parts {
            let count = part.len().min(room);
            stream.bytes.extend(&part[..count]);
            room -= count;
        }
        Ok(before - room)
    }

    fn pull(&mut self, limit: usize, sink: &mut dyn FnMut(&[u8])) -> Result<usize, LinkError> {
        let mut stream = lock(&self.incoming);
        let count = stream.bytes.len().min(limit);
        if count == 0 && limit > 0 && stream.closed {
            return Err(gone());
        }
        let (front, back) = stream.bytes.as_slices();
        let of_front = count.min(front.len());
        for piece in [&front[..of_front], &back[..count - of_front]] {
            if !piece.is_empty() {
                sink(piece);
            }
        }
        stream.bytes.drain(..count);
        Ok(count)
    }

    fn check(&mut self) -> Result<(), LinkError> {
        if lock(&self.incoming).closed { Err(gone()) } else { Ok(()) }
    }

    fn close(&mut self) {
        lock(&self.outgoing).closed = true;
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.close();
        lock(&self.incoming).abandoned = true;
    }
}

type Ends = HashMap<(u64, Rank, Rank), Pipe>;

/// Where the threads of a process get their pipes: the first of two ranks to ask makes both ends.
#[derive(Debug, Clone)]
pub struct Hub {
    capacity: usize,
    /// Ends whose owner has not asked yet, by group, owner and peer.
    waiting: Arc<Mutex<Ends>>,
    groups: Arc<Mutex<u64>>,
}

impl Hub {
    /// A hub for pipes of this capacity.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, waiting: Arc::default(), groups: Arc::default() }
    }

    /// My pipes to all members of `group`, which call this together.
    pub fn connect(&self, group: &Group, exchange: &mut dyn Exchange) -> Result<Vec<Option<Pipe>>, CommError> {
        let mut id = 0;
        if group.rank() == 0 {
            let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
            *groups += 1;
            id = *groups;
        }
        let said = exchange.all(&u64::to_le_bytes(id))?;
        let first = said.first().and_then(|bytes| bytes.as_slice().try_into().ok());
        let id = u64::from_le_bytes(first.ok_or_else(|| CommError::Invalid { problem: "no group number".into() })?);
        let end = |rank| (rank != group.rank()).then(|| self.end(id, group.rank(), rank));
        Ok((0..group.size()).map(end).collect())
    }

    fn end(&self, id: u64, me: Rank, peer: Rank) -> Pipe {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.remove(&(id, me, peer)).unwrap_or_else(|| {
            let (mine, theirs) = pipe(self.capacity);
            waiting.insert((id, peer, me), theirs);
            mine
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_pushed_is_read_before_the_end_is_seen() {
        let (mut one, mut other) = pipe(8);
        let pushed = one.push(&[IoSlice::new(b"hello"), IoSlice::new(b" world")]).unwrap();
        assert_eq!(pushed, 8);
        assert_eq!(one.push(&[IoSlice::new(b"x")]).unwrap(), 0);
        drop(one);
        assert!(other.check().is_err());
        let mut into = [0; 5];
        assert_eq!(other.fill(&mut into).unwrap(), 5);
        assert_eq!(&into, b"hello");
        assert_eq!(other.fill(&mut into).unwrap(), 3);
        assert!(other.fill(&mut into).is_err());
        assert!(other.push(&[IoSlice::new(b"x")]).is_err());
    }
}
