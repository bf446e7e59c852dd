//! Barrier.

use crate::{
    CommError,
    mesh::{Call, Mesh, Receive},
};

/// Returns once every rank has called it.
///
/// Cost: ⌈log₂ n⌉ empty steps; in step `k` every rank tells the rank `2ᵏ` ahead what it knows (dissemination).
pub fn barrier(mesh: &mut Mesh, call: &Call) -> Result<(), CommError> {
    let (rank, size) = (mesh.group().rank(), mesh.group().size());
    let mut distance = 1;
    while distance < size {
        let (to, from) = ((rank + distance) % size, (rank + size - distance) % size);
        mesh.exchange(call, Some((to, &[])), Some((from, Receive::Fill(&mut []))))?;
        distance *= 2;
    }
    Ok(())
}
