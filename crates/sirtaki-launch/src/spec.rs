//! What a job is: a plain value that says everything, whoever fills it in.

use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use crate::{environment::Wish, hosts::HostSlots, roles::Returns};

/// Time between asking ranks to end and killing them, unless another is given.
const GRACE: Duration = Duration::from_secs(10);
/// How long to wait for ranks and hosts, unless another time is given.
const PATIENCE: Duration = Duration::from_secs(60);

/// A job: what runs, where, and what its ranks get.
///
/// ```
/// use sirtaki_launch::JobSpec;
///
/// let spec = JobSpec { ranks: 4.try_into().ok(), ..JobSpec::new(["python", "train.py"]) };
/// assert_eq!(spec.program, ["python", "train.py"]);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct JobSpec {
    /// The program and its arguments; never empty.
    pub program: Vec<String>,
    /// How many ranks, if given.
    pub ranks: Option<NonZeroUsize>,
    /// Where, if given.
    pub hosts: Option<Vec<HostSlots>>,
    /// How ranks are started.
    pub via: Via,
    /// Whether there may be more ranks than slots.
    pub oversubscribe: bool,
    /// How to call ssh.
    pub ssh: Ssh,
    /// Where `sirtaki` is on other hosts, if not where it is here.
    pub remote_sirtaki: Option<String>,
    /// Where ranks run, if not in the current folder.
    pub workdir: Option<PathBuf>,
    /// Variables for all ranks.
    pub env: Vec<Wish>,
    /// Whether ranks do without each other: one that fails ends alone, and the job fails only if none succeeds.
    pub independent: bool,
    /// Whether the cores of a host are divided among its ranks.
    pub divide_cores: bool,
    /// Whether a rank sees only its own GPUs.
    pub divide_gpus: bool,
    /// Which part of every host's cores and GPUs the job has, and how many equal parts there are: several jobs that
    /// share hosts keep out of each other's way.
    pub part: (usize, usize),
    /// Whether ranks are connected through Open MPI's launcher, if given.
    pub mpi: Option<bool>,
    /// Whether ranks are told where each other's TensorFlow servers would be.
    pub tf_config: bool,
    /// Whether agents report how far their ranks are.
    pub pulses: bool,
    /// Time between asking ranks to end and killing them.
    pub grace: Duration,
    /// How long a rank may wait for another without progress.
    pub timeout: Duration,
    /// How long to wait for hosts and ranks.
    pub start_timeout: Duration,
    /// The network between hosts, if one was chosen.
    pub interface: Option<String>,
    /// Whether connections are encrypted.
    pub tls: bool,
    /// How many servers run beside the ranks, if any.
    pub servers: Option<NonZeroUsize>,
    /// Whether a coordinator runs beside them, whose end is the job's.
    pub coordinator: bool,
    /// How often processes may return to their place after a failure.
    pub returns: Returns,
    /// How workers may come and go; `None` for ranks that stay the same.
    pub elastic: Option<Elastic>,
}

impl JobSpec {
    /// This program once, here or wherever the scheduler says.
    pub fn new(program: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            program: program.into_iter().map(Into::into).collect(),
            ranks: None,
            hosts: None,
            via: Via::Auto,
            oversubscribe: false,
            ssh: Ssh::default(),
            remote_sirtaki: None,
            workdir: None,
            env: Vec::new(),
            independent: false,
            divide_cores: true,
            divide_gpus: false,
            part: (0, 1),
            mpi: None,
            tf_config: false,
            pulses: false,
            grace: GRACE,
            timeout: PATIENCE,
            start_timeout: PATIENCE,
            interface: None,
            tls: false,
            servers: None,
            coordinator: false,
            returns: Returns::default(),
            elastic: None,
        }
    }
}

/// How workers may come and go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elastic {
    /// Fewest that work together.
    pub min: NonZeroUsize,
    /// Most that work together; as many as there are slots if not given.
    pub max: Option<NonZeroUsize>,
    /// How long there may be fewer than the fewest.
    pub wait: Duration,
    /// How often workers may change, if that is limited.
    pub resets: Option<u32>,
    /// For how long a host is avoided after its first failure, and at most, after many.
    pub cooldown: (Duration, Duration),
    /// A program that prints the hosts and their slots, one per line.
    pub discover: Option<PathBuf>,
    /// What it printed before the job started.
    pub discovered: Option<Vec<HostSlots>>,
    /// Slots of hosts for which it prints none.
    pub slots: NonZeroUsize,
}

impl Elastic {
    /// At least so many, with the usual limits.
    pub fn at_least(min: NonZeroUsize) -> Self {
        let cooldown = (Duration::from_secs(1), Duration::from_secs(60));
        let wait = Duration::from_secs(600);
        Self {
            min,
            max: None,
            wait,
            resets: None,
            cooldown,
            discover: None,
            discovered: None,
            slots: NonZeroUsize::MIN,
        }
    }
}

/// How processes are started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Via {
    /// The scheduler's way inside an allocation, ssh for other hosts.
    #[default]
    Auto,
    /// On this machine.
    Local,
    /// Over ssh.
    Ssh,
    /// By Slurm.
    Slurm,
    /// By PBS.
    Pbs,
    /// By LSF.
    Lsf,
}

impl Via {
    /// All of them, by name.
    pub const ALL: [(&'static str, Via); 6] = [
        ("auto", Via::Auto),
        ("local", Via::Local),
        ("ssh", Via::Ssh),
        ("slurm", Via::Slurm),
        ("pbs", Via::Pbs),
        ("lsf", Via::Lsf),
    ];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Via> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, via)| via)
    }
}

/// How to call ssh; what is not given here is left to its own configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ssh {
    /// A configuration file instead of the user's.
    pub config: Option<PathBuf>,
    /// Port of the servers.
    pub port: Option<u16>,
    /// A key.
    pub identity: Option<PathBuf>,
    /// Options as in its configuration file; of two with the same name the first counts.
    pub options: Vec<String>,
}
