//! Gather and scatter: every part travels once, directly between its rank and the root.

use crate::{
    CommError, Rank,
    mesh::{Call, Mesh, Receive},
};

use super::{parts::part, tree::Tree};

/// Collects all ranks' parts on `root`, in `counts` elements of `element` bytes. Elsewhere `data` is my part alone.
///
/// Cost: `n − 1` messages at the root, `S` bytes in all, then ⌈log₂ n⌉ empty steps down.
pub fn gather(
    mesh: &mut Mesh,
    call: &Call,
    data: &mut [u8],
    (counts, element): (&[usize], usize),
    root: Rank,
) -> Result<(), CommError> {
    if mesh.group().rank() == root {
        for rank in (0..counts.len()).filter(|&rank| rank != root) {
            let into = &mut data[part(counts, element, rank)];
            mesh.exchange(call, None, Some((rank, Receive::Fill(into))))?;
        }
    } else {
        mesh.exchange(call, Some((root, data)), None)?;
    }
    Tree::new(mesh, root).spread(mesh, call, &mut [])
}

/// Hands out the parts of `root`, in `counts` elements of `element` bytes. Elsewhere `data` is my part alone.
///
/// Cost: ⌈log₂ n⌉ empty steps up, then `n − 1` messages at the root, `S` bytes in all.
pub fn scatter(
    mesh: &mut Mesh,
    call: &Call,
    data: &mut [u8],
    (counts, element): (&[usize], usize),
    root: Rank,
) -> Result<(), CommError> {
    Tree::new(mesh, root).report(mesh, call)?;
    if mesh.group().rank() != root {
        return mesh.exchange(call, None, Some((root, Receive::Fill(data))));
    }
    for rank in (0..counts.len()).filter(|&rank| rank != root) {
        mesh.exchange(call, Some((rank, &data[part(counts, element, rank)])), None)?;
    }
    Ok(())
}
