//! Which rank runs where: hosts are filled in order, so that neighbours in rank are neighbours in place.

use std::{num::NonZeroUsize, ops::Range};

use super::hosts::{HostSlots, MOST};
use crate::Advice;

/// The ranks of a job and their hosts. There is at least one host, and every host has at least one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// In the order of the ranks.
    pub hosts: Vec<HostPlan>,
}

/// The ranks of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPlan {
    /// Its name as the user or the scheduler gave it.
    pub host: String,
    /// Its ranks.
    pub ranks: Range<usize>,
}

/// The place of one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its number in the job.
    pub rank: usize,
    /// How many ranks the job has.
    pub size: usize,
    /// Its number on its host.
    pub local_rank: usize,
    /// How many ranks its host has.
    pub local_size: usize,
    /// The number of its host.
    pub cross_rank: usize,
    /// How many hosts there are.
    pub cross_size: usize,
}

impl Plan {
    /// All ranks on one host that declares no slots: any number is accepted.
    pub fn on_one(host: impl Into<String>, ranks: NonZeroUsize) -> Result<Self, Advice> {
        Self::new(&[HostSlots { host: host.into(), slots: 1 }], Some(ranks), true)
    }

    /// Fills `hosts` in order with `ranks`, or with as many as they have slots. Hosts that are not needed are left out.
    ///
    /// More ranks than slots are refused, unless `oversubscribe` allows them; then every host gets more by the same
    /// factor.
    pub fn new(hosts: &[HostSlots], ranks: Option<NonZeroUsize>, oversubscribe: bool) -> Result<Self, Advice> {
        let slots = hosts.iter().map(|host| host.slots).fold(0, usize::saturating_add);
        let ranks = ranks.map_or(slots, NonZeroUsize::get);
        if ranks > MOST {
            let hint = "give the number of ranks with -n";
            return Err(Advice::new(format!("{ranks} ranks are too many; at most {MOST} can work together"), hint));
        }
        if ranks > slots && !oversubscribe {
            return Err(too_few(hosts, slots, ranks));
        }
        let mut plan = Self { hosts: Vec::new() };
        let mut room = 0;
        for HostSlots { host, slots: own } in hosts {
            let begin = plan.size();
            room += own;
            let end = if ranks > slots { ranks * room / slots } else { room.min(ranks) };
            if end > begin {
                plan.hosts.push(HostPlan { host: host.clone(), ranks: begin..end });
            }
        }
        if plan.hosts.is_empty() { Err(too_few(hosts, slots, ranks)) } else { Ok(plan) }
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.hosts.last().map_or(0, |host| host.ranks.end)
    }

    /// The place of `rank`, if it exists.
    pub fn place(&self, rank: usize) -> Option<Place> {
        let cross_rank = self.hosts.partition_point(|host| host.ranks.end <= rank);
        let ranks = &self.hosts.get(cross_rank)?.ranks;
        Some(Place {
            rank,
            size: self.size(),
            local_rank: rank - ranks.start,
            local_size: ranks.len(),
            cross_rank,
            cross_size: self.hosts.len(),
        })
    }
}

fn too_few(hosts: &[HostSlots], slots: usize, ranks: usize) -> Advice {
    let list: Vec<_> = hosts.iter().take(4).map(|host| format!("{} has {}", host.host, host.slots)).collect();
    let more = if hosts.len() > list.len() { ", ..." } else { "" };
    Advice::new(
        format!("{ranks} ranks do not fit: there is room for {slots} ({}{more})", list.join(", ")),
        "lower -n, give a host more slots (-H host:8), or let ranks share them with --oversubscribe",
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hosts(list: &[(&str, usize)]) -> Vec<HostSlots> {
        list.iter().map(|&(host, slots)| HostSlots { host: host.into(), slots }).collect()
    }

    fn ranges(plan: &Plan) -> Vec<(&str, Range<usize>)> {
        plan.hosts.iter().map(|host| (host.host.as_str(), host.ranks.clone())).collect()
    }

    #[test]
    fn hosts_are_filled_in_order_and_idle_ones_left_out() {
        let hosts = hosts(&[("a", 4), ("b", 2), ("c", 4)]);
        let all = Plan::new(&hosts, None, false).unwrap();
        assert_eq!(ranges(&all), [("a", 0..4), ("b", 4..6), ("c", 6..10)]);
        let some = Plan::new(&hosts, NonZeroUsize::new(5), false).unwrap();
        assert_eq!(ranges(&some), [("a", 0..4), ("b", 4..5)]);
        let local = Plan::on_one("here", NonZeroUsize::new(7).unwrap()).unwrap();
        assert_eq!(ranges(&local), [("here", 0..7)]);
    }

    #[test]
    fn too_few_slots_are_an_error_that_names_them() {
        let hosts = hosts(&[("a", 1), ("b", 2)]);
        let advice = Plan::new(&hosts, NonZeroUsize::new(4), false).unwrap_err();
        assert_eq!(advice.message, "4 ranks do not fit: there is room for 3 (a has 1, b has 2)");
        assert!(advice.hint.contains("--oversubscribe"));
        let plan = Plan::new(&hosts, NonZeroUsize::new(6), true).unwrap();
        assert_eq!(ranges(&plan), [("a", 0..2), ("b", 2..6)]);
        assert!(Plan::new(&hosts, NonZeroUsize::new(MOST + 1), true).unwrap_err().message.contains("too many"));
    }

    #[test]
    fn every_rank_has_its_place() {
        let plan = Plan::new(&hosts(&[("a", 2), ("b", 3)]), None, false).unwrap();
        let expected = Place { rank: 3, size: 5, local_rank: 1, local_size: 3, cross_rank: 1, cross_size: 2 };
        assert_eq!(plan.place(3), Some(expected));
        assert_eq!(plan.place(5), None);
    }

    proptest! {
        #[test]
        fn ranks_are_dealt_out_completely_and_never_beyond_the_slots(
            slots in prop::collection::vec(1..9usize, 1..6), ranks in 1..60usize,
        ) {
            let hosts: Vec<_> =
                slots.iter().enumerate().map(|(i, &slots)| HostSlots { host: format!("h{i}"), slots }).collect();
            let total: usize = slots.iter().sum();
            let plan = Plan::new(&hosts, NonZeroUsize::new(ranks), true).unwrap();
            prop_assert_eq!(plan.size(), ranks);
            prop_assert_eq!(plan.hosts[0].ranks.start, 0);
            prop_assert!(plan.hosts.windows(2).all(|pair| pair[0].ranks.end == pair[1].ranks.start));
            prop_assert!(plan.hosts.iter().all(|host| !host.ranks.is_empty()));
            let most = ranks.max(total).div_ceil(total);
            for host in &plan.hosts {
                let slots = hosts.iter().find(|known| known.host == host.host).unwrap().slots;
                prop_assert!(host.ranks.len() <= slots * most, "{:?}", plan);
            }
        }
    }
}
