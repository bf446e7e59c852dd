//! Where in a job a process is, and how it meets the others: a pure function of variables.

use std::{net::SocketAddr, path::PathBuf};

use sirtaki_comm::{Group, Rank, communicator::mpi::Choice, secure::Secret};

use super::{JobError, Lookup, starter};

/// A position among several, from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Which one.
    pub rank: usize,
    /// How many there are.
    pub size: usize,
}

impl Position {
    /// The only one.
    pub const ALONE: Position = Position { rank: 0, size: 1 };

    /// Which process of its host the group's own rank is.
    pub fn on_host(group: &Group) -> Position {
        let (hosts, host) = (group.hosts(), Self::of_host(group).rank);
        let rank = hosts[host].iter().position(|&rank| rank == group.rank()).unwrap_or(0);
        Position { rank, size: hosts[host].len() }
    }

    /// Which host of the job the group's own rank is on.
    pub fn of_host(group: &Group) -> Position {
        let hosts = group.hosts();
        let rank = hosts.iter().position(|ranks| ranks.contains(&group.rank())).unwrap_or(0);
        Position { rank, size: hosts.len() }
    }
}

/// How the processes of a job come together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meeting {
    /// There is no other process.
    Alone,
    /// In a store that the launcher serves.
    Store {
        /// Where it listens.
        address: SocketAddr,
        /// The secret that it wants proven.
        secret: Secret,
        /// Whether it uses TLS, which is the case if other hosts have to reach it.
        tls: bool,
    },
    /// In such a store, in rounds: ranks may change while the process runs, and the launcher says which are next.
    Rounds {
        /// Where it listens.
        address: SocketAddr,
        /// The secret that it wants proven.
        secret: Secret,
        /// Whether it uses TLS.
        tls: bool,
        /// The number of this process, which no other of the job ever has.
        member: u64,
    },
    /// Through the MPI library that belongs to the launcher.
    Mpi(Choice),
    /// In a folder that all of them see.
    Folder {
        /// The user's folder for such things.
        cache: PathBuf,
        /// What distinguishes this job from every other one that runs.
        key: String,
        /// Whether that also takes the process that started them all.
        by_parent: bool,
    },
}

/// A process's place in a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Which process this is.
    pub rank: Rank,
    /// How many there are.
    pub size: usize,
    /// Which process of its host it is; `None` where this is not given.
    pub local: Option<Position>,
    /// Which host of the job it is on; `None` where this is not given.
    pub cross: Option<Position>,
    /// How they come together.
    pub meeting: Meeting,
}

impl Place {
    /// A world of one.
    pub fn alone() -> Place {
        let one = Some(Position::ALONE);
        Place { rank: 0, size: 1, local: one, cross: one, meeting: Meeting::Alone }
    }
}

/// This process's place: the one its variables give it, or a world of one.
///
/// Starters can be nested, and the innermost counts: `torchrun` may run under `srun` or `mpirun`, `mpirun` under
/// `srun`. The variables of `sirtaki run` come before all others, because it sets some of theirs too.
pub fn discover(get: Lookup<'_>) -> Result<Place, JobError> {
    for starter in [starter::by_sirtaki, starter::by_torchrun, starter::by_mpi, starter::by_slurm] {
        if let Some(place) = starter(get)? {
            return Ok(place);
        }
    }
    Ok(Place::alone())
}
