//! Which rank sits where in a mesh: pure, from the hosts of the ranks and the sizes of the axes.

use sirtaki_comm::Rank;

use crate::{Error, Result};

/// Some ranks that belong together, and the host that all of them are on, if they are on one.
struct Block {
    ranks: Vec<Rank>,
    host: Option<usize>,
}

/// The ranks in the order of their coordinates, the last axis running fastest. `hosts` has the host of each rank.
///
/// Neighbours along the last axis talk most, so they share a host wherever a host has enough ranks left; the axis before
/// it comes next, and so on.
pub(super) fn arrange(hosts: &[usize], sizes: &[usize]) -> Vec<Rank> {
    let mut blocks: Vec<Block> =
        hosts.iter().enumerate().map(|(rank, &host)| Block { ranks: vec![rank], host: Some(host) }).collect();
    for &size in sizes.iter().rev() {
        blocks = grouped(blocks, size);
    }
    blocks.into_iter().flat_map(|block| block.ranks).collect()
}

/// Blocks of `size` blocks each: first those of one host, then whatever is left over, in order.
fn grouped(blocks: Vec<Block>, size: usize) -> Vec<Block> {
    let mut waiting: Vec<(usize, Vec<Block>)> = Vec::new();
    let mut left = Vec::new();
    let mut groups = Vec::new();
    for block in blocks {
        let Some(host) = block.host else {
            left.push(block);
            continue;
        };
        let place = waiting.iter().position(|(other, _)| *other == host).unwrap_or_else(|| {
            waiting.push((host, Vec::new()));
            waiting.len() - 1
        });
        let queue = &mut waiting[place].1;
        queue.push(block);
        if queue.len() == size {
            groups.push(joined(std::mem::take(queue), Some(host)));
        }
    }
    left.extend(waiting.into_iter().flat_map(|(_, queue)| queue));
    left.sort_by_key(|block| block.ranks[0]);
    while !left.is_empty() {
        let group: Vec<Block> = left.drain(..size.min(left.len())).collect();
        groups.push(joined(group, None));
    }
    groups.sort_by_key(|group| group.ranks[0]);
    groups
}

fn joined(blocks: Vec<Block>, host: Option<usize>) -> Block {
    Block { ranks: blocks.into_iter().flat_map(|block| block.ranks).collect(), host }
}

/// Refuses axes that do not make up a world of this size, and names sizes that would.
pub(super) fn check(axes: &[(&str, usize)], world: usize) -> Result<()> {
    for (index, (name, size)) in axes.iter().enumerate() {
        if name.is_empty() || axes[..index].iter().any(|(other, _)| other == name) {
            return Err(Error::setting(
                format!("axis {} of the mesh is called \"{name}\"", index + 1),
                "give every axis a name of its own",
            ));
        }
        if *size == 0 {
            return Err(Error::setting(
                format!("axis \"{name}\" of the mesh has no worker"),
                "give every axis at least 1",
            ));
        }
    }
    let product = axes.iter().try_fold(1_usize, |product, (_, size)| product.checked_mul(*size));
    if product == Some(world) {
        return Ok(());
    }
    let shape: Vec<String> = axes.iter().map(|(name, size)| format!("{name} {size}")).collect();
    let needed = product.map_or_else(|| "more workers than can be counted".to_owned(), |product| product.to_string());
    let problem = format!("a mesh of {} needs {needed}, but there are {world} workers", shape.join(" × "));
    Err(Error::setting(problem, proposal(axes, world)))
}

/// What would fit: one axis changed, or the sizes that any axis may have.
fn proposal(axes: &[(&str, usize)], world: usize) -> String {
    let fits = |index: usize| {
        let mut others = axes.iter().enumerate().filter(|(other, _)| *other != index);
        let others = others.try_fold(1_usize, |product, (_, (_, size))| product.checked_mul(*size))?;
        world.is_multiple_of(others).then(|| format!("{} {}", axes[index].0, world / others))
    };
    let single: Vec<String> = (0..axes.len()).filter_map(fits).collect();
    if single.is_empty() {
        let divisors: Vec<String> =
            (1..=world).filter(|size| world.is_multiple_of(*size)).map(|size| size.to_string()).collect();
        return format!("choose sizes among {} whose product is {world}", divisors.join(", "));
    }
    format!("{} would fit, or another number of workers", single.join(" or "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// How many groups along the last axis are spread over several hosts.
    fn spread(hosts: &[usize], order: &[Rank], size: usize) -> usize {
        order.chunks(size).filter(|group| group.iter().any(|&rank| hosts[rank] != hosts[group[0]])).count()
    }

    #[test]
    fn ranks_of_equal_hosts_keep_their_order() {
        assert_eq!(arrange(&[0, 0, 0, 0, 1, 1, 1, 1], &[2, 2, 2]), (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn the_last_axis_stays_inside_a_host_where_hosts_take_turns() {
        let order = arrange(&[0, 1, 0, 1], &[2, 2]);
        assert_eq!(order, [0, 2, 1, 3]);
    }

    #[test]
    fn what_is_left_over_is_put_together() {
        let hosts = [0, 0, 0, 1, 1, 1];
        let order = arrange(&hosts, &[3, 2]);
        assert_eq!(spread(&hosts, &order, 2), 1, "{order:?}");
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused_with_those_that_do() {
        let error = check(&[("data", 2), ("pipe", 4)], 12).unwrap_err();
        assert_eq!(error.to_string(), "a mesh of data 2 × pipe 4 needs 8, but there are 12 workers");
        assert_eq!(error.hint(), Some("data 3 or pipe 6 would fit, or another number of workers"));
        let error = check(&[("data", 4), ("pipe", 4)], 6).unwrap_err();
        assert_eq!(error.hint(), Some("choose sizes among 1, 2, 3, 6 whose product is 6"));
        assert!(check(&[("data", 2), ("data", 2)], 4).is_err());
        assert!(check(&[("data", 0)], 4).is_err());
        assert!(check(&[("a", usize::MAX), ("b", 2)], 4).is_err());
        assert!(check(&[("data", 2), ("pipe", 2)], 4).is_ok());
    }

    proptest! {
        #[test]
        fn every_rank_has_one_place_and_few_groups_are_spread(
            sizes in prop::collection::vec(1_usize..4, 1..4),
            seed in prop::collection::vec(0_usize..4, 27),
        ) {
            let world: usize = sizes.iter().product();
            let hosts = &seed[..world];
            let order = arrange(hosts, &sizes);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..world).collect::<Vec<_>>());
            let last = *sizes.last().unwrap();
            let whole: usize = (0..4).map(|host| hosts.iter().filter(|other| **other == host).count() / last).sum();
            prop_assert_eq!(spread(hosts, &order, last), world / last - whole);
        }
    }
}
