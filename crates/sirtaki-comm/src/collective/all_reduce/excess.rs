//! Fitting any number of ranks to a power of two: the first ranks pair up, and one of each pair works for both.

use crate::{
    CommError, Plan, Rank,
    mesh::{Call, Mesh, Receive},
};

/// `size` ranks reduced to a power-of-two number of positions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Positions {
    /// How many positions, a power of two.
    pub(super) count: usize,
    excess: usize,
}

impl Positions {
    fn new(size: usize) -> Self {
        let count = if size.is_power_of_two() { size } else { size.next_power_of_two() / 2 };
        Self { count, excess: size - count }
    }

    /// The rank that works at a position. Positions are in rank order.
    pub(super) fn rank(&self, position: usize) -> Rank {
        if position < self.excess { 2 * position } else { position + self.excess }
    }

    fn position(&self, rank: Rank) -> Option<usize> {
        if rank >= 2 * self.excess { Some(rank - self.excess) } else { rank.is_multiple_of(2).then_some(rank / 2) }
    }

    /// The other rank of my pair.
    fn partner(&self, rank: Rank) -> Option<Rank> {
        (rank < 2 * self.excess).then_some(rank ^ 1)
    }
}

/// Runs `work` on a power-of-two number of positions, with the data of the remaining ranks folded in before and the
/// result given to them afterwards.
pub(super) fn on_power_of_two(
    mesh: &mut Mesh,
    call: &Call,
    plan: &Plan,
    data: &mut [u8],
    work: impl FnOnce(&mut Mesh, Positions, usize, &mut [u8]) -> Result<(), CommError>,
) -> Result<(), CommError> {
    let positions = Positions::new(mesh.group().size());
    let rank = mesh.group().rank();
    match (positions.position(rank), positions.partner(rank)) {
        (Some(position), None) => work(mesh, positions, position, data),
        (Some(position), Some(partner)) => {
            mesh.exchange(call, None, Some((partner, Receive::Fold(plan, data))))?;
            work(mesh, positions, position, data)?;
            mesh.exchange(call, Some((partner, data)), None)
        }
        (None, partner) => {
            let partner = partner.unwrap_or(0);
            mesh.exchange(call, Some((partner, data)), None)?;
            mesh.exchange(call, None, Some((partner, Receive::Fill(data))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Positions;

    #[test]
    fn positions_are_filled_in_rank_order() {
        for size in 1..=20 {
            let positions = Positions::new(size);
            let ranks: Vec<_> = (0..positions.count).map(|position| positions.rank(position)).collect();
            assert!(ranks.is_sorted() && ranks.iter().all(|&rank| rank < size), "{ranks:?}");
            for rank in 0..size {
                match positions.position(rank) {
                    Some(position) => assert_eq!(positions.rank(position), rank),
                    None => assert_eq!(positions.partner(rank), Some(rank - 1)),
                }
            }
        }
    }
}
