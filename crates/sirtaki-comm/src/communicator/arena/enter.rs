//! Entering an operation: every rank announces what it calls, and sees what the others call.
//!
//! An announcement carries a few bytes along. A small all-reduce needs nothing else: one line written, one line read
//! from every other rank.

use super::{
    layout::NOTE,
    memory::Reading,
    participant::Count,
    post::{Inline, Post},
    room::{Room, WaitContext},
};
use crate::{CommError, Rank, signature::Signature};

/// An operation in progress. Knows its number and how many steps this rank has done.
pub(super) struct Visit<'a> {
    pub(super) room: &'a Room,
    pub(super) call: Signature,
    pub(super) number: u32,
    /// Steps done by every rank before this operation.
    pub(super) base: u32,
    /// Steps of this operation so far.
    pub(super) steps: u32,
}

impl<'a> Visit<'a> {
    /// Announces the call with up to [`INLINE`] bytes and waits until all ranks have announced the same.
    #[inline]
    pub(super) fn enter(room: &'a Room, call: Signature, count: Count, inline: &[u8]) -> Result<Self, CommError> {
        let visit = Visit { room, call, number: count.operations, base: count.steps, steps: 0 };
        visit.post(room.group.rank()).write(visit.number, &visit.call, inline);
        visit.meet()?;
        Ok(visit)
    }

    #[inline]
    fn post(&self, rank: Rank) -> &Post {
        &self.room.lane(rank).posts[(self.number % 2) as usize]
    }

    #[inline]
    fn meet(&self) -> Result<(), CommError> {
        let wait = self.wait();
        let mut same = true;
        for rank in self.others() {
            let post = self.post(rank);
            self.room.wait(&wait, rank, &post.number, self.number)?;
            same &= post.call() == self.call;
        }
        if same { Ok(()) } else { self.room.compare(self.number) }
    }

    /// All ranks but this one, beginning with the next, so that not all look at the same lane at the same time.
    #[inline]
    pub(super) fn others(&self) -> impl Iterator<Item = Rank> + use<> {
        let (rank, size) = (self.room.group.rank(), self.room.group.size());
        (rank + 1..size).chain(0..rank)
    }

    pub(super) fn wait(&self) -> WaitContext<'_> {
        WaitContext { call: &self.call, number: self.number }
    }

    /// The bytes that `rank` announced along with its call.
    #[inline]
    pub(super) fn inline(&self, rank: Rank) -> Inline {
        self.post(rank).inline()
    }

    /// Where `rank` leaves a longer message before it enters operation `number`.
    #[inline]
    pub(super) fn note(room: &Room, rank: Rank, number: u32) -> usize {
        room.memory.layout.note(rank, (number % 2) as usize)
    }

    /// The first `length` bytes of the note `rank` left before it entered.
    pub(super) fn read_note(&self, rank: Rank, length: usize) -> Reading<'_> {
        debug_assert!(length <= NOTE);
        // SAFETY: its owner wrote the note before entering and writes this parity again only after all ranks have
        // entered the next operation, that is, after this visit.
        unsafe { self.room.memory.read(Self::note(self.room, rank, self.number), length) }
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

    /// Waits until all ranks have done `steps` steps of this operation.
    pub(super) fn wait_for_all(&self, steps: u32) -> Result<(), CommError> {
        self.others().try_for_each(|rank| self.wait_for(rank, steps))
    }

    /// Ends the visit; says how many steps there were.
    #[inline]
    pub(super) fn leave(self) -> u32 {
        self.room.lane(self.room.group.rank()).status.0.finish(self.number);
        self.steps
    }
}
