//! All-reduce of data that is already in shared memory: every rank reduces one part of all ranks' data in place.
//!
//! Cost per rank for `s` bytes: `s` read, `s` written, one step. Nothing is copied.

use super::enter::Visit;
use crate::{CommError, Plan, buffer::SharedMemory, kernel};

const LINE: usize = 64;
/// Small enough that a piece of the result stays in the first-level cache while it is handed out.
const PIECE: usize = 8 << 10;

/// Reduces the `length` bytes at `offset` of every rank's segment.
pub(super) fn all_reduce(
    visit: &mut Visit<'_>,
    memory: &SharedMemory,
    (offset, length): (usize, usize),
    plan: &Plan,
) -> Result<(), CommError> {
    let (rank, ranks) = (visit.room.group.rank(), visit.room.group.size());
    let share = length.div_ceil(ranks).next_multiple_of(LINE);
    let mine = (rank * share).min(length)..((rank + 1) * share).min(length);
    let mut at = mine.start;
    while at < mine.end {
        let next = (at + PIECE).min(mine.end);
        reduce(memory, offset + at, next - at, plan);
        at = next;
    }
    visit.step();
    visit.wait_for_all(1)
}

fn reduce(memory: &SharedMemory, at: usize, length: usize, plan: &Plan) {
    // SAFETY: every rank has entered this operation with this stretch of its segment borrowed for it, and only this
    // rank touches this part of it until its step is announced. A rank that gives up meanwhile detaches its own mapping
    // of its segment and touches no other, so that even then nobody else has these pages. The segments are distinct
    // mappings.
    let mut places: Vec<&mut [u8]> = memory
        .segments()
        .iter()
        .map(|segment| unsafe { std::slice::from_raw_parts_mut(segment.start().add(at), length) })
        .collect();
    if let [a, b] = places.as_mut_slice()
        && !plan.wide
        && !plan.scales()
    {
        return kernel::fold_both(plan, a, b);
    }
    let mut result = Piece([0; PIECE]);
    let result = &mut result.0[..length];
    let inputs: Vec<&[u8]> = places.iter().map(|place| &**place).collect();
    kernel::combine(plan, &inputs, result);
    for place in places {
        kernel::copy(place, result);
    }
}

#[repr(align(64))]
struct Piece([u8; PIECE]);
