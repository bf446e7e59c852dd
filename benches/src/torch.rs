//! The measurements behind `cargo xtask bench torch`: PyTorch training by the Python package compared with DDP over
//! Gloo and Horovod, two ranks with one thread each.
//!
//! The processes of all systems are started once and take turns, work by work and round by round, so that all see the
//! same conditions. Two processes that do not communicate, as if started by hand, take turns, too, and so do two that
//! use sirtaki only to wait for each other: these have everything that sirtaki does for a process but exchange nothing,
//! so any further loss is due to the exchange. Horovod has its own PyTorch, which may be old; so all other systems run
//! with that one as well, and only figures from the same PyTorch are compared.

use tempfile::TempDir;

use crate::{
    BenchError, Peer,
    crew::System,
    peer::{median, slowest},
    wheel::Environment,
};

/// Steps that do not count, in which libraries learn what a step is.
const WARM_UP: usize = 6;

/// What is trained.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    /// Its name in torch_work.py.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// What is counted.
    pub unit: &'static str,
    /// How many of these a rank does in a step.
    pub batch: usize,
    /// Steps in a turn.
    pub steps: usize,
    /// The goal, as a multiple of DDP's speed.
    pub over_ddp: f64,
    /// The goal, as a share of the speed of strangers.
    pub efficiency: Option<f64>,
}

/// All that is trained.
pub const WORKS: [Workload; 4] = [
    Workload {
        name: "cnn",
        about: "CNN of tutorials, batch 64",
        unit: "samples/s",
        batch: 64,
        steps: 8,
        over_ddp: 1.0,
        efficiency: Some(0.98),
    },
    Workload {
        name: "mlp",
        about: "MLP of 17 M parameters, batch 32",
        unit: "samples/s",
        batch: 32,
        steps: 10,
        over_ddp: 1.5,
        efficiency: Some(0.85),
    },
    Workload {
        name: "transformer",
        about: "small transformer, batch 8",
        unit: "samples/s",
        batch: 8,
        steps: 10,
        over_ddp: 1.0,
        efficiency: None,
    },
    Workload {
        name: "resnet",
        about: "ResNet-50's tensors, no arithmetic",
        unit: "steps/s",
        batch: 1,
        steps: 10,
        over_ddp: 1.5,
        efficiency: None,
    },
];

/// Calls in a turn of the smallest all-reduce.
const CALLS: usize = 300;

/// One system in one environment, at work.
#[derive(Debug)]
pub struct Member {
    /// Which system it is.
    pub system: System,
    /// Its version of PyTorch.
    pub torch: String,
    /// Whether that has pipelines.
    pipelining: bool,
    pub(crate) peer: Peer,
    _folder: TempDir,
}

impl Member {
    /// Whether it can run PyTorch's pipelines.
    pub(crate) fn has_pipelines(&self) -> bool {
        self.pipelining && matches!(self.system, System::DdpOverUs | System::Ddp)
    }
}

/// Starts all systems in every environment.
pub fn start(environments: &[Environment], say: &dyn Fn(&str)) -> Result<Vec<Member>, BenchError> {
    let mut members = Vec::new();
    for environment in environments {
        for system in System::all(environment) {
            say(&format!("starting {} with PyTorch {}", system.name(), environment.torch));
            let folder = TempDir::new().map_err(BenchError::io("cannot make a folder to meet in"))?;
            let peer = system.start(environment, &folder)?;
            let (torch, pipelining) = (environment.torch.clone(), environment.pipelining);
            members.push(Member { system, torch, pipelining, peer, _folder: folder });
        }
    }
    Ok(members)
}

/// What one member reached, round by round: steps of work per second, or microseconds of a call.
#[derive(Debug, Clone)]
pub struct Course {
    /// Which system it was.
    pub system: System,
    /// Its version of PyTorch.
    pub torch: String,
    /// By round; the higher the better, or the lower for calls.
    pub rounds: Vec<f64>,
    /// The least time of a call, in microseconds.
    pub least: f64,
}

impl Course {
    /// The median of the rounds.
    pub fn middle(&self) -> f64 {
        median(&self.rounds)
    }

    /// The median over rounds of the ratio of this one's figure to another's.
    pub fn over(&self, other: &Course) -> f64 {
        let ratios: Vec<f64> = self.rounds.iter().zip(&other.rounds).map(|(mine, theirs)| mine / theirs).collect();
        median(&ratios)
    }
}

pub(crate) fn courses<'a>(members: impl IntoIterator<Item = &'a Member>) -> Vec<Course> {
    let course = |member: &Member| Course {
        system: member.system,
        torch: member.torch.clone(),
        rounds: Vec::new(),
        least: f64::INFINITY,
    };
    members.into_iter().map(course).collect()
}

/// Trains one work in turns.
pub fn train(work: &Workload, rounds: usize, members: &mut [Member]) -> Result<Vec<Course>, BenchError> {
    for member in &mut *members {
        member.peer.perform(work.name, WARM_UP)?;
    }
    let mut courses = courses(&*members);
    for _ in 0..rounds {
        for (member, course) in members.iter_mut().zip(&mut courses) {
            let times = member.peer.perform(work.name, work.steps)?;
            // Strangers do not wait for each other, so every process counts for itself.
            let rate = |micros: &Vec<f64>| (work.batch * work.steps) as f64 / micros.iter().sum::<f64>() * 1e6;
            course.rounds.push(times.iter().map(rate).sum());
        }
    }
    Ok(courses)
}

/// All-reduces four bytes in turns.
pub fn small(rounds: usize, members: &mut [Member]) -> Result<Vec<Course>, BenchError> {
    let mut courses = courses(&*members);
    for _ in 0..rounds {
        for (member, course) in members.iter_mut().zip(&mut courses) {
            let times = slowest(&member.peer.perform("allreduce", CALLS)?);
            course.least = times.iter().copied().fold(course.least, f64::min);
            course.rounds.push(median(&times));
        }
    }
    // Strangers have no ranks to reduce with, and all ways into sirtaki but that of DDP share one function for it.
    courses.retain(|course| !matches!(course.system, System::Strangers | System::InStep | System::Parallel));
    Ok(courses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_round_by_round() {
        let course = |rounds: &[f64]| Course {
            system: System::Ddp,
            torch: String::new(),
            rounds: rounds.to_vec(),
            least: f64::INFINITY,
        };
        let (ours, theirs) = (course(&[20.0, 2.0, 30.0]), course(&[10.0, 1.0, 30.0]));
        assert!((ours.over(&theirs) - 2.0).abs() < 1e-9);
        assert!((ours.middle() - 20.0).abs() < 1e-9);
    }
}
