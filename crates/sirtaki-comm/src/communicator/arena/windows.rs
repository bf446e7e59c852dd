//! Everything but the plain all-reduce: data passes through the regions in rounds.
//!
//! A region has two halves, used alternately. In a round a rank writes one half of its own region, announces it, and
//! reads the halves of others. A half is written again two rounds later, when its readers have announced the round
//! between, which they do after reading. So one step per round and rank is all the synchronisation there is.

use std::ops::Range;

use super::{enter::Visit, memory::Reading};
use crate::{CommError, Plan, Rank, kernel};

const LINE: usize = 64;

impl Visit<'_> {
    fn rank(&self) -> Rank {
        self.room.group.rank()
    }

    fn size(&self) -> usize {
        self.room.group.size()
    }

    /// Bytes of half a region.
    fn half(&self) -> usize {
        self.room.memory.layout.region / 2
    }

    /// Bytes that each rank has of a half that holds something for every rank.
    fn share(&self) -> usize {
        self.half() / self.size() / LINE * LINE
    }

    /// Writes my half of this round.
    fn put(&self, round: usize, at: usize, bytes: &[u8]) {
        let place = self.place(self.rank(), round, at, bytes.len());
        // SAFETY: the readers of two rounds ago are done, see the module's header; my own region has no other writer.
        kernel::copy(&mut unsafe { self.room.memory.write(place, bytes.len()) }, bytes);
    }

    /// What `rank` wrote in this round, which it has announced.
    fn view(&self, rank: Rank, round: usize, at: usize, length: usize) -> Reading<'_> {
        // SAFETY: `rank` announced this round and overwrites this half only after I have announced the next one.
        unsafe { self.room.memory.read(self.place(rank, round, at, length), length) }
    }

    /// Where the `length` bytes from `at` lie in the half that `rank` writes in this round.
    fn place(&self, rank: Rank, round: usize, at: usize, length: usize) -> usize {
        assert!(at + length <= self.half());
        self.room.memory.layout.region(rank) + (round % 2) * self.half() + at
    }

    /// Stretch `round` of `range` when it is processed `step` bytes at a time; empty when there is none left.
    fn stretch(range: &Range<usize>, step: usize, round: usize) -> Range<usize> {
        let start = (range.start + round * step).min(range.end);
        start..(start + step).min(range.end)
    }
}

fn rounds(ranges: &[Range<usize>], step: usize) -> usize {
    ranges.iter().map(|range| range.len().div_ceil(step)).max().unwrap_or(0)
}

/// Copies `data` of `root` to all ranks.
pub(super) fn broadcast(visit: &mut Visit<'_>, data: &mut [u8], root: Rank) -> Result<(), CommError> {
    let (whole, step) = (0..data.len(), visit.half());
    for round in 0..data.len().div_ceil(step) {
        let stretch = Visit::stretch(&whole, step, round);
        if visit.rank() == root {
            visit.wait_for_all(round as u32)?;
            visit.put(round, 0, &data[stretch]);
            visit.step();
        } else {
            visit.step();
            visit.wait_for(root, round as u32 + 1)?;
            kernel::copy(&mut data[stretch.clone()], &visit.view(root, round, 0, stretch.len()));
        }
    }
    Ok(())
}

/// Completes `all`, of which rank `r` brings the bytes `parts[r]`.
pub(super) fn all_gather(visit: &mut Visit<'_>, all: &mut [u8], parts: &[Range<usize>]) -> Result<(), CommError> {
    let step = visit.half();
    for round in 0..rounds(parts, step) {
        let mine = Visit::stretch(&parts[visit.rank()], step, round);
        visit.put(round, 0, &all[mine]);
        visit.step();
        for rank in visit.others() {
            let theirs = Visit::stretch(&parts[rank], step, round);
            visit.wait_for(rank, round as u32 + 1)?;
            kernel::copy(&mut all[theirs.clone()], &visit.view(rank, round, 0, theirs.len()));
        }
    }
    Ok(())
}

/// Collects parts on `root`; `data` is everything there and the rank's own part elsewhere.
pub(super) fn gather(
    visit: &mut Visit<'_>,
    data: &mut [u8],
    parts: &[Range<usize>],
    root: Rank,
) -> Result<(), CommError> {
    let step = visit.half();
    for round in 0..rounds(parts, step) {
        if visit.rank() != root {
            visit.wait_for(root, round as u32)?;
            visit.put(round, 0, &data[Visit::stretch(&(0..data.len()), step, round)]);
            visit.step();
            continue;
        }
        visit.step();
        for rank in visit.others() {
            let theirs = Visit::stretch(&parts[rank], step, round);
            visit.wait_for(rank, round as u32 + 1)?;
            kernel::copy(&mut data[theirs.clone()], &visit.view(rank, round, 0, theirs.len()));
        }
    }
    Ok(())
}

