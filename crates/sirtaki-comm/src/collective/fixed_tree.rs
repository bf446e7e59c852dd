//! A reduction whose bits do not depend on which rank holds what.
//!
//! The inputs are numbered leaves, for example one per part of a training batch, spread over the ranks in any way. They
//! are combined along the fixed tree of [`kernel::combine_tree`] over the leaf numbers, so the result is the same for
//! one rank with all leaves and for many ranks with some each. An average divides by the number of leaves.
//!
//! Cost for `l` leaves of `b` bytes on `n` ranks: every leaf travels once, `l·b/n` out of and into every rank if they
//! are spread evenly, then the result of `b` bytes is gathered.

use super::window::{SCRATCH, even, windows};
use crate::{
    CommError, Communicator, Group, Plan, Rank, Reduction, Slice, SliceMut,
    communicator::check::offsets,
    kernel,
    mesh::Scratch,
    signature::{Kind, Signature},
};

/// Fills `out` on every rank with the reduction over the leaves `0..total_leaves`, of which this rank holds `leaves`,
/// each with its number. Every leaf has to be held exactly once; otherwise all ranks return an error.
pub fn all_reduce(
    comm: &mut dyn Communicator,
    leaves: &[(usize, Slice<'_>)],
    total_leaves: usize,
    mut out: SliceMut<'_>,
    reduction: Reduction,
) -> Result<(), CommError> {
    check_leaves(leaves, total_leaves, &out)?;
    let dtype = out.dtype();
    let signature = Signature::new(Kind::AllReduce, dtype, out.len()).reduction(reduction).counts(&[total_leaves]);
    let held = exchange_numbers(comm, leaves, total_leaves, signature)?;
    let order = find_holders(comm.group(), &held, total_leaves)?;
    let plan = Plan::new(dtype, reduction, total_leaves);
    let (rank, size) = (comm.group().rank(), comm.group().size());
    let most = held.iter().map(Vec::len).max().unwrap_or(0);
    // A window needs room for the leaves of one rank to send, and for one part of all leaves to receive.
    let length = (SCRATCH / dtype.size() / (most + total_leaves.div_ceil(size))).max(size);
    let (mut packed, mut scratch) = (Scratch::default(), Scratch::default());
    for window in windows(out.len(), length) {
        let counts = even(window.len(), size);
        let starts = offsets(&counts);
        let sent: Vec<usize> = counts.iter().map(|count| count * leaves.len()).collect();
        let received: Vec<usize> = held.iter().map(|numbers| numbers.len() * counts[rank]).collect();
        let outgoing = packed.bytes(window.len() * leaves.len() * dtype.size());
        pack(leaves, window.start, &starts, outgoing);
        let incoming = scratch.bytes(counts[rank] * total_leaves * dtype.size());
        comm.all_to_all(Slice::new(dtype, outgoing)?, &sent, SliceMut::new(dtype, incoming)?, &received)?;
        let bytes = counts[rank] * dtype.size();
        let rows: Vec<&[u8]> = order.iter().map(|&row| &incoming[row * bytes..(row + 1) * bytes]).collect();
        let mut window = out.part(window.start, window.end);
        kernel::combine_tree(&plan, &rows, window.part(starts[rank], starts[rank + 1]).bytes_mut());
        comm.all_gather(window, &counts)?;
    }
    Ok(())
}

/// The problems that this rank can see alone.
fn check_leaves(leaves: &[(usize, Slice<'_>)], total: usize, out: &SliceMut<'_>) -> Result<(), CommError> {
    if total == 0 {
        return Err(CommError::Invalid { problem: "a reduction needs at least one leaf".into() });
    }
    for (number, leaf) in leaves {
        let problem = if *number >= total {
            format!("leaf {number} is outside the {total} leaves of this reduction")
        } else if leaf.dtype() != out.dtype() {
            format!("leaf {number} is {}, the result is {}", leaf.dtype().name(), out.dtype().name())
        } else if leaf.len() != out.len() {
            format!("leaf {number} has {} elements, the result has {}", leaf.len(), out.len())
        } else {
            continue;
        };
        return Err(CommError::Invalid { problem });
    }
    Ok(())
}

/// The leaf numbers of every rank, after making sure that all ranks want the same reduction.
fn exchange_numbers(
    comm: &mut dyn Communicator,
    leaves: &[(usize, Slice<'_>)],
    total: usize,
    signature: Signature,
) -> Result<Vec<Vec<usize>>, CommError> {
    const HEADER: usize = Signature::SIZE + 8;
    let (rank, size) = (comm.group().rank(), comm.group().size());
    let mut headers = vec![[0u8; HEADER]; size];
    headers[rank][..Signature::SIZE].copy_from_slice(&signature.encode());
    headers[rank][Signature::SIZE..].copy_from_slice(&(leaves.len() as u64).to_le_bytes());
    comm.all_gather(headers.as_flattened_mut().into(), &vec![HEADER; size])?;
    let call = |header: &[u8; HEADER]| Signature::decode(&std::array::from_fn(|i| header[i]));
    Signature::compare_all(comm.group(), &headers.iter().map(call).collect::<Vec<_>>())?;
    let count = |header: &[u8; HEADER]| u64::from_le_bytes(std::array::from_fn(|i| header[Signature::SIZE + i]));
    let counts: Vec<usize> = headers.iter().map(|header| count(header).try_into().unwrap_or(usize::MAX)).collect();
    if let Some(greedy) = counts.iter().position(|&count| count > total) {
        let differences = format!("{} holds more leaves than the {total} there are", comm.group().describe(greedy));
        return Err(CommError::Mismatch { rank: comm.group().world_rank(greedy), differences });
    }
    let starts = offsets(&counts);
    let mut numbers = vec![0i64; starts[size]];
    let mine = leaves.iter().map(|(number, _)| *number as i64);
    numbers[starts[rank]..starts[rank + 1]].iter_mut().zip(mine).for_each(|(slot, number)| *slot = number);
    comm.all_gather((&mut numbers).into(), &counts)?;
    let of = |r: usize| numbers[starts[r]..starts[r + 1]].iter().map(|&number| number as usize).collect();
    Ok((0..size).map(of).collect())
}

/// For every leaf, its place among all leaves held, in rank order.
fn find_holders(group: &Group, held: &[Vec<usize>], total: usize) -> Result<Vec<usize>, CommError> {
    let mut holders: Vec<Option<(Rank, usize)>> = vec![None; total];
    let all = held.iter().enumerate().flat_map(|(rank, numbers)| numbers.iter().map(move |number| (rank, *number)));
    for (place, (rank, number)) in all.enumerate() {
        let who = group.describe(rank);
        let differences = match holders.get_mut(number) {
            None => format!("{who} holds leaf {number}, which is outside the {total} leaves of this reduction"),
            Some(Some((other, _))) => format!("leaf {number} is held twice, by {} and {who}", group.describe(*other)),
            Some(free) => {
                *free = Some((rank, place));
                continue;
            }
        };
        return Err(CommError::Mismatch { rank: group.world_rank(rank), differences });
    }
    let place = |(number, holder): (usize, &Option<(Rank, usize)>)| {
        let problem = || format!("leaf {number} of {total} is held by none of the {} ranks", held.len());
        holder.map(|(_, place)| place).ok_or_else(|| CommError::Invalid { problem: problem() })
    };
    holders.iter().enumerate().map(place).collect()
}

/// Lays out, for every rank in turn, its part of the window at `at` of all leaves.
fn pack(leaves: &[(usize, Slice<'_>)], at: usize, starts: &[usize], out: &mut [u8]) {
    let mut end = 0;
    for part in starts.windows(2) {
        for (_, leaf) in leaves {
            let size = leaf.dtype().size();
            let bytes = &leaf.bytes()[(at + part[0]) * size..(at + part[1]) * size];
            out[end..end + bytes.len()].copy_from_slice(bytes);
            end += bytes.len();
        }
    }
}
