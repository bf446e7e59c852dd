//! All-to-all.

use crate::{
    CommError,
    mesh::{Call, Mesh, Receive},
};

use super::parts::part;

/// Sends the part of `out` for each rank to it and fills `into` with what each rank sends, by counts of elements of
/// `element` bytes.
///
/// Cost: `n − 1` steps; in step `k` every rank sends to the rank `k` ahead and receives from the rank `k` behind, so
/// every link carries exactly its own bytes.
pub fn all_to_all(
    mesh: &mut Mesh,
    call: &Call,
    (out, sent): (&[u8], &[usize]),
    (into, received): (&mut [u8], &[usize]),
    element: usize,
) -> Result<(), CommError> {
    let (rank, size) = (mesh.group().rank(), mesh.group().size());
    into[part(received, element, rank)].copy_from_slice(&out[part(sent, element, rank)]);
    for distance in 1..size {
        let (to, from) = ((rank + distance) % size, (rank + size - distance) % size);
        let receive = Receive::Fill(&mut into[part(received, element, from)]);
        mesh.exchange(call, Some((to, &out[part(sent, element, to)])), Some((from, receive)))?;
    }
    Ok(())
}
