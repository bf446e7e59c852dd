//! The rule that picks an all-reduce algorithm.

use super::Algorithm;

/// How the ranks of a group reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// All on one host, through shared memory.
    Shared,
    /// One link between any two, all equally fast.
    Network,
    /// Several hosts with several ranks each.
    Layered,
}

/// Up to this size a message costs its latency, so the fewest steps win.
const FEWEST_STEPS: usize = 16 << 10;
/// Between two ranks doubling sends twice the bytes of the others in half the steps, which pays up to a larger size.
const FEWEST_STEPS_OF_TWO: usize = 32 << 10;
/// Up to this size halving's fewer steps beat the ring, whose steps each handle a piece that stays in the cache.
const FEWER_STEPS: usize = 512 << 10;

/// The all-reduce algorithm for `bytes` of data on each of `size` ranks. The same on every rank, as it must be.
pub fn choose(bytes: usize, size: usize, topology: Topology) -> Algorithm {
    match topology {
        Topology::Shared => Algorithm::Flat,
        Topology::Layered => Algorithm::Layered,
        Topology::Network if size <= 2 => {
            if bytes <= FEWEST_STEPS_OF_TWO {
                Algorithm::Doubling
            } else {
                Algorithm::Ring
            }
        }
        Topology::Network if bytes <= FEWEST_STEPS => Algorithm::Doubling,
        // Otherwise halving moves everything twice more for the remaining ranks.
        Topology::Network if bytes <= FEWER_STEPS && size.is_power_of_two() => Algorithm::Halving,
        Topology::Network => Algorithm::Ring,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Algorithm::{Doubling, Flat, Halving, Ring},
        Topology::{Layered, Network, Shared},
        *,
    };

    #[test]
    fn the_table() {
        for (bytes, size, topology, expected) in [
            (0, 1, Network, Doubling),
            (4, 2, Network, Doubling),
            (FEWEST_STEPS_OF_TWO, 2, Network, Doubling),
            (FEWEST_STEPS_OF_TWO + 1, 2, Network, Ring),
            (FEWEST_STEPS, 16, Network, Doubling),
            (FEWEST_STEPS + 1, 16, Network, Halving),
            (FEWEST_STEPS + 1, 12, Network, Ring),
            (FEWER_STEPS, 4, Network, Halving),
            (FEWER_STEPS + 1, 4, Network, Ring),
            (1 << 30, 3, Network, Ring),
            (4, 8, Shared, Flat),
            (1 << 30, 8, Shared, Flat),
            (4, 8, Layered, Algorithm::Layered),
        ] {
            assert_eq!(choose(bytes, size, topology), expected, "{bytes} bytes, {size} ranks, {topology:?}");
        }
    }
}
