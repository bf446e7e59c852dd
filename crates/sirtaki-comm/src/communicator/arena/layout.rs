//! What lies where in the shared segment.
//!
//! ```text
//! board            one page: the alarm everybody looks at
//! lanes            per rank: what it announces, how far it is, whom it waits for
//! notes            per rank, two of them: messages too long for a lane, too short for windows
//! regions          per rank: the windows that large messages travel through
//! rings            per ordered pair of ranks: a byte stream
//! ```
//! The size depends only on the number of ranks, never on the messages, and stays below 64 MiB: it is 1.3 MiB for 2
//! ranks and 53 MiB for 256.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::post::Post;
use crate::{
    Alarm,
    shm::{Signal, sync},
};

/// Bytes of one note. Models are small.
pub(super) const NOTE: usize = if cfg!(loom) { 64 } else { 8 << 10 };
/// Pieces of a region.
pub(super) const PIECES: usize = if cfg!(loom) { 2 } else { 8 };
const PAGE: usize = 4096;
const REGIONS_TOTAL: usize = 16 << 20;
const REGION_LARGEST: usize = 512 << 10;
const RINGS_TOTAL: usize = 8 << 20;
const RING_LARGEST: usize = 64 << 10;
const RING_SMALLEST: usize = 256;
/// Bytes before the data of a ring.
const RING_HEAD: usize = 256;

/// The page to look at when something went wrong.
#[repr(C, align(64))]
pub(crate) struct Board {
    /// Random number of this segment, so that another segment is not mistaken for it.
    pub(super) nonce: AtomicU64,
    /// 0: no alarm; 1: being written; 2: to be read.
    pub(super) state: AtomicU32,
    pub(super) length: AtomicU32,
    pub(super) text: [AtomicU8; Alarm::LIMIT],
}

impl Default for Board {
    fn default() -> Self {
        let text = std::array::from_fn(|_| AtomicU8::default());
        Self { nonce: AtomicU64::default(), state: AtomicU32::default(), length: AtomicU32::default(), text }
    }
}

#[derive(Default)]
#[repr(C, align(128))]
pub(crate) struct Line<T>(pub(crate) T);

/// How far the two sides of a ring are.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Counters {
    /// Bytes ever written.
    pub(crate) head: Line<sync::AtomicU64>,
    /// Bytes ever read.
    pub(crate) tail: Line<sync::AtomicU64>,
}

/// Whom a rank waits for and whether it is still there; read by others only when they wait long.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Status {
    /// Rank it waits for plus one; 0: none.
    pub(super) waits_for: AtomicU32,
    /// 1 once it has left in good order.
    pub(super) left: AtomicU32,
    /// Number of the last operation it has finished.
    pub(super) finished: AtomicU32,
    /// 1 once it has failed: it no longer takes part in anything.
    pub(super) failed: AtomicU32,
}

impl Status {
    /// Notes that operation `number` is over for this rank.
    pub(super) fn finish(&self, number: u32) {
        self.finished.store(number, Ordering::Release);
    }
}

/// What one rank writes and the others read.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Lane {
    /// Used alternately: entering an operation means that all ranks have finished the one before the last.
    pub(super) posts: [Post; 2],
    /// Steps done since the segment was made.
    pub(super) progress: Line<Signal>,
    pub(super) status: Line<Status>,
    /// Rung when something was written to one of this rank's rings.
    pub(super) bell: Line<Signal>,
}

/// Offsets for a number of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(super) ranks: usize,
    /// Bytes of one rank's region.
    pub(super) region: usize,
    /// Bytes of one ring; a power of two.
    pub(crate) ring: usize,
}

impl Layout {
    pub(super) fn new(ranks: usize) -> Self {
        let region = (REGIONS_TOTAL / ranks).min(REGION_LARGEST) / PAGE * PAGE;
        let ring = (RINGS_TOTAL / (ranks * ranks)).clamp(RING_SMALLEST, RING_LARGEST);
        Self { ranks, region: region.max(PAGE), ring: 1 << ring.ilog2() }
    }

    pub(super) fn lane(&self, rank: usize) -> usize {
        PAGE + rank * size_of::<Lane>()
    }

    fn notes(&self) -> usize {
        self.lane(self.ranks).next_multiple_of(PAGE)
    }

    pub(super) fn note(&self, rank: usize, parity: usize) -> usize {
        self.notes() + (2 * rank + parity) * NOTE
    }

    pub(super) fn region(&self, rank: usize) -> usize {
        self.note(self.ranks, 0) + rank * self.region
    }

    /// Its counters, then its bytes.
    pub(super) fn ring(&self, from: usize, to: usize) -> usize {
        self.region(self.ranks) + (from * self.ranks + to) * (RING_HEAD + self.ring)
    }

    pub(crate) fn ring_bytes(&self, from: usize, to: usize) -> usize {
        self.ring(from, to) + RING_HEAD
    }

    pub(super) fn total(&self) -> usize {
        self.ring(self.ranks, 0).next_multiple_of(PAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_segment_stays_small_and_aligned() {
        assert!(size_of::<Board>() <= PAGE && size_of::<Counters>() == RING_HEAD);
        assert_eq!((size_of::<Post>(), size_of::<Lane>()), (128, 5 * 128));
        for ranks in 1..=256 {
            let layout = Layout::new(ranks);
            assert!(layout.total() <= 64 << 20, "{ranks} ranks take {} bytes", layout.total());
            assert_eq!(layout.region % (PIECES * 64), 0);
            for at in [layout.lane(ranks - 1), layout.note(0, 1), layout.region(ranks - 1), layout.ring(0, ranks - 1)] {
                assert_eq!(at % 128, 0);
            }
        }
    }
}
