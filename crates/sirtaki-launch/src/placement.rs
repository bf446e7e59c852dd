//! Where a job runs and how each host is reached: what the user says, else the scheduler's allocation, else here.

use std::num::NonZeroUsize;

use super::{
    allocation::{Allocation, Scheduler},
    hosts::HostSlots,
    outside::Outside,
    plan::Plan,
};
use crate::{Advice, JobSpec, Ssh, Via};

/// How the agent of a host is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// As a child of the launcher.
    Here,
    /// Over ssh.
    Ssh,
    /// By Slurm's `srun`.
    Slurm,
    /// By PBS's `pbs_tmrsh`.
    Pbs,
    /// By LSF's `blaunch`.
    Lsf,
}

/// A plan, and how to reach its hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Which rank runs where.
    pub plan: Plan,
    /// How the agent of each of the plan's hosts is started, in the same order.
    pub starts: Vec<Start>,
}

impl Placement {
    /// Decides where the ranks run. `here` is the name of this host.
    pub fn find(spec: &JobSpec, outside: &Outside<'_>, here: &str) -> Result<Self, Advice> {
        let allocation = match spec.via {
            Via::Auto | Via::Slurm | Via::Pbs | Via::Lsf => Allocation::find(outside)?,
            Via::Local | Via::Ssh => None,
        };
        let (hosts, start) = match (&spec.hosts, spec.via, allocation) {
            (None, Via::Auto, None) | (None, Via::Local, _) => {
                let seats = spec.elastic.as_ref().map(|elastic| elastic.max.unwrap_or(elastic.min));
                let ranks = seats.or(spec.ranks).unwrap_or(NonZeroUsize::MIN);
                return Ok(Self { plan: Plan::on_one(here, ranks)?, starts: vec![Start::Here] });
            }
            (None, Via::Ssh, _) => {
                return Err(Advice::new("--via ssh needs hosts", "name them with -H a:4,b:4 or --hostfile FILE"));
            }
            (None, via, Some(found)) => (found.hosts.clone(), by_scheduler(via, &found)?),
            (Some(hosts), Via::Auto, Some(found)) if is_part(hosts, &found) => (hosts.clone(), of(found.scheduler)),
            (Some(hosts), Via::Auto | Via::Ssh, _) => (hosts.clone(), Start::Ssh),
            (Some(hosts), Via::Local, _) => match hosts.iter().find(|host| !is_here(&host.host, here)) {
                Some(other) => return Err(not_here(&other.host)),
                None => (hosts.clone(), Start::Here),
            },
            (Some(hosts), via, Some(found)) => (hosts.clone(), by_scheduler(via, &found)?),
            (_, via, None) => return Err(no_allocation(via)),
        };
        // Workers that come and go may take any slot.
        let ranks = if spec.elastic.is_some() { None } else { spec.ranks };
        let plan = Plan::new(&hosts, ranks, spec.oversubscribe)?;
        // Unless ssh was asked for, it is not needed to reach this machine.
        let nearer = spec.via == Via::Auto && start == Start::Ssh;
        let start_of = |host: &str| if nearer && is_here(host, here) { Start::Here } else { start };
        let starts = plan.hosts.iter().map(|host| start_of(&host.host)).collect();
        Ok(Self { plan, starts })
    }
}

impl Start {
    /// Whether the agent inherits the launcher's environment.
    pub fn inherits(self) -> bool {
        matches!(self, Start::Here | Start::Slurm | Start::Lsf)
    }

    /// What precedes `sirtaki agent` to start it on `host`.
    pub fn prefix(self, host: &str, spec: &JobSpec) -> Vec<String> {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        match self {
            Start::Here => Vec::new(),
            Start::Ssh => ssh(&spec.ssh, host, spec.start_timeout.as_secs().max(1)),
            Start::Slurm => words(&[
                "srun",
                "--nodes=1",
                "--ntasks=1",
                &format!("--nodelist={host}"),
                "--overlap",
                "--cpu-bind=none",
                "--mpi=none",
            ]),
            Start::Pbs => words(&["pbs_tmrsh", host]),
            Start::Lsf => words(&["blaunch", host]),
        }
    }

