//! Where trials run: the slots of hosts become places for whole trials. Pure.

use sirtaki_launch::{Via, hosts::HostSlots};

/// A place for one trial at a time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Slot {
    /// Its name for people, such as `a/2`.
    pub(super) name: String,
    /// The hosts of its ranks; none for this machine.
    pub(super) hosts: Option<Vec<HostSlots>>,
    /// Which part of each host's cores and GPUs it has.
    pub(super) part: (usize, usize),
}

impl Slot {
    /// How its processes are started.
    pub(super) fn via(&self) -> Via {
        if self.hosts.is_none() { Via::Local } else { Via::Auto }
    }
}

/// So many slots on this machine.
pub(super) fn here(count: usize) -> Vec<Slot> {
    (0..count).map(|index| Slot { name: index.to_string(), hosts: None, part: (index, count) }).collect()
}

/// The slots of these hosts for trials of `ranks` ranks. A host with room for several trials has several; hosts that are too
/// small for one are put together. What is left over stays idle.
pub(super) fn on(hosts: &[HostSlots], ranks: usize) -> Vec<Slot> {
    let mut slots = Vec::new();
    let (mut pool, mut pooled): (Vec<HostSlots>, usize) = (Vec::new(), 0);
    for host in hosts {
        let count = host.slots / ranks;
        for index in 0..count {
            let own = HostSlots { host: host.host.clone(), slots: ranks };
            slots.push(Slot { name: format!("{}/{index}", host.host), hosts: Some(vec![own]), part: (index, count) });
        }
        if count == 0 {
            let taken = host.slots.min(ranks - pooled);
            pool.push(HostSlots { host: host.host.clone(), slots: taken });
            pooled += taken;
            if pooled == ranks {
                let names: Vec<&str> = pool.iter().map(|host| host.host.as_str()).collect();
                slots.push(Slot { name: names.join("+"), hosts: Some(std::mem::take(&mut pool)), part: (0, 1) });
                pooled = 0;
            }
        }
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(list: &[(&str, usize)]) -> Vec<HostSlots> {
        list.iter().map(|&(host, slots)| HostSlots { host: host.into(), slots }).collect()
    }

    fn shown(list: &[(&str, usize)], ranks: usize) -> Vec<String> {
        on(&hosts(list), ranks).iter().map(|slot| format!("{} {}of{}", slot.name, slot.part.0, slot.part.1)).collect()
    }

    #[test]
    fn hosts_are_divided_into_trials() {
        assert_eq!(shown(&[("a", 4), ("b", 2)], 2), ["a/0 0of2", "a/1 1of2", "b/0 0of1"]);
        assert_eq!(shown(&[("a", 5)], 2), ["a/0 0of2", "a/1 1of2"], "the fifth stays idle");
        assert_eq!(shown(&[("a", 2), ("b", 2), ("c", 2)], 4), ["a+b 0of1"]);
        assert_eq!(shown(&[("a", 2), ("b", 8), ("c", 2)], 4), ["b/0 0of2", "b/1 1of2", "a+c 0of1"]);
        assert!(shown(&[("a", 2)], 4).is_empty());
        assert_eq!(here(2)[1], Slot { name: "1".into(), hosts: None, part: (1, 2) });
    }
}
