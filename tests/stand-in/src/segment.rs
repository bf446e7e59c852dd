//! Memory in which the ranks of one communicator meet, and how they wait for each other there.
//!
//! It begins with counts that all ranks share. Then every rank has an area: how many rounds it has reached, what it
//! does in this one, and a piece of its data. Then there is a mailbox for every pair of ranks, for what one sends to
//! the other.

use std::{
    fs::File,
    io,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use rustix::{thread::futex, time::Timespec};

use crate::shared::Map;

/// Bytes that a rank shows at once, or sends at once.
pub(crate) const PIECE: usize = 128 * 1024;
/// Bytes before the data of an area or a mailbox.
const HEAD: usize = 256;
/// Bytes that say what a rank does in a round.
pub(crate) const SIGNATURE: usize = 64;
/// How long to sleep before checking whether to give up, in case a wake-up is lost.
const NAP: Duration = Duration::from_millis(100);

/// The wait was aborted.
pub(crate) struct Aborted;

/// The memory, as one rank sees it.
pub(crate) struct Segment {
    map: Map,
    size: usize,
}

/// What one rank sends to another.
pub(crate) struct Mailbox<'a> {
    /// How many pieces were put in.
    pub(crate) sent: &'a AtomicU64,
    /// How many of them were taken out.
    pub(crate) received: &'a AtomicU64,
    /// How long the whole message is.
    pub(crate) total: &'a AtomicU64,
    /// Where the piece is.
    pub(crate) data: *mut u8,
}

impl Segment {
    /// The memory in a file, which is made long enough for `size` ranks.
    pub(crate) fn new(file: &File, size: usize) -> io::Result<Self> {
        let bytes = HEAD + (size + size * size) * (HEAD + PIECE);
        if file.metadata()?.len() < bytes as u64 {
            file.set_len(bytes as u64)?;
        }
        Ok(Self { map: Map::new(file, bytes)?, size })
    }

    fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.map.bytes(), "inside of the segment");
        // SAFETY: it is inside.
        unsafe { self.map.start().add(offset) }
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: offsets of counts are multiples of their size, and only used as counts.
        unsafe { &*self.at(offset).cast() }
    }

    fn count(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { &*self.at(offset).cast() }
    }

    fn area(rank: usize) -> usize {
        HEAD + rank * (HEAD + PIECE)
    }

    /// Changes whenever something happens.
    fn pulse(&self) -> &AtomicU32 {
        self.word(0)
    }

    /// How many ranks there are to be, according to those that have joined; zero before the first.
    pub(crate) fn agreed_size(&self) -> &AtomicU32 {
        self.word(4)
    }

    /// How many ranks have joined.
    pub(crate) fn joined(&self) -> &AtomicU32 {
        self.word(8)
    }

    /// How many ranks have made a first call.
    pub(crate) fn connected(&self) -> &AtomicU32 {
        self.word(12)
    }

    /// Whether a rank has joined.
    pub(crate) fn present(&self, rank: usize) -> &AtomicU32 {
        self.word(Self::area(rank) + 8)
    }

    /// The last round that a rank has come to.
    pub(crate) fn round(&self, rank: usize) -> &AtomicU64 {
        self.count(Self::area(rank))
    }

    /// What a rank does in the present round.
    pub(crate) fn signature(&self, rank: usize) -> *mut u8 {
        self.at(Self::area(rank) + 64)
    }

    /// The data that a rank shows in the present round.
    pub(crate) fn data(&self, rank: usize) -> *mut u8 {
        self.at(Self::area(rank) + HEAD)
    }

    /// What one rank sends to another.
    pub(crate) fn mailbox(&self, from: usize, to: usize) -> Mailbox<'_> {
        let start = Self::area(self.size + from * self.size + to);
        let [sent, received, total] = [0, 8, 16].map(|offset| self.count(start + offset));
        Mailbox { sent, received, total, data: self.at(start + HEAD) }
    }

    /// Tells all waiting ranks that something happened.
    pub(crate) fn tell(&self) {
        self.pulse().fetch_add(1, Ordering::SeqCst);
        wake(self.pulse());
    }

    /// Waits until a condition holds, or until `stop`. Changes of the condition are announced by [`Segment::tell`].
    pub(crate) fn wait(&self, stop: &AtomicBool, mut condition: impl FnMut() -> bool) -> Result<(), Aborted> {
        loop {
            let seen = self.pulse().load(Ordering::SeqCst);
            if stop.load(Ordering::SeqCst) {
                return Err(Aborted);
            }
            if condition() {
                return Ok(());
            }
            sleep(self.pulse(), seen, NAP);
        }
    }
}

/// Sleeps while the word still has the value `seen`, for at most `limit`.
pub(crate) fn sleep(word: &AtomicU32, seen: u32, limit: Duration) {
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
    // Whatever the outcome, the caller looks again.
    let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&limit));
}

/// Wakes all threads that sleep on the word, in all processes.
pub(crate) fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}
