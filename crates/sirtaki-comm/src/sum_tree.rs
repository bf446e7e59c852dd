//! One binary tree over all shards of a step, along which everything is added, whichever rank has which shards.
//!
//! The left part of `k` shards is the largest power of two below `k`, so that workers whose number is a power of two
//! have whole branches wherever that is possible, and send one sum each.

use std::ops::Range;

/// What is known of some neighbouring shards: the value of each largest branch that is complete, from left to right.
#[derive(Debug)]
pub struct Branches<T> {
    total: usize,
    branches: Vec<(Range<usize>, T)>,
}

impl<T> Branches<T> {
    /// Nothing yet of `total` shards.
    pub fn new(total: usize) -> Self {
        Self { total, branches: Vec::new() }
    }

    /// Adds the branch to the right of those that are there. Branches that are then complete are joined at once, so
    /// that there are never more than the tree is high on either side.
    pub fn add(&mut self, shards: Range<usize>, value: T, mut join: impl FnMut(&mut T, T)) {
        let (mut shards, mut value) = (shards, value);
        while let Some((left, mut sum)) = self.branches.pop_if(|(left, _)| siblings(self.total, left, &shards)) {
            join(&mut sum, value);
            (shards, value) = (left.start..shards.end, sum);
        }
        self.branches.push((shards, value));
    }

    /// What there is, with the shards it is of.
    pub fn into_branches(self) -> impl Iterator<Item = (Range<usize>, T)> {
        self.branches.into_iter()
    }

    /// What there is.
    pub fn into_values(self) -> impl Iterator<Item = T> {
        self.branches.into_iter().map(|(_, value)| value)
    }
}

/// The largest branches that consist of these shards.
pub fn branches(total: usize, shards: Range<usize>) -> Vec<Range<usize>> {
    let mut all = Branches::new(total);
    shards.for_each(|shard| all.add(shard..shard + 1, (), |(), ()| ()));
    all.branches.into_iter().map(|(shards, ())| shards).collect()
}

/// Where a branch of at least two shards is cut into its two parts.
pub fn middle(branch: &Range<usize>) -> usize {
    branch.start + branch.len().next_power_of_two() / 2
}

/// Whether two branches are the two parts of one.
fn siblings(total: usize, left: &Range<usize>, right: &Range<usize>) -> bool {
    let mut node = 0..total;
    while node.len() > 1 {
        let middle = middle(&node);
        if right.start >= middle && left.end <= middle {
            return *left == (node.start..middle) && *right == (middle..node.end);
        }
        node = if right.start < middle { node.start..middle } else { middle..node.end };
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The tree by its definition, in brackets.
    fn brackets(shards: Range<usize>) -> String {
        if shards.len() == 1 {
            return shards.start.to_string();
        }
        let middle = shards.start + shards.len().next_power_of_two() / 2;
        format!("({}+{})", brackets(shards.start..middle), brackets(middle..shards.end))
    }

    fn join(left: &mut String, right: String) {
        *left = format!("({left}+{right})");
    }

    proptest! {
        #[test]
        fn the_same_tree_however_shards_are_spread(total in 1_usize..70, cuts in prop::collection::vec(0_usize..70, 0..6)) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % (total + 1)).chain([0, total]).collect();
            cuts.sort_unstable();
            let mut all = Branches::new(total);
            for run in cuts.windows(2) {
                let mut some = Branches::new(total);
                (run[0]..run[1]).for_each(|shard| some.add(shard..shard + 1, shard.to_string(), join));
                let shards = branches(total, run[0]..run[1]);
                prop_assert!(shards.len() <= 2 * total.next_power_of_two().ilog2().max(1) as usize);
                let values: Vec<String> = some.into_values().collect();
                prop_assert_eq!(shards.len(), values.len());
                shards.into_iter().zip(values).for_each(|(shards, value)| all.add(shards, value, join));
            }
            prop_assert_eq!(all.into_values().collect::<Vec<_>>(), [brackets(0..total)]);
        }
    }

    #[test]
    fn equal_powers_of_two_are_whole_branches() {
        assert_eq!(branches(8, 4..6), vec![4..6]);
        assert_eq!(branches(16, 8..16), vec![8..16]);
        assert_eq!(branches(6, 0..3), vec![0..2, 2..3]);
        assert_eq!(branches(6, 3..6), vec![3..4, 4..6]);
        assert_eq!(brackets(0..6), "(((0+1)+(2+3))+(4+5))");
    }
}
