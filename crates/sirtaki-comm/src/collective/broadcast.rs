//! Broadcast.

use crate::{
    CommError, Rank,
    mesh::{Call, Mesh},
};

use super::tree::Tree;

/// From this size on bandwidth matters more than the number of steps.
const LARGE: usize = 512 << 10;
/// A piece of a large broadcast: long enough to hide a step, short enough to start the next rank early.
const PIECE: usize = 256 << 10;

/// Replaces `data` by that of `root`.
///
/// Cost: ⌈log₂ n⌉ empty steps up, then ⌈log₂ n⌉ steps down a binomial tree with `S` bytes each; for large data and more
/// than two ranks instead a chain in pieces, where every rank sends and receives `S` bytes once, in `S/piece + n − 2`
/// steps.
pub fn broadcast(mesh: &mut Mesh, call: &Call, data: &mut [u8], root: Rank) -> Result<(), CommError> {
    let tree = Tree::new(mesh, root);
    tree.report(mesh, call)?;
    spread(mesh, call, data, root)
}

/// The way down alone, after something that has already made sure that all ranks have begun.
pub(super) fn spread(mesh: &mut Mesh, call: &Call, data: &mut [u8], root: Rank) -> Result<(), CommError> {
    let tree = Tree::new(mesh, root);
    if data.len() >= LARGE && mesh.group().size() > 2 {
        tree.pass_along(mesh, call, data, PIECE)
    } else {
        tree.spread(mesh, call, data)
    }
}
