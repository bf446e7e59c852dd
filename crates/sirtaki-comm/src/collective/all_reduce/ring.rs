//! All-reduce around a ring.

use crate::{
    CommError, Plan,
    collective::{all_gather, parts::share, reduce_scatter},
    mesh::{Call, Mesh},
};

/// Reduce-scatter around the ring, then all-gather around it.
///
/// Cost: `2(n − 1)` steps of `S/n` bytes, so `2S(n − 1)/n` bytes each way, which no algorithm can undercut.
/// Between two ranks it is an exchange of halves and another of results.
pub fn ring(mesh: &mut Mesh, call: &Call, plan: &Plan, data: &mut [u8]) -> Result<(), CommError> {
    let (size, length, element) = (mesh.group().size(), data.len(), plan.dtype.size());
    let part = |rank| share(length, element, size, rank);
    reduce_scatter::ring(mesh, call, plan, data, part)?;
    all_gather::ring(mesh, call, data, part)
}
