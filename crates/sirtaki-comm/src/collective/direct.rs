//! Reductions by collecting: every rank takes its slice from all others, combines once, and distributes the result.
//!
//! Partial results never travel, so they may be kept in a type wider than the elements: this is how plans with
//! [`Plan::wide`] are carried out where an algorithm would have to send them. Inputs are combined in rank order.
//!
//! Cost for `n` ranks and `b` bytes: every rank sends and receives `b·(n-1)/n` twice, as in a ring, in messages of
//! `b/n²`; two exchanges per window instead of `2(n-1)` steps.
//!
//! The calling back end has already compared the ranks' calls; from in here the reductions are not visible.

use super::window::{SCRATCH, even, windows};
use crate::{
    CommError, Communicator, Plan, Reduction, Slice, SliceMut,
    communicator::check::{self, offsets},
    kernel,
    mesh::Scratch,
};

/// [`Communicator::all_reduce`] by collecting, over `comm`'s all_to_all and all_gather.
pub fn all_reduce(comm: &mut dyn Communicator, mut data: SliceMut<'_>, reduction: Reduction) -> Result<(), CommError> {
    let (rank, size) = (comm.group().rank(), comm.group().size());
    let plan = Plan::new(data.dtype(), reduction, size);
    let mut scratch = Scratch::default();
    // What is collected of one window is as long as the window, apart from rounding.
    let length = (SCRATCH / data.dtype().size()).saturating_sub(size);
    for window in windows(data.len(), length) {
        let mut window = data.part(window.start, window.end);
        let counts = even(window.len(), size);
        let starts = offsets(&counts);
        let parts = collect(comm, window.as_slice(), &counts, counts[rank], &mut scratch)?;
        kernel::combine(&plan, &parts, window.part(starts[rank], starts[rank + 1]).bytes_mut());
        comm.all_gather(window, &counts)?;
    }
    Ok(())
}

/// [`Communicator::reduce_scatter`] by collecting, over `comm`'s all_to_all.
pub fn reduce_scatter(
    comm: &mut dyn Communicator,
    mut all: SliceMut<'_>,
    counts: &[usize],
    reduction: Reduction,
) -> Result<(), CommError> {
    check::counts(comm.group(), counts, all.len())?;
    let (rank, size) = (comm.group().rank(), comm.group().size());
    let (dtype, starts) = (all.dtype(), offsets(counts));
    let plan = Plan::new(dtype, reduction, size);
    let (mut packed, mut scratch) = (Scratch::default(), Scratch::default());
    let longest = counts.iter().copied().max().unwrap_or(0);
    // Half of the memory for what is sent, half for what arrives.
    let length = SCRATCH / 2 / size / dtype.size();
    for window in windows(longest, length) {
        let cut = |r: usize| (starts[r] + window.start).min(starts[r + 1])..(starts[r] + window.end).min(starts[r + 1]);
        let sent: Vec<usize> = (0..size).map(|r| cut(r).len()).collect();
        let out = packed.bytes(sent.iter().sum::<usize>() * dtype.size());
        let mut at = 0;
        for r in 0..size {
            let part = all.part(cut(r).start, cut(r).end);
            out[at..at + part.bytes().len()].copy_from_slice(part.bytes());
            at += part.bytes().len();
        }
        let parts = collect(comm, Slice::new(dtype, out)?, &sent, sent[rank], &mut scratch)?;
        kernel::combine(&plan, &parts, all.part(cut(rank).start, cut(rank).end).bytes_mut());
    }
    Ok(())
}

/// Sends every rank its part of `out` and returns what came from all ranks, `count` elements each.
fn collect<'a>(
    comm: &mut dyn Communicator,
    out: Slice<'_>,
    sent: &[usize],
    count: usize,
    scratch: &'a mut Scratch,
) -> Result<Vec<&'a [u8]>, CommError> {
    let (size, bytes) = (sent.len(), count * out.dtype().size());
    let into = scratch.bytes(size * bytes);
    comm.all_to_all(out, sent, SliceMut::new(out.dtype(), into)?, &vec![count; size])?;
    let into = &*into;
    Ok((0..size).map(|rank| &into[rank * bytes..(rank + 1) * bytes]).collect())
}
