//! Reduce-scatter.

use std::ops::Range;

use crate::{
    CommError, Plan,
    mesh::{Call, Mesh, Receive},
};

use super::{
    all_reduce,
    parts::{pair, part},
};

/// Up to this size reducing everything everywhere in log₂ n steps is faster than the ring.
const SMALL: usize = 16 << 10;

/// Reduces `data`, in `counts` elements per rank; afterwards only my own part is meaningful. Factors are not applied.
///
/// Cost: around a ring `n − 1` steps and `S − S/n` bytes each way; small data as in [`all_reduce::doubling`].
pub fn reduce_scatter(
    mesh: &mut Mesh,
    call: &Call,
    plan: &Plan,
    data: &mut [u8],
    counts: &[usize],
) -> Result<(), CommError> {
    if data.len() <= SMALL {
        return all_reduce::doubling(mesh, call, plan, data);
    }
    ring(mesh, call, plan, data, |rank| part(counts, plan.dtype.size(), rank))
}

/// Partial sums travel around the ring, each growing by one rank's part per step, and end at their owner.
/// They are added up while the rest of them is still arriving.
pub(super) fn ring(
    mesh: &mut Mesh,
    call: &Call,
    plan: &Plan,
    data: &mut [u8],
    part: impl Fn(usize) -> Range<usize>,
) -> Result<(), CommError> {
    let (rank, size) = (mesh.group().rank(), mesh.group().size());
    for step in 1..size {
        let (leaving, arriving) = ((rank + size - step) % size, (rank + 2 * size - step - 1) % size);
        let (send, receive) = pair(data, part(leaving), part(arriving));
        let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
        mesh.exchange(call, Some((next, send)), Some((previous, Receive::Fold(plan, receive))))?;
    }
    Ok(())
}