/// Hands out parts from `root`; `data` is everything there and the rank's own part elsewhere.
pub(super) fn scatter(
    visit: &mut Visit<'_>,
    data: &mut [u8],
    parts: &[Range<usize>],
    root: Rank,
) -> Result<(), CommError> {
    let step = visit.share();
    for round in 0..rounds(parts, step) {
        if visit.rank() == root {
            visit.wait_for_all(round as u32)?;
            for rank in visit.others() {
                visit.put(round, rank * step, &data[Visit::stretch(&parts[rank], step, round)]);
            }
            visit.step();
            continue;
        }
        visit.step();
        visit.wait_for(root, round as u32 + 1)?;
        let mine = Visit::stretch(&(0..data.len()), step, round);
        kernel::copy(&mut data[mine.clone()], &visit.view(root, round, visit.rank() * step, mine.len()));
    }
    Ok(())
}

/// Sends the bytes `sent[r]` of `out` to rank `r` and fills `received[r]` of `into`, in `rounds` rounds.
pub(super) fn all_to_all(
    visit: &mut Visit<'_>,
    (out, sent): (&[u8], &[Range<usize>]),
    (into, received): (&mut [u8], &[Range<usize>]),
    largest: usize,
) -> Result<(), CommError> {
    let (step, me) = (visit.share(), visit.rank());
    into[received[me].clone()].copy_from_slice(&out[sent[me].clone()]);
    for round in 0..largest.div_ceil(step) {
        for rank in visit.others() {
            visit.put(round, rank * step, &out[Visit::stretch(&sent[rank], step, round)]);
        }
        visit.step();
        for rank in visit.others() {
            let theirs = Visit::stretch(&received[rank], step, round);
            visit.wait_for(rank, round as u32 + 1)?;
            kernel::copy(&mut into[theirs.clone()], &visit.view(rank, round, me * step, theirs.len()));
        }
    }
    Ok(())
}

/// Reduces every part of `all` on the rank it belongs to.
pub(super) fn reduce_scatter(
    visit: &mut Visit<'_>,
    all: &mut [u8],
    parts: &[Range<usize>],
    plan: &Plan,
) -> Result<(), CommError> {
    let (step, me) = (visit.share(), visit.rank());
    for round in 0..rounds(parts, step) {
        for (rank, part) in parts.iter().enumerate() {
            visit.put(round, rank * step, &all[Visit::stretch(part, step, round)]);
        }
        visit.step();
        visit.wait_for_all(round as u32 + 1)?;
        let mine = Visit::stretch(&parts[me], step, round);
        combine(visit, (round, me * step), plan, &mut all[mine]);
    }
    Ok(())
}

/// Reduces `data` where no partial result may be stored in its own type: every rank combines one block from all inputs
/// and distributes the result, to `root` alone if there is one.
pub(super) fn reduce_widely(
    visit: &mut Visit<'_>,
    data: &mut [u8],
    plan: &Plan,
    root: Option<Rank>,
) -> Result<(), CommError> {
    let (step, me) = (visit.share(), visit.rank());
    let whole = 0..data.len();
    for round in 0..data.len().div_ceil(step * visit.size()) {
        let window = Visit::stretch(&whole, step * visit.size(), round);
        visit.put(round, 0, &data[window.clone()]);
        visit.step();
        visit.wait_for_all(2 * round as u32 + 1)?;
        let mine = Visit::stretch(&window, step, me);
        combine(visit, (round, me * step), plan, &mut data[mine.clone()]);
        visit.put(round, me * step, &data[mine]);
        visit.step();
        if root.is_some_and(|root| root != me) {
            continue;
        }
        for rank in visit.others() {
            let theirs = Visit::stretch(&window, step, rank);
            visit.wait_for(rank, 2 * round as u32 + 2)?;
            kernel::copy(&mut data[theirs.clone()], &visit.view(rank, round, rank * step, theirs.len()));
        }
    }
    Ok(())
}

/// `into` becomes the reduction of what all ranks have written at this place of this round's half.
fn combine(visit: &Visit<'_>, (round, at): (usize, usize), plan: &Plan, into: &mut [u8]) {
    let views: Vec<Reading<'_>> = (0..visit.size()).map(|rank| visit.view(rank, round, at, into.len())).collect();
    let inputs: Vec<&[u8]> = views.iter().map(|view| &**view).collect();
    kernel::combine(plan, &inputs, into);
}
