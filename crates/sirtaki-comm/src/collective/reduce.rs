//! Reduction to one rank.

use crate::{
    CommError, Plan, Rank,
    mesh::{Call, Mesh},
};

use super::tree::Tree;

/// Replaces `data` on `root` by the reduction; elsewhere it holds partial results afterwards. Factors are not applied.
///
/// Cost: ⌈log₂ n⌉ steps up a binomial tree with `S` bytes each, then ⌈log₂ n⌉ empty steps down.
pub fn reduce(mesh: &mut Mesh, call: &Call, plan: &Plan, data: &mut [u8], root: Rank) -> Result<(), CommError> {
    let tree = Tree::new(mesh, root);
    tree.fold(mesh, call, plan, data)?;
    tree.spread(mesh, call, &mut [])
}
