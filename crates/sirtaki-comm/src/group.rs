//! The members of a group, which of them is this process, and which share its host.

use serde::{Deserialize, Serialize};

/// Position in a group, from zero.
pub type Rank = usize;

/// What the others know of one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Rank in the whole job; errors refer to this one.
    pub world_rank: Rank,
    /// Host name, for people.
    pub host: String,
    /// Equal for two processes exactly when they can share memory: same boot, user and
    /// namespaces.
    pub host_id: String,
    /// Process id on that host.
    pub pid: u32,
    /// The processors it may run on, as a mask.
    pub cores: Vec<u64>,
}

impl Member {
    /// The member as messages name it.
    pub fn describe(&self) -> String {
        format!("rank {} (host {}, pid {})", self.world_rank, self.host, self.pid)
    }
}

/// The members of a communicator, in rank order, seen from one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    rank: Rank,
    members: Vec<Member>,
}

impl Group {
    /// The group of `members` as seen by `rank`, which must be one of them.
    pub fn new(rank: Rank, members: Vec<Member>) -> Self {
        assert!(rank < members.len(), "rank {rank} outside a group of {}", members.len());
        Self { rank, members }
    }

    /// A group of threads or processes on one host, for tests and for a world of one.
    pub fn local(rank: Rank, size: usize) -> Self {
        let member = |world_rank| Member {
            world_rank,
            host: "localhost".into(),
            host_id: "local".into(),
            pid: std::process::id(),
            cores: this_threads_cores(),
        };
        Self::new(rank, (0..size).map(member).collect())
    }

    /// My position in this group.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// How many take part.
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// All members, in rank order.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The rank in the whole job of this group's `rank`.
    pub fn world_rank(&self, rank: Rank) -> Rank {
        self.members[rank].world_rank
    }

    /// This group's `rank` as messages name it.
    pub fn describe(&self, rank: Rank) -> String {
        self.members[rank].describe()
    }

    /// This group's ranks by host, hosts in order of their first rank.
    pub fn hosts(&self) -> Vec<Vec<Rank>> {
        let mut hosts: Vec<(&str, Vec<Rank>)> = Vec::new();
        for (rank, member) in self.members.iter().enumerate() {
            match hosts.iter_mut().find(|(id, _)| *id == member.host_id) {
                Some((_, ranks)) => ranks.push(rank),
                None => hosts.push((&member.host_id, vec![rank])),
            }
        }
        hosts.into_iter().map(|(_, ranks)| ranks).collect()
    }

    /// Whether more members share my host than there are processors for them. In that case waiting must not keep a
    /// processor busy.
    pub fn is_crowded(&self) -> bool {
        let home = &self.members[self.rank].host_id;
        let neighbours = self.members.iter().filter(|member| member.host_id == *home);
        let mut union: Vec<u64> = Vec::new();
        let mut count = 0_usize;
        for member in neighbours {
            count += 1;
            union.resize(union.len().max(member.cores.len()), 0);
            union.iter_mut().zip(&member.cores).for_each(|(all, own)| *all |= own);
        }
        count > union.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The group of the given ranks of this one, seen from the same process.
    ///
    /// Returns `None` when this process is not among them.
    pub fn subset(&self, ranks: &[Rank]) -> Option<Group> {
        let rank = ranks.iter().position(|&r| r == self.rank)?;
        Some(Group::new(rank, ranks.iter().map(|&r| self.members[r].clone()).collect()))
    }
}

/// The processors that this thread may run on, as a mask; none where the system does not say.
pub(crate) fn this_threads_cores() -> Vec<u64> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    let mut cores: Vec<u64> = Vec::new();
    for core in (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core)) {
        cores.resize(core / 64 + 1, 0);
        cores[core / 64] |= 1 << (core % 64);
    }
    cores
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_crowded_when_its_ranks_outnumber_their_processors_together() {
        let group = |masks: &[u64]| {
            let mut group = Group::local(0, masks.len());
            group.members.iter_mut().zip(masks).for_each(|(member, &mask)| member.cores = vec![mask]);
            group
        };
        assert!(!group(&[0b01, 0b10]).is_crowded(), "pinned to one processor each");
        assert!(group(&[0b01, 0b01]).is_crowded(), "pinned to the same one");
        assert!(group(&[0b11, 0b11, 0b11]).is_crowded());
        assert!(!this_threads_cores().is_empty());
    }
}
