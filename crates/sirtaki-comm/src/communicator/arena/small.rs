//! All-reduce of small messages: the data travels with the announcement, and every rank reduces everything.
//!
//! Cost: one line (or one note) written, one read from each other rank, `n·s` bytes reduced by every rank; no step
//! beyond entering.

use super::{
    layout::NOTE,
    memory::Reading,
    participant::Participant,
    post::{INLINE, Inline},
};
use crate::{CommError, Plan, kernel, signature::Signature};

/// Largest message that every rank reduces, by the number of ranks. Beyond that, the work done `n` times outweighs the
/// steps saved.
pub(super) fn limit(ranks: usize) -> usize {
    if ranks == 2 { NOTE / 2 } else { NOTE }
}

impl Participant {
    /// Reduces at most [`INLINE`] bytes.
    #[inline]
    pub(super) fn reduce_inline(&mut self, call: Signature, data: &mut [u8], plan: &Plan) -> Result<(), CommError> {
        debug_assert!(data.len() <= INLINE);
        let mut mine = Inline([0; INLINE]);
        mine.0[..data.len()].copy_from_slice(data);
        self.operate(call, &mine.0, |visit| {
            let size = visit.room.group.size();
            if size == 2 && !plan.wide && !plan.scales() {
                let theirs = visit.inline(1 - visit.room.group.rank());
                kernel::fold(plan, data, &theirs.0[..data.len()]);
                return Ok(());
            }
            let all: Vec<Inline> = (0..size).map(|rank| visit.inline(rank)).collect();
            let inputs: Vec<&[u8]> = all.iter().map(|one| &one.0[..data.len()]).collect();
            kernel::combine(plan, &inputs, data);
            Ok(())
        })
    }

    /// Reduces at most [`NOTE`] bytes.
    pub(super) fn reduce_noted(&mut self, call: Signature, data: &mut [u8], plan: &Plan) -> Result<(), CommError> {
        self.leave_note(data);
        self.operate(call, &[], |visit| {
            let size = visit.room.group.size();
            if size == 2 && !plan.wide && !plan.scales() {
                let theirs = visit.read_note(1 - visit.room.group.rank(), data.len());
                kernel::fold(plan, data, &theirs);
                return Ok(());
            }
            let notes: Vec<Reading<'_>> = (0..size).map(|rank| visit.read_note(rank, data.len())).collect();
            let inputs: Vec<&[u8]> = notes.iter().map(|note| &**note).collect();
            kernel::combine(plan, &inputs, data);
            Ok(())
        })
    }
}
