//! Entering an operation: every rank announces what it calls, and sees what the others call.
//!
//! An announcement carries a few bytes along. A small all-reduce needs nothing else: one line written, one line read
//! from every other rank.

use std::sync::atomic::Ordering;

use super::{
    layout::{INLINE, NOTE},
    room::{Room, Wait, finish},
};
use crate::{CommError, Rank, signature::Signature};

/// The bytes of an announcement, aligned for any element.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub(super) struct Inline(pub(super) [u8; INLINE]);

/// An operation in progress. Knows its number and how many steps this rank has done.
pub(super) struct Visit<'a> {
    pub(super) room: &'a Room,
    pub(super) call: Signature,
    pub(super) number: u32,
    /// Steps done by every rank before this operation.
    pub(super) base: u32,
    /// Steps this operation takes so far.
    pub(super) steps: u32,
}

impl<'a> Visit<'a> {
    /// Announces the call with up to [`INLINE`] bytes and waits until everybody has announced the same.
    #[inline]
    pub(super) fn enter(
        room: &'a Room,
        call: Signature,
        number: u32,
        base: u32,
        inline: &[u8],
    ) -> Result<Self, CommError> {
        let visit = Visit { room, call, number, base, steps: 0 };
        visit.announce(inline);
        visit.meet()?;
        Ok(visit)
    }

    fn parity(&self) -> usize {
        (self.number % 2) as usize
    }

    #[inline]
    fn announce(&self, inline: &[u8]) {
        let post = &self.room.lane(self.room.group.rank()).posts[self.parity()];
        for (word, place) in words(&self.call.encode()).zip(&post.signature) {
            place.store(word, Ordering::Relaxed);
        }
        for (word, place) in words(inline).zip(&post.inline) {
            place.store(word, Ordering::Relaxed);
        }
        post.number.set(self.number);
    }

    #[inline]
    fn meet(&self) -> Result<(), CommError> {
        let wait = self.wait();
        let mut same = true;
        let mine: [u64; 3] = std::array::from_fn(|i| word(&self.call.encode(), i));
        for rank in self.others() {
            let post = &self.room.lane(rank).posts[self.parity()];
            self.room.wait(&wait, rank, &post.number, self.number)?;
            same &= post.signature.iter().zip(&mine).all(|(place, word)| place.load(Ordering::Relaxed) == *word);
        }
        if same { Ok(()) } else { self.room.compare(self.number) }
    }

    /// All ranks but this one, beginning with the next: not everybody looks at the same lane at the same time.
    #[inline]
    pub(super) fn others(&self) -> impl Iterator<Item = Rank> + use<> {
        let (rank, size) = (self.room.group.rank(), self.room.group.size());
        (rank + 1..size).chain(0..rank)
    }

    pub(super) fn wait(&self) -> Wait<'_> {
        Wait { call: &self.call, number: self.number }
    }

    /// The bytes that `rank` announced along with its call.
    #[inline]
    pub(super) fn inline(&self, rank: Rank) -> Inline {
        let mut bytes = Inline([0; INLINE]);
        for (chunk, place) in bytes.0.chunks_mut(8).zip(&self.room.lane(rank).posts[self.parity()].inline) {
            chunk.copy_from_slice(&place.load(Ordering::Relaxed).to_ne_bytes());
        }
        bytes
    }

    /// Where `rank` leaves a longer message before it enters operation `number`.
    #[inline]
    pub(super) fn note(room: &Room, rank: Rank, number: u32) -> *mut u8 {
        room.at(room.layout.note(rank, (number % 2) as usize))
    }

    /// The first `length` bytes of the note `rank` left before it entered.
    pub(super) fn read_note(&self, rank: Rank, length: usize) -> &[u8] {
        debug_assert!(length <= NOTE);
        // SAFETY: the note lies inside the segment. Its owner wrote it before entering and writes this parity again
        // only after everybody has entered the next operation, that is, after this visit.
        unsafe { std::slice::from_raw_parts(Self::note(self.room, rank, self.number), length) }
    }

    /// Tells the others that one more step is done.
    #[inline]
    pub(super) fn step(&mut self) {
        self.steps += 1;
        let target = self.base.wrapping_add(self.steps);
        self.room.lane(self.room.group.rank()).progress.0.set(target);
    }

    /// Waits until `rank` has done `steps` steps of this operation.
    #[inline]
    pub(super) fn wait_for(&self, rank: Rank, steps: u32) -> Result<(), CommError> {
        let progress = &self.room.lane(rank).progress.0;
        self.room.wait(&self.wait(), rank, progress, self.base.wrapping_add(steps))
    }

    /// Waits until everybody has done `steps` steps of this operation.
    pub(super) fn wait_for_all(&self, steps: u32) -> Result<(), CommError> {
        self.others().try_for_each(|rank| self.wait_for(rank, steps))
    }

    /// Ends the visit; says how many steps there were.
    #[inline]
    pub(super) fn leave(self) -> u32 {
        finish(&self.room.lane(self.room.group.rank()).status.0.finished, self.number);
        self.steps
    }
}

#[inline]
fn word(bytes: &[u8], index: usize) -> u64 {
    let mut word = [0; 8];
    let rest = &bytes[index * 8..];
    let length = rest.len().min(8);
    word[..length].copy_from_slice(&rest[..length]);
    u64::from_ne_bytes(word)
}

#[inline]
fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    (0..bytes.len().div_ceil(8)).map(|index| word(bytes, index))
}
