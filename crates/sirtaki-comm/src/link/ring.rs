//! A byte stream through memory that two processes of one host share, with a socket to sleep on.
//!
//! The rings of an arena wake a rank through a word in memory, which cannot be slept on together with sockets. Here a
//! side that finds nothing to do leaves a mark, and the other side answers a mark with one byte over the socket. While
//! both are busy no system call is made, and the socket's end is the peer's end.
//!
//! The mark is set before a last look, and looked for after a change; both in one total order, so at least one side sees
//! the other.

use std::{
    io::IoSlice,
    sync::atomic::{AtomicU32, AtomicU64, Ordering, fence},
};

use super::{Bell, Link, LinkError};
use crate::{CommError, shm::Segment};

/// Bytes of a ring; a power of two. A message of a MiB fits, so that its sender writes it at once and goes on.
const RING: usize = 2 << 20;
/// Bytes before the rings; every number has a cache line of its own.
const HEAD: usize = 4096;
const LINE: usize = 64;
/// Lines of one direction: bytes written, bytes read, and the marks of reader and writer.
const LINES: usize = 4;
/// Doorbell bytes read at a time.
const DRAIN: usize = 256;

/// Which of the two processes this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingSide {
    /// The one that made the memory.
    Maker,
    /// The one that opened it.
    Guest,
}

/// Two rings in a segment, and the socket that wakes.
pub struct RingLink {
    socket: Box<dyn Link>,
    segment: Segment,
    /// Which ring is written; the other one is read.
    out: usize,
    into: usize,
    /// The socket has ended, and why.
    ended: Option<String>,
}

impl RingLink {
    /// Bytes of memory that a link needs.
    pub const BYTES: usize = HEAD + 2 * RING;

    /// A link through `segment`, which both sides have and nobody else uses; `socket` connects them.
    pub fn new(socket: Box<dyn Link>, segment: Segment, side: RingSide) -> Result<Self, CommError> {
        if segment.len() != Self::BYTES {
            let problem = format!("{} bytes of shared memory instead of {}", segment.len(), Self::BYTES);
            return Err(CommError::Invalid { problem });
        }
        let (out, into) = if side == RingSide::Maker { (0, 1) } else { (1, 0) };
        Ok(Self { socket, segment, out, into, ended: None })
    }

    fn at(&self, ring: usize, line: usize) -> *mut u8 {
        // SAFETY: the lines of both rings lie within HEAD, and the segment is longer.
        unsafe { self.segment.start().add((ring * LINES + line) * LINE) }
    }

    fn counter(&self, ring: usize, line: usize) -> &AtomicU64 {
        // SAFETY: aligned to a line, inside the segment, and only ever used as this atomic.
        unsafe { &*self.at(ring, line).cast() }
    }

    fn mark(&self, ring: usize, line: usize) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { &*self.at(ring, line).cast() }
    }

    /// Where the stretch from stream position `at` lies, and its length: at most `length`, and not beyond the end.
    fn stretch(&self, ring: usize, at: u64, length: usize) -> (*mut u8, usize) {
        let offset = at as usize & (RING - 1);
        // SAFETY: offset < RING, and both rings are inside the segment.
        (unsafe { self.segment.start().add(HEAD + ring * RING + offset) }, length.min(RING - offset))
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> usize {
        let start = self.counter(self.out, 0).load(Ordering::Relaxed);
        // The other side's counter is only trusted where it makes sense.
        let used = (start.wrapping_sub(self.counter(self.out, 1).load(Ordering::Acquire)) as usize).min(RING);
        let (mut free, mut at) = (RING - used, start);
        for part in parts {
            let mut rest: &[u8] = &part[..part.len().min(free)];
            free -= rest.len();
            while !rest.is_empty() {
                let (place, length) = self.stretch(self.out, at, rest.len());
                // SAFETY: these bytes are free: the reader does not look at them until the counter passes them.
                unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), place, length) };
                rest = &rest[length..];
                at = at.wrapping_add(length as u64);
            }
        }
        self.counter(self.out, 0).store(at, Ordering::Release);
        at.wrapping_sub(start) as usize
    }

    fn read(&self, limit: usize, sink: &mut dyn FnMut(&[u8])) -> usize {
        let start = self.counter(self.into, 1).load(Ordering::Relaxed);
        let arrived = (self.counter(self.into, 0).load(Ordering::Acquire).wrapping_sub(start) as usize).min(RING);
        let (mut rest, mut at) = (arrived.min(limit), start);
        while rest > 0 {
            let (place, length) = self.stretch(self.into, at, rest);
            // SAFETY: these bytes were written before the counter passed them; the writer leaves them alone until ours
            // passes them, below.
            sink(unsafe { std::slice::from_raw_parts(place, length) });
            rest -= length;
            at = at.wrapping_add(length as u64);
        }
        self.counter(self.into, 1).store(at, Ordering::Release);
        at.wrapping_sub(start) as usize
    }

    /// Wakes the other side if it has left this mark.
    fn wake(&mut self, ring: usize, line: usize) -> Result<(), LinkError> {
        fence(Ordering::SeqCst);
        if self.mark(ring, line).load(Ordering::Relaxed) != 0 && self.mark(ring, line).swap(0, Ordering::SeqCst) != 0 {
            // A socket that is full has enough to wake it.
            self.socket.push(&[IoSlice::new(&[1])])?;
        }
        Ok(())
    }

    /// Asks to be woken; what happened before is seen by the next look.
    fn leave_mark(&self, ring: usize, line: usize) {
        self.mark(ring, line).store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Takes the bytes that have woken this side off the socket.
    fn drain(&mut self) {
        let mut scratch = [0; DRAIN];
        while self.ended.is_none() {
            match self.socket.fill(&mut scratch) {
                Ok(count) if count < DRAIN => break,
                Ok(_) => {}
                Err(error) => self.ended = Some(error.to_string()),
            }
        }
    }
}

