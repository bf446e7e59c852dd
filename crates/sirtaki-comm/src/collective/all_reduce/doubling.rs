//! All-reduce by recursive doubling.

use crate::{
    CommError, Plan, kernel,
    mesh::{Call, Mesh, Receive},
};

use super::excess::on_power_of_two;

/// Every rank exchanges everything with partners at distance 1, 2, 4, … and adds.
///
/// Cost: log₂ n steps of `S` bytes each way, two more where `n` is not a power of two, and `S` bytes of memory. That is
/// the fewest steps possible, so it suits small data. Both partners put the lower one's data first, because even a
/// commutative addition may pick between two NaNs by order.
pub fn doubling(mesh: &mut Mesh, call: &Call, plan: &Plan, data: &mut [u8]) -> Result<(), CommError> {
    on_power_of_two(mesh, call, plan, data, |mesh, positions, position, data| {
        mesh.with_scratch(|mesh, scratch| {
            let theirs = scratch.bytes(data.len());
            let mut distance = 1;
            while distance < positions.count {
                let partner = positions.rank(position ^ distance);
                mesh.exchange(call, Some((partner, data)), Some((partner, Receive::Fill(theirs))))?;
                if position & distance == 0 {
                    kernel::fold(plan, data, theirs);
                } else {
                    kernel::fold(plan, theirs, data);
                    data.copy_from_slice(theirs);
                }
                distance *= 2;
            }
            Ok(())
        })
    })
}
