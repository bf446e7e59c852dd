//! Consistent hashing: which servers have which block.
//!
//! Every server stands at 64 places of a ring of numbers, and a block belongs to the servers that follow its own place. A
//! server that comes or goes changes only what lies between its places and those before them, `1/n` of all blocks; and
//! the one that has the first copy of a block is the next in line when the block's server is gone.

use super::Id;

/// Places of a server on the ring.
pub const VIRTUAL_NODES: u64 = 64;

/// Servers on a ring.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ring {
    places: Vec<(u64, Id)>,
    servers: usize,
}

impl Ring {
    /// A ring of these servers.
    pub fn new(servers: &[Id]) -> Self {
        let place = |server: Id, node: u64| (mix(mix(u64::from(server) + 1) ^ node), server);
        let mut places: Vec<(u64, Id)> =
            servers.iter().flat_map(|&server| (0..VIRTUAL_NODES).map(move |node| place(server, node))).collect();
        places.sort_unstable();
        Self { places, servers: servers.len() }
    }

    /// The servers of this key, as many as there should be copies or as there are: first the one that answers for it,
    /// then those that take over.
    pub fn owners(&self, key: u64, copies: usize) -> Vec<Id> {
        let first = self.places.partition_point(|&(place, _)| place < key);
        let mut owners: Vec<Id> = Vec::with_capacity(copies);
        for &(_, server) in self.places[first..].iter().chain(&self.places[..first]) {
            if owners.len() == copies.min(self.servers) {
                break;
            }
            if !owners.contains(&server) {
                owners.push(server);
            }
        }
        owners
    }
}

/// A number that depends on all bits of another (the finisher of SplitMix64).
pub(super) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn servers_have_similar_shares() {
        let ring = Ring::new(&[1, 2, 3, 4]);
        let mut counts = [0; 5];
        (0..10_000).for_each(|key| counts[ring.owners(mix(key), 1)[0] as usize] += 1);
        assert!(counts[1..].iter().all(|count| (1_500..3_500).contains(count)), "{counts:?}");
    }

    proptest! {
        #[test]
        fn whoever_goes_is_followed_by_its_copy_and_nothing_else_moves(
            servers in prop::collection::btree_set(1_u32..40, 2..9), gone in any::<prop::sample::Index>(), key: u64,
        ) {
            let servers: Vec<Id> = servers.into_iter().collect();
            let gone = servers[gone.index(servers.len())];
            let left: Vec<Id> = servers.iter().copied().filter(|&server| server != gone).collect();
            let before = Ring::new(&servers).owners(key, servers.len());
            let after = Ring::new(&left).owners(key, servers.len());
            let expected: Vec<Id> = before.into_iter().filter(|&server| server != gone).collect();
            prop_assert_eq!(after, expected);
        }

        #[test]
        fn owners_are_different_servers(servers in prop::collection::btree_set(1_u32..40, 0..9), key: u64, copies in 1_usize..5) {
            let servers: Vec<Id> = servers.into_iter().collect();
            let owners = Ring::new(&servers).owners(key, copies);
            prop_assert_eq!(owners.len(), copies.min(servers.len()));
            let different: std::collections::BTreeSet<Id> = owners.iter().copied().collect();
            prop_assert_eq!(different.len(), owners.len());
        }
    }
}
