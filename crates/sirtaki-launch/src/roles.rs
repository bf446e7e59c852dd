//! Who is who among the processes of a job, and what the end of each means to the others. Pure.
//!
//! | role | when it fails | when it ends well | the job |
//! |---|---|---|---|
//! | worker | returns as often as it may, then the job ends | it is done | ends when all are done |
//! | server | the same | it is done | asks it to end when the workers are done |
//! | coordinator | the job ends | the job ends | asks workers and servers to end when it is done |
//! | trial | nobody minds | it is done | fails only if all trials have failed |
//!
//! Processes are numbered: ranks first, then servers, then the coordinator. Only ranks are part of the world; the others
//! are dealt out to the hosts in turn, so that no host serves alone. A process *returns* by being started again in its
//! place, with the same number; one that could not be started, or whose host is gone, has no place to return to.

use std::{fmt, num::NonZeroUsize};

use crate::{JobSpec, ended::Ended};

/// What a process is to its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A rank that works together with others.
    Worker,
    /// A rank that does without the others.
    Trial,
    /// Serves the workers and is no rank.
    Server,
    /// Tells workers and servers what to do and is no rank.
    Coordinator,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Worker => "worker",
            Role::Trial => "trial",
            Role::Server => "server",
            Role::Coordinator => "coordinator",
        })
    }
}

/// How often each process may return to its place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Returns {
    /// A worker.
    pub workers: u32,
    /// A server.
    pub servers: u32,
}

/// What the end of a process means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It has done its part.
    Done,
    /// It has failed, and nobody minds.
    Alone,
    /// It is started again in its place.
    Returns,
    /// It has failed, and the job with it.
    Fails,
}

/// All processes of a job, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cast {
    /// How many ranks there are.
    pub ranks: usize,
    /// How many servers.
    pub servers: usize,
    /// Whether there is a coordinator.
    pub coordinator: bool,
    /// Whether ranks do without each other.
    pub independent: bool,
    /// How often processes may return.
    pub returns: Returns,
}

impl Cast {
    /// Ranks alone.
    pub fn of_ranks(ranks: usize) -> Self {
        Self { ranks, servers: 0, coordinator: false, independent: false, returns: Returns::default() }
    }

    /// The processes of this job, if it has so many ranks.
    pub fn of(spec: &JobSpec, ranks: usize) -> Self {
        let servers = spec.servers.map_or(0, NonZeroUsize::get);
        Self { ranks, servers, coordinator: spec.coordinator, independent: spec.independent, returns: spec.returns }
    }

    /// How many processes there are.
    pub fn processes(&self) -> usize {
        self.ranks + self.servers + usize::from(self.coordinator)
    }

    /// What a process is.
    pub fn role(&self, process: usize) -> Role {
        match process {
            rank if rank < self.ranks && self.independent => Role::Trial,
            rank if rank < self.ranks => Role::Worker,
            server if server < self.ranks + self.servers => Role::Server,
            _ => Role::Coordinator,
        }
    }

    /// Whether a process is a rank.
    pub fn is_rank(&self, process: usize) -> bool {
        process < self.ranks
    }

    /// Its number among those of its role.
    pub fn number(&self, process: usize) -> usize {
        match self.role(process) {
            Role::Worker | Role::Trial => process,
            Role::Server => process - self.ranks,
            Role::Coordinator => 0,
        }
    }

    /// What it is called: `rank 2`, `server 0` or `the coordinator`.
    pub fn name(&self, process: usize) -> String {
        match self.role(process) {
            Role::Worker | Role::Trial => format!("rank {process}"),
            Role::Server => format!("server {}", self.number(process)),
            Role::Coordinator => "the coordinator".into(),
        }
    }

    /// The same in brackets before a line: `2`, `s0` or `c`.
    pub fn short_name(&self, process: usize) -> String {
        match self.role(process) {
            Role::Worker | Role::Trial => process.to_string(),
            Role::Server => format!("s{}", self.number(process)),
            Role::Coordinator => "c".into(),
        }
    }

    /// The processes on one of `hosts` hosts that are no ranks.
    pub fn others_on(&self, host: usize, hosts: usize) -> impl Iterator<Item = usize> + use<> {
        (self.ranks + host..self.processes()).step_by(hosts.max(1))
    }

    /// The host of a process that is no rank.
    pub fn host_of_other(&self, process: usize, hosts: usize) -> usize {
        process.saturating_sub(self.ranks) % hosts.max(1)
    }

    /// Whether the job waits until this process has ended.
    pub fn is_awaited(&self, process: usize) -> bool {
        match self.role(process) {
            Role::Worker | Role::Trial => !self.coordinator,
            Role::Server => false,
            Role::Coordinator => true,
        }
    }

    /// How often a process may return.
    pub fn returns_of(&self, process: usize) -> u32 {
        match self.role(process) {
            Role::Worker => self.returns.workers,
            Role::Server => self.returns.servers,
            Role::Coordinator | Role::Trial => 0,
        }
    }

    /// What the end of a process means that was started again `returned` times.
    pub fn verdict(&self, process: usize, how: &Ended, returned: u32) -> Verdict {
        let may_return = returned < self.returns_of(process);
        match how {
            _ if how.is_success() => Verdict::Done,
            _ if self.role(process) == Role::Trial => Verdict::Alone,
            Ended::Code(_) | Ended::Signal { .. } if may_return => Verdict::Returns,
            _ => Verdict::Fails,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cast(coordinator: bool) -> Cast {
        let returns = Returns { workers: 0, servers: 2 };
        Cast { servers: 3, coordinator, returns, ..Cast::of_ranks(2) }
    }

    #[test]
    fn every_process_has_a_role_a_name_and_a_host() {
        let cast = cast(true);
        let names: Vec<String> = (0..cast.processes()).map(|process| cast.name(process)).collect();
        assert_eq!(names, ["rank 0", "rank 1", "server 0", "server 1", "server 2", "the coordinator"]);
        let on = |host| cast.others_on(host, 2).collect::<Vec<_>>();
        assert_eq!((on(0), on(1)), (vec![2, 4], vec![3, 5]));
        assert!((2..6).all(|process| on(cast.host_of_other(process, 2)).contains(&process)));
        assert_eq!((cast.short_name(1), cast.short_name(4), cast.short_name(5)), ("1".into(), "s2".into(), "c".into()));
    }

    #[test]
    fn the_job_waits_for_workers_unless_there_is_a_coordinator() {
        let awaited =
            |cast: Cast| (0..cast.processes()).filter(|&process| cast.is_awaited(process)).collect::<Vec<_>>();
        assert_eq!(awaited(cast(false)), [0, 1]);
        assert_eq!(awaited(cast(true)), [5]);
    }

    #[test]
    fn who_may_return_does_so_as_often_as_allowed() {
        let (cast, fails) = (cast(true), Ended::Code(1));
        assert_eq!(cast.verdict(0, &fails, 0), Verdict::Fails);
        assert_eq!(cast.verdict(2, &fails, 1), Verdict::Returns);
        assert_eq!(cast.verdict(2, &fails, 2), Verdict::Fails);
        assert_eq!(cast.verdict(2, &Ended::Lost("host b".into()), 0), Verdict::Fails, "its place is gone");
        assert_eq!(cast.verdict(2, &Ended::Code(0), 0), Verdict::Done);
        assert_eq!(cast.verdict(5, &fails, 0), Verdict::Fails);
        let trials = Cast { independent: true, ..Cast::of_ranks(2) };
        assert_eq!(trials.verdict(0, &fails, 0), Verdict::Alone);
    }
}
