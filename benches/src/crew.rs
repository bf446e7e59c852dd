//! The systems that train with PyTorch, and how each of them is started: two processes, as its own launcher would start
//! them.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::{
    BenchError, Peer,
    start::{PATIENCE, horovod_over_gloo, peer_script},
    wheel::Environment,
};

/// Ranks of each system.
const RANKS: usize = 2;

/// A system that trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// Two processes that do not communicate and do not use sirtaki, as if started by hand.
    Strangers,
    /// Two processes that wait for each other after every step and exchange nothing: the most that training together
    /// can reach, since both run at the speed of the slower one.
    InStep,
    /// Sirtaki through Horovod's interface.
    Optimizer,
    /// Sirtaki through `data_parallel`.
    Parallel,
    /// PyTorch's `DistributedDataParallel` over sirtaki.
    DdpOverUs,
    /// PyTorch's `DistributedDataParallel` over Gloo.
    Ddp,
    /// Horovod over Gloo.
    Horovod,
}

impl System {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            System::Strangers => "2 strangers",
            System::InStep => "2 strangers in step",
            System::Optimizer => "sirtaki, DistributedOptimizer",
            System::Parallel => "sirtaki, data_parallel",
            System::DdpOverUs => "DDP over sirtaki",
            System::Ddp => "DDP over Gloo",
            System::Horovod => "Horovod over Gloo",
        }
    }

    /// Whether sirtaki does the communication.
    pub fn is_ours(self) -> bool {
        matches!(self, System::Optimizer | System::Parallel | System::DdpOverUs)
    }

    /// The systems that an environment has.
    pub fn all(environment: &Environment) -> Vec<System> {
        let mut all = vec![System::Strangers, System::InStep, System::Optimizer, System::Parallel];
        all.extend(environment.group.then_some(System::DdpOverUs));
        all.push(System::Ddp);
        all.extend(environment.horovod.then_some(System::Horovod));
        all
    }

    /// Starts its processes, which meet in `folder` where they need one.
    pub fn start(self, environment: &Environment, folder: &TempDir) -> Result<Peer, BenchError> {
        let commands = match self {
            System::Strangers => by_hand(environment, "alone", None),
            System::InStep => vec![by_us(environment, "in_step")],
            System::Optimizer => vec![by_us(environment, "optimizer")],
            System::Parallel => vec![by_us(environment, "parallel")],
            System::DdpOverUs => vec![by_us(environment, "ddp")],
            System::Ddp => by_hand(environment, "ddp", Some(folder.path())),
            System::Horovod => {
                let mut command = horovod_over_gloo(&environment.python, RANKS);
                script(&mut command, environment, "horovod");
                vec![command]
            }
        };
        Peer::start(self.name(), commands, RANKS, PATIENCE)
    }
}

/// One process for each rank.
fn by_hand(environment: &Environment, name: &str, meeting: Option<&Path>) -> Vec<Command> {
    let command = |rank: usize| {
        let mut command = Command::new(&environment.python);
        command.arg(peer_script("torch_peer.py")).arg(name);
        settings(&mut command);
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", RANKS.to_string());
        command.env("BACKEND", "gloo").env("GLOO_SOCKET_IFNAME", "lo");
        command.envs(meeting.map(|folder| ("INIT_METHOD", format!("file://{}", folder.join("gloo").display()))));
        command
    };
    (0..RANKS).map(command).collect()
}

fn by_us(environment: &Environment, name: &str) -> Command {
    let mut command = Command::new(&environment.sirtaki);
    command
        .args(["run", "-n", &RANKS.to_string(), "--oversubscribe", "--progress", "off", "--"])
        .env("BACKEND", "sirtaki");
    script(&mut command, environment, name);
    command
}

fn script(command: &mut Command, environment: &Environment, name: &str) {
    command.arg(&environment.python).arg(peer_script("torch_peer.py")).arg(name);
    settings(command);
}

fn settings(command: &mut Command) {
    command.stdin(Stdio::null()).env("OMP_NUM_THREADS", "1").env("PYTHONDONTWRITEBYTECODE", "1");
}
