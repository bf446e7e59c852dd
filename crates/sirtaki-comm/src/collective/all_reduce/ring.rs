//! All-reduce around a ring.

use crate::{
    CommError, Plan,
    collective::{all_gather, parts::share, reduce_scatter},
    mesh::{Call, Mesh},
};

/// Bytes of a step, unless set otherwise. A long message goes round in windows of one such piece per rank, so that what
/// was just received and reduced is sent on from the cache (measured between two ranks over loopback: 64 MiB in 20 ms
/// instead of 27 ms).
pub const PIECE: usize = 256 << 10;

/// Reduce-scatter around the ring, then all-gather around it, window by window, with steps of `piece` bytes.
///
/// Cost: `2(n − 1)` steps of `S/n` bytes (of a piece per window, if that is less), so `2S(n − 1)/n` bytes each way,
/// which is optimal. Between two ranks it is an exchange of halves and another of results.
pub fn ring(mesh: &mut Mesh, call: &Call, plan: &Plan, data: &mut [u8], piece: usize) -> Result<(), CommError> {
    let (size, element) = (mesh.group().size(), plan.dtype.size());
    let mut rest = data;
    loop {
        // Even an empty message goes round once, because that is how ranks notice that another one is not empty.
        let length = rest.len().min(size * piece);
        let (window, after) = rest.split_at_mut(length);
        let part = |rank| share(length, element, size, rank);
        reduce_scatter::ring(mesh, call, plan, window, part)?;
        all_gather::ring(mesh, call, window, part)?;
        if after.is_empty() {
            return Ok(());
        }
        rest = after;
    }
}
