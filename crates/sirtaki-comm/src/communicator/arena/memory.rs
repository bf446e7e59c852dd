//! The parts of the shared segment, and stretches of its bytes borrowed as slices.
//!
//! The protocols of this module guarantee that a stretch is written by one rank while nobody else looks at it, and only
//! read while nobody writes it; each caller says why. Under loom the parts are objects that loom watches, and every
//! borrowed stretch is tracked: a model fails if some order of events lets two ranks hold the same bytes at the same
//! time while one of them writes.

use std::ops::{Deref, DerefMut};

pub(crate) use parts::Memory;

/// Bytes to read. Nobody writes them meanwhile.
pub(crate) struct Reading<'a> {
    bytes: &'a [u8],
    #[cfg(loom)]
    _tracked: Vec<loom::cell::ConstPtr<()>>,
}

/// Bytes to write. Nobody else looks at them meanwhile.
pub(crate) struct Writing<'a> {
    bytes: &'a mut [u8],
    #[cfg(loom)]
    _tracked: Vec<loom::cell::MutPtr<()>>,
}

impl Deref for Reading<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl Deref for Writing<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl DerefMut for Writing<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.bytes
    }
}

#[cfg(not(loom))]
mod parts {
    use super::{
        super::layout::{Board, Counters, Lane, Layout},
        Reading, Writing,
    };
    use crate::{Rank, shm::Segment};

    /// A segment in which all ranks of a host meet.
    pub(crate) struct Memory {
        segment: Segment,
        pub(crate) layout: Layout,
    }

    impl Memory {
        /// `segment` must have as many bytes as `layout` needs.
        pub(crate) fn new(segment: Segment, layout: Layout) -> Self {
            assert!(segment.len() >= layout.total());
            Self { segment, layout }
        }

        /// The address of the part at `offset`.
        #[inline]
        fn part<T>(&self, offset: usize) -> *mut T {
            debug_assert!(offset + size_of::<T>() <= self.segment.len());
            // SAFETY: every offset comes from the layout, whose total is at most the segment's length.
            unsafe { self.segment.start().add(offset).cast() }
        }

        pub(crate) fn board(&self) -> &Board {
            // SAFETY: the first page is a Board; it consists of atomics, for which any bytes are valid.
            unsafe { &*self.part(0) }
        }

        #[inline]
        pub(crate) fn lane(&self, rank: Rank) -> &Lane {
            // SAFETY: as in `board`; the layout puts an aligned Lane there.
            unsafe { &*self.part(self.layout.lane(rank)) }
        }

        pub(crate) fn counters(&self, from: Rank, to: Rank) -> &Counters {
            // SAFETY: as in `board`; the layout puts aligned Counters there.
            unsafe { &*self.part(self.layout.ring(from, to)) }
        }

        /// The `length` bytes at `offset`, to read.
        ///
        /// # Safety
        /// No rank may write them while they are borrowed.
        #[inline]
        pub(crate) unsafe fn read(&self, offset: usize, length: usize) -> Reading<'_> {
            assert!(offset + length <= self.layout.total());
            // SAFETY: inside the segment by the check above; not written, by the caller's promise.
            Reading { bytes: unsafe { std::slice::from_raw_parts(self.part(offset), length) } }
        }

        /// The `length` bytes at `offset`, to write.
        ///
        /// # Safety
        /// No other rank may look at them, nor this one through another borrow, while they are borrowed.
        #[inline]
        pub(crate) unsafe fn write(&self, offset: usize, length: usize) -> Writing<'_> {
            assert!(offset + length <= self.layout.total());
            // SAFETY: inside the segment by the check above; exclusive by the caller's promise.
            Writing { bytes: unsafe { std::slice::from_raw_parts_mut(self.part(offset), length) } }
        }
    }
}

#[cfg(loom)]
mod parts {
    use std::{cell::UnsafeCell, ops::Range};

    use super::{
        super::layout::{Board, Counters, Lane, Layout},
        Reading, Writing,
    };
    use crate::{Rank, shm::Segment};

    /// Bytes that are tracked together.
    const GRAIN: usize = 8;

    /// The parts of a segment as objects of a model.
    pub(crate) struct Memory {
        pub(crate) layout: Layout,
        board: Board,
        lanes: Vec<Lane>,
        counters: Vec<Counters>,
        bytes: Vec<UnsafeCell<u8>>,
        tracked: Vec<loom::cell::UnsafeCell<()>>,
    }

    // SAFETY: bytes are borrowed by the protocols that the models check, everything else consists of atomics.
    unsafe impl Send for Memory {}
    // SAFETY: as above.
    unsafe impl Sync for Memory {}

    impl Memory {
        pub(crate) fn new(_: Segment, layout: Layout) -> Self {
            Self::model(layout)
        }

        pub(crate) fn model(layout: Layout) -> Self {
            let bytes = layout.ring(layout.ranks, 0) - layout.note(0, 0);
            Self {
                layout,
                board: Board::default(),
                lanes: (0..layout.ranks).map(|_| Lane::default()).collect(),
                counters: (0..layout.ranks * layout.ranks).map(|_| Counters::default()).collect(),
                bytes: (0..bytes).map(|_| UnsafeCell::new(0)).collect(),
                tracked: (0..bytes.div_ceil(GRAIN)).map(|_| loom::cell::UnsafeCell::new(())).collect(),
            }
        }

        pub(crate) fn board(&self) -> &Board {
            &self.board
        }

        pub(crate) fn lane(&self, rank: Rank) -> &Lane {
            &self.lanes[rank]
        }

        pub(crate) fn counters(&self, from: Rank, to: Rank) -> &Counters {
            &self.counters[from * self.layout.ranks + to]
        }

        fn range(&self, offset: usize, length: usize) -> Range<usize> {
            let start = offset - self.layout.note(0, 0);
            start..start + length
        }

        fn tracked(&self, range: &Range<usize>) -> &[loom::cell::UnsafeCell<()>] {
            &self.tracked[range.start / GRAIN..range.end.div_ceil(GRAIN).max(range.start / GRAIN)]
        }

        pub(crate) unsafe fn read(&self, offset: usize, length: usize) -> Reading<'_> {
            let range = self.range(offset, length);
            let _tracked = self.tracked(&range).iter().map(loom::cell::UnsafeCell::get).collect();
            let cells = &self.bytes[range];
            // SAFETY: not written, by the caller's promise, which loom has just checked.
            Reading { bytes: unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), cells.len()) }, _tracked }
        }

        #[allow(clippy::mut_from_ref)]
        pub(crate) unsafe fn write(&self, offset: usize, length: usize) -> Writing<'_> {
            let range = self.range(offset, length);
            let _tracked = self.tracked(&range).iter().map(loom::cell::UnsafeCell::get_mut).collect();
            let cells = &self.bytes[range];
            let start = cells.as_ptr().cast::<u8>().cast_mut();
            // SAFETY: cells may be written through a shared reference; exclusive by the caller's promise, as above.
            Writing { bytes: unsafe { std::slice::from_raw_parts_mut(start, cells.len()) }, _tracked }
        }
    }
}
