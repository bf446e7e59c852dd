//! All-reduce over a tree.

use crate::{
    CommError, Plan,
    collective::{broadcast, tree::Tree},
    mesh::{Call, Mesh},
};

/// Reduces to rank 0 over a binomial tree, then broadcasts over it.
///
/// Cost: `2⌈log₂ n⌉` steps of `S` bytes. Half the ranks only talk to one other, so it suits slow, uneven links.
pub fn tree(mesh: &mut Mesh, call: &Call, plan: &Plan, data: &mut [u8]) -> Result<(), CommError> {
    Tree::new(mesh, 0).fold(mesh, call, plan, data)?;
    broadcast::spread(mesh, call, data, 0)
}