impl Link for RingLink {
    fn push(&mut self, parts: &[IoSlice<'_>]) -> Result<usize, LinkError> {
        if parts.iter().all(|part| part.is_empty()) {
            return Ok(0);
        }
        let mut written = self.write(parts);
        if written == 0 {
            self.leave_mark(self.out, 3);
            written = self.write(parts);
        }
        if written > 0 {
            self.wake(self.out, 2)?;
        } else if let Some(how) = &self.ended {
            return Err(LinkError::Closed(how.clone()));
        }
        Ok(written)
    }

    fn pull(&mut self, limit: usize, sink: &mut dyn FnMut(&[u8])) -> Result<usize, LinkError> {
        if limit == 0 {
            return Ok(0);
        }
        let mut read = self.read(limit, sink);
        if read == 0 {
            self.drain();
            self.leave_mark(self.into, 2);
            read = self.read(limit, sink);
        }
        match &self.ended {
            _ if read > 0 => {
                // Whoever wrote this may be gone; what it wrote counts.
                let _ = self.wake(self.into, 3);
                Ok(read)
            }
            Some(how) => Err(LinkError::Closed(how.clone())),
            None => Ok(0),
        }
    }

    fn bell(&self) -> Bell<'_> {
        self.socket.bell()
    }

    fn rings_for_room(&self) -> bool {
        true
    }

    fn check(&mut self) -> Result<(), LinkError> {
        self.socket.check()
    }

    fn close(&mut self) {
        self.socket.close();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{TcpListener, TcpStream},
        thread,
        time::Duration,
    };

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;
    use crate::link::TcpLink;

    fn pair() -> (RingLink, RingLink) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let near = listener.accept().unwrap().0;
        let link = |socket| Box::new(TcpLink::new(socket, Duration::from_secs(60)).unwrap());
        let segment = Segment::create(RingLink::BYTES).unwrap();
        let (pid, descriptor) = segment.address();
        let again = Segment::open(pid, descriptor, RingLink::BYTES).unwrap();
        let maker = RingLink::new(link(near), segment, RingSide::Maker).unwrap();
        (maker, RingLink::new(link(far), again, RingSide::Guest).unwrap())
    }

    /// Sleeps as long as it takes: a wake-up that is lost makes the test hang.
    fn sleep(link: &RingLink) {
        let Bell::Descriptor(descriptor) = link.bell() else { panic!("a socket has a descriptor") };
        poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], None).unwrap();
    }

    /// Sends and receives this many bytes at once; byte `n` of the stream is `n * factor`.
    fn exchange(mut link: RingLink, bytes: usize, (mine, others): (usize, usize)) {
        let (mut sent, mut got) = (0, 0);
        while sent < bytes || got < bytes {
            let piece: Vec<u8> = (sent..bytes.min(sent + 1000 + sent % 7)).map(|at| (at * mine) as u8).collect();
            let pushed = link.push(&[IoSlice::new(&piece)]).unwrap();
            sent += pushed;
            let pulled = link
                .pull(3000, &mut |piece| {
                    piece.iter().for_each(|&byte| {
                        assert_eq!(byte, (got * others) as u8);
                        got += 1;
                    });
                })
                .unwrap();
            if pushed == 0 && pulled == 0 {
                sleep(&link);
            }
        }
    }

    #[test]
    fn every_byte_passes_both_ways_and_no_wake_up_is_lost() {
        let (maker, guest) = pair();
        let other = thread::spawn(move || exchange(guest, 3 * RING + 17, (5, 3)));
        exchange(maker, 3 * RING + 17, (3, 5));
        other.join().unwrap();
    }

    #[test]
    fn what_was_written_before_the_end_is_read_after_it() {
        let (mut maker, mut guest) = pair();
        assert_eq!(maker.push(&[IoSlice::new(b"last "), IoSlice::new(b"words")]).unwrap(), 10);
        drop(maker);
        let mut got = Vec::new();
        let ended = loop {
            match guest.pull(4, &mut |piece| got.extend_from_slice(piece)) {
                Ok(0) => sleep(&guest),
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(got, b"last words");
        assert!(matches!(ended, LinkError::Closed(_)));
    }

    #[test]
    fn a_full_ring_says_so_and_another_size_is_refused() {
        let (mut maker, _guest) = pair();
        let block = vec![0; RING + 1];
        assert_eq!(maker.push(&[IoSlice::new(&block)]).unwrap(), RING);
        assert_eq!(maker.push(&[IoSlice::new(&block)]).unwrap(), 0);
        let small = Segment::create(4096).unwrap();
        let (socket, _other) = pair();
        assert!(RingLink::new(Box::new(socket), small, RingSide::Maker).is_err());
    }
}
