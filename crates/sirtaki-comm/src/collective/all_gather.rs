//! All-gather.

use std::ops::Range;

use crate::{
    CommError,
    mesh::{Call, Mesh, Receive},
};

use super::parts::{pair, part};

/// Up to this size the number of steps matters more than the bytes per link.
const SMALL: usize = 64 << 10;

/// Collects all ranks' parts of `data`, in `counts` elements of `element` bytes.
///
/// Cost: around a ring `n − 1` steps and `S − S/n` bytes each way; for small data and a power-of-two number of ranks
/// log₂ n steps with the same bytes.
pub fn all_gather(
    mesh: &mut Mesh,
    call: &Call,
    data: &mut [u8],
    (counts, element): (&[usize], usize),
) -> Result<(), CommError> {
    if data.len() <= SMALL && counts.len().is_power_of_two() {
        doubling(mesh, call, data, |rank| part(counts, element, rank))
    } else {
        ring(mesh, call, data, |rank| part(counts, element, rank))
    }
}

/// Parts travel around the ring; each step hands on the part that came last.
pub(super) fn ring(
    mesh: &mut Mesh,
    call: &Call,
    data: &mut [u8],
    part: impl Fn(usize) -> Range<usize>,
) -> Result<(), CommError> {
    let (rank, size) = (mesh.group().rank(), mesh.group().size());
    for step in 1..size {
        let (mine, theirs) = ((rank + size - step + 1) % size, (rank + size - step) % size);
        let (send, receive) = pair(data, part(mine), part(theirs));
        let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
        mesh.exchange(call, Some((next, send)), Some((previous, Receive::Fill(receive))))?;
    }
    Ok(())
}

/// Ranks `2ᵏ` apart exchange blocks of `2ᵏ` parts, which lie side by side.
fn doubling(
    mesh: &mut Mesh,
    call: &Call,
    data: &mut [u8],
    part: impl Fn(usize) -> Range<usize>,
) -> Result<(), CommError> {
    let (rank, size) = (mesh.group().rank(), mesh.group().size());
    let mut distance = 1;
    while distance < size {
        let block = |rank: usize| {
            let first = rank & !(distance - 1);
            part(first).start..part(first + distance - 1).end
        };
        let partner = rank ^ distance;
        let (send, receive) = pair(data, block(rank), block(partner));
        mesh.exchange(call, Some((partner, send)), Some((partner, Receive::Fill(receive))))?;
        distance *= 2;
    }
    Ok(())
}
