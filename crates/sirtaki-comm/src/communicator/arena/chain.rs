//! All-reduce of large messages: partial sums that pass from rank to rank without being copied.
//!
//! A message is cut into windows, a window into one block per rank. Block `b` of a window has one place in shared
//! memory. Rank `b` copies its block there, rank `b+1` adds its own to it in place, and so on round the ring; the last
//! rank keeps the result and leaves it for the others to copy out. All blocks are under way at once, so all ranks work
//! all the time.
//!
//! Cost per rank for `s` bytes: `s/n` copied in, `s·(n-1)/n` added in place, `s·(n-1)/n` copied out; `n+1` steps per
//! window. Nothing but the final result is read by more than one rank.
//!
//! **Why in place.** Between two ranks, writing results back into the place they were read from took 89 and 159 µs for
//! 1 MiB in two runs; writing them to a place of their own took 820 µs in both, with the same copies (two virtual EPYC
//! cores, while they were slow to reach each other; when they were fast there was no such gap). Our explanation, not
//! proven, is that a cache line is expensive to write when another core has only read it since. A scheme in which every
//! rank copies its data in and the others merely read it does that with every line, and was as slow.

use super::{enter::Visit, layout::PIECES, room::Room};
use crate::{CommError, Plan, Rank, kernel};

/// Windows that pass through one stage together, so that a rank that waited for a core finds several to work on.
const BATCH: usize = PIECES / 2;
/// Blocks are whole cache lines.
pub(super) const LINE: usize = 64;

/// Most bytes of a block; as many as its place has.
pub(super) fn largest_block(room: &Room) -> usize {
    room.memory.layout.region / PIECES
}

/// How a message of some length is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cut {
    bytes: usize,
    ranks: usize,
    /// Bytes of a block.
    block: usize,
    windows: usize,
}

impl Cut {
    fn new(bytes: usize, ranks: usize, largest_block: usize) -> Self {
        let windows = bytes.div_ceil(ranks * largest_block).max(1);
        let block = bytes.div_ceil(windows * ranks).next_multiple_of(LINE);
        Self { bytes, ranks, block, windows: bytes.div_ceil(block * ranks) }
    }

    fn block(&self, window: usize, block: usize) -> std::ops::Range<usize> {
        let start = ((window * self.ranks + block) * self.block).min(self.bytes);
        start..(start + self.block).min(self.bytes)
    }

    fn batches(&self) -> usize {
        self.windows.div_ceil(BATCH)
    }

    fn batch(&self, batch: usize) -> std::ops::Range<usize> {
        batch * BATCH..((batch + 1) * BATCH).min(self.windows)
    }

    /// Steps a rank has done once it has passed `stage` of `window`; stage `ranks` is copying out.
    fn steps(&self, window: usize, stage: usize) -> u32 {
        let batch = self.batch(window / BATCH);
        (batch.start * (self.ranks + 1) + stage * batch.len() + window - batch.start + 1) as u32
    }
}

/// Reduces `data` over all ranks, in blocks of at most `block` bytes if that is given.
pub(super) fn all_reduce(
    visit: &mut Visit<'_>,
    data: &mut [u8],
    plan: &Plan,
    block: Option<usize>,
) -> Result<(), CommError> {
    let largest = largest_block(visit.room);
    let cut = Cut::new(data.len(), visit.room.group.size(), block.map_or(largest, |block| block.min(largest)));
    for batch in 0..cut.batches() {
        if batch >= 2 {
            // The places were used two batches ago; all ranks must have copied out.
            visit.wait_for_all(cut.steps(cut.batch(batch - 2).end - 1, cut.ranks))?;
        }
        for stage in 0..cut.ranks {
            for window in cut.batch(batch) {
                add(visit, &cut, data, plan, (window, stage))?;
                visit.step();
            }
        }
        for window in cut.batch(batch) {
            copy_out(visit, &cut, data, window)?;
            visit.step();
        }
    }
    Ok(())
}

/// My contribution to the block that is mine at this stage.
fn add(
    visit: &Visit<'_>,
    cut: &Cut,
    data: &mut [u8],
    plan: &Plan,
    (window, stage): (usize, usize),
) -> Result<(), CommError> {
    let (rank, ranks) = (visit.room.group.rank(), cut.ranks);
    let block = (rank + ranks - stage) % ranks;
    let mine = &mut data[cut.block(window, block)];
    if stage > 0 {
        visit.wait_for((rank + ranks - 1) % ranks, cut.steps(window, stage - 1))?;
    }
    // SAFETY: the place belongs to the rank whose turn it is. At stage 0 all ranks have copied out what was here before
    // (see `all_reduce`); later the rank before me has announced that it is done.
    let mut place = unsafe { visit.room.memory.write(place(visit, window, block), mine.len()) };
    if stage == 0 {
        kernel::put(plan, &mut place, mine);
    } else if stage < ranks - 1 {
        kernel::scale(plan.dtype, mine, plan.before);
        kernel::fold(plan, &mut place, mine);
    } else if plan.after == 1.0 {
        kernel::fold_both_scaled(plan, &mut place, mine);
    } else {
        kernel::scale(plan.dtype, mine, plan.before);
        kernel::fold(plan, mine, &place);
        kernel::scale(plan.dtype, mine, plan.after);
        kernel::copy(&mut place, mine);
    }
    Ok(())
}

/// The results of a window, except for the block that I finished myself.
fn copy_out(visit: &Visit<'_>, cut: &Cut, data: &mut [u8], window: usize) -> Result<(), CommError> {
    let (rank, ranks) = (visit.room.group.rank(), cut.ranks);
    for turn in 2..=ranks {
        let block = (rank + turn) % ranks;
        let last: Rank = (block + ranks - 1) % ranks;
        visit.wait_for(last, cut.steps(window, ranks - 1))?;
        let mine = &mut data[cut.block(window, block)];
        // SAFETY: the last rank of this block has announced its result; the place is written again only after all
        // ranks, this one included, have announced that they copied it out.
        let result = unsafe { visit.room.memory.read(place(visit, window, block), mine.len()) };
        kernel::copy(mine, &result);
    }
    Ok(())
}

/// Where a block is added up.
fn place(visit: &Visit<'_>, window: usize, block: Rank) -> usize {
    visit.room.memory.layout.region(block) + (window % PIECES) * largest_block(visit.room)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_cut_covers_every_byte_once(bytes in 1_usize..3_000_000, ranks in 2_usize..9) {
            let cut = Cut::new(bytes, ranks, 64 << 10);
            let mut at = 0;
            for window in 0..cut.windows {
                for block in 0..ranks {
                    let range = cut.block(window, block);
                    prop_assert_eq!(range.start, at);
                    prop_assert!(range.len() <= 64 << 10);
                    at = range.end;
                }
            }
            prop_assert_eq!(at, bytes);
        }

        #[test]
        fn steps_count_up_by_one(bytes in 1_usize..9_000_000, ranks in 2_usize..9) {
            let cut = Cut::new(bytes, ranks, 64 << 10);
            let mut expected = 0;
            for batch in 0..cut.batches() {
                for stage in 0..=ranks {
                    for window in cut.batch(batch) {
                        expected += 1;
                        prop_assert_eq!(cut.steps(window, stage), expected);
                    }
                }
            }
        }
    }
}
