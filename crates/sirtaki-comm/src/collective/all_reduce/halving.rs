//! All-reduce by recursive halving and doubling, known as Rabenseifner's algorithm.

use crate::{
    CommError, Plan,
    collective::parts::{pair, share},
    mesh::{Call, Mesh, Receive},
};

use super::excess::on_power_of_two;

/// Partners at distance n/2, n/4, … each keep half of what they hold and reduce it, until every rank owns one share;
/// then the same in reverse, collecting.
///
/// Cost: `2 log₂ n` steps and `2S(n − 1)/n` bytes each way: the bytes of the ring in fewer steps, but the partners are
/// far apart. Where `n` is not a power of two, two more steps of `S` bytes.
pub fn halving(mesh: &mut Mesh, call: &Call, plan: &Plan, data: &mut [u8]) -> Result<(), CommError> {
    let (length, element) = (data.len(), plan.dtype.size());
    on_power_of_two(mesh, call, plan, data, |mesh, positions, position, data| {
        // The shares of all positions that agree with `position` in all bits from `distance` upwards.
        let block = |position: usize, distance: usize| {
            let first = position & !(distance - 1);
            let begin = share(length, element, positions.count, first).start;
            begin..share(length, element, positions.count, first + distance - 1).end
        };
        let mut distance = positions.count / 2;
        while distance > 0 {
            let other = position ^ distance;
            let (send, receive) = pair(data, block(other, distance), block(position, distance));
            let partner = positions.rank(other);
            mesh.exchange(call, Some((partner, send)), Some((partner, Receive::Fold(plan, receive))))?;
            distance /= 2;
        }
        distance = 1;
        while distance < positions.count {
            let other = position ^ distance;
            let (send, receive) = pair(data, block(position, distance), block(other, distance));
            let partner = positions.rank(other);
            mesh.exchange(call, Some((partner, send)), Some((partner, Receive::Fill(receive))))?;
            distance *= 2;
        }
        Ok(())
    })
}