    /// The whole command that starts an agent on `host`. `program` is the path of `sirtaki` here.
    pub fn command(self, host: &str, spec: &JobSpec, program: &str) -> Vec<String> {
        let program = match self {
            Start::Here => program,
            _ => spec.remote_sirtaki.as_deref().unwrap_or(program),
        };
        let mut command = self.prefix(host, spec);
        // ssh passes its words to a shell on the other side.
        command.push(if self == Start::Ssh { quote(program) } else { program.into() });
        command.push("agent".into());
        command
    }
}

/// The user's options come first, since ssh takes the first of several. The options added here make it never ask for a
/// password, which could not be typed, notice a connection that broke silently, and forward neither keys nor display
/// nor ports to the other host, whatever the user's configuration does for logins.
fn ssh(ssh: &Ssh, host: &str, patience: u64) -> Vec<String> {
    let mut words = vec!["ssh".to_owned(), "-T".into()];
    if let Some(config) = &ssh.config {
        words.extend(["-F".into(), config.display().to_string()]);
    }
    if let Some(port) = ssh.port {
        words.extend(["-p".into(), port.to_string()]);
    }
    if let Some(identity) = &ssh.identity {
        words.extend(["-i".into(), identity.display().to_string()]);
    }
    let ours = [
        "BatchMode=yes",
        &format!("ConnectTimeout={patience}"),
        "ServerAliveInterval=5",
        "ServerAliveCountMax=3",
        "ForwardAgent=no",
        "ForwardX11=no",
        "ClearAllForwardings=yes",
    ];
    for option in ssh.options.iter().map(String::as_str).chain(ours) {
        words.push(format!("-o{option}"));
    }
    words.extend(["--".into(), host.into()]);
    words
}

/// A word as a shell reads it.
pub fn quote(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(&byte);
    match !word.is_empty() && word.bytes().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Whether `host` is certainly this machine.
pub fn is_here(host: &str, here: &str) -> bool {
    host == here || ["localhost", "127.0.0.1", "::1"].contains(&host)
}

fn is_part(hosts: &[HostSlots], allocation: &Allocation) -> bool {
    hosts.iter().all(|host| allocation.hosts.iter().any(|known| known.host == host.host))
}

fn of(scheduler: Scheduler) -> Start {
    match scheduler {
        Scheduler::Slurm => Start::Slurm,
        Scheduler::Pbs => Start::Pbs,
        Scheduler::Lsf => Start::Lsf,
    }
}

fn by_scheduler(via: Via, found: &Allocation) -> Result<Start, Advice> {
    match (via, found.scheduler) {
        (Via::Auto, scheduler) => Ok(of(scheduler)),
        (Via::Slurm, Scheduler::Slurm) => Ok(Start::Slurm),
        (Via::Pbs, Scheduler::Pbs) => Ok(Start::Pbs),
        (Via::Lsf, Scheduler::Lsf) => Ok(Start::Lsf),
        (via, _) => Err(no_allocation(via)),
    }
}

fn no_allocation(via: Via) -> Advice {
    let (name, variable, command) = match via {
        Via::Pbs => ("PBS", "PBS_JOBID", "qsub"),
        Via::Lsf => ("LSF", "LSB_JOBID", "bsub"),
        _ => ("Slurm", "SLURM_JOB_ID", "salloc or sbatch"),
    };
    let message = format!("this is not a job of {name}: {variable} is not set");
    Advice::new(message, format!("start inside one ({command}), or name hosts with -H to use ssh"))
}

fn not_here(host: &str) -> Advice {
    Advice::new(format!("--via local cannot start ranks on {host}"), "leave out --via, or say --via ssh")
}

#[cfg(test)]
#[path = "placement_tests.rs"]
mod tests;
