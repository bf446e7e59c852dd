//! The measurements behind `cargo xtask bench jax`: JAX with the Python package compared with JAX's own processes over
//! Gloo and with two processes that do not communicate; two ranks with one thread each.
//!
//! The processes of all systems are started once and take turns, work by work and round by round, so that all see the
//! same conditions.

use std::{
    fmt::Write,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    BenchError, Peer,
    goals::Goal,
    peer::{median, slowest},
    report::{Verdict, time},
    start::{PATIENCE, peer_script},
    wheel::{run, said},
};

/// Ranks of each system.
const RANKS: usize = 2;
/// Steps that do not count.
const WARM_UP: usize = 4;

/// What is measured: a training, or all-reduces of so many bytes.
#[derive(Debug, Clone, Copy)]
pub struct JaxTask {
    /// Its name in jax_peer.py.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Samples that a rank has in a step; 0 for an all-reduce.
    batch: usize,
    /// Steps or calls in a turn.
    calls: usize,
    /// The goal, as a multiple of Gloo's speed.
    over_gloo: Option<f64>,
    /// The goal, as a share of the speed of strangers.
    efficiency: Option<f64>,
}

/// Everything that is measured.
pub const TASKS: [JaxTask; 5] = [
    JaxTask {
        name: "allreduce.4",
        about: "all-reduce of 4 B",
        batch: 0,
        calls: 200,
        over_gloo: Some(2.0),
        efficiency: None,
    },
    JaxTask {
        name: "allreduce.1048576",
        about: "all-reduce of 1 MiB",
        batch: 0,
        calls: 40,
        over_gloo: None,
        efficiency: None,
    },
    JaxTask {
        name: "allreduce.67108864",
        about: "all-reduce of 64 MiB",
        batch: 0,
        calls: 5,
        over_gloo: Some(5.0),
        efficiency: None,
    },
    JaxTask {
        name: "cnn",
        about: "CNN of tutorials, batch 64",
        batch: 64,
        calls: 6,
        over_gloo: Some(1.0),
        efficiency: Some(0.95),
    },
    JaxTask {
        name: "mlp",
        about: "MLP of 17 M parameters, batch 32",
        batch: 32,
        calls: 8,
        over_gloo: Some(2.0),
        efficiency: Some(0.8),
    },
];

/// A Python with JAX and the package.
#[derive(Debug)]
pub struct JaxPython {
    python: PathBuf,
    sirtaki: PathBuf,
    /// The version of JAX.
    pub version: String,
}

impl JaxPython {
    /// Makes one below `folder` that has the wheel and sees what the Python in SIRTAKI_BENCH_PYTHON has, or `python3`.
    pub fn make(wheel: &Path, folder: &Path) -> Result<Self, BenchError> {
        let other = std::env::var_os("SIRTAKI_BENCH_PYTHON").map_or_else(|| "python3".into(), PathBuf::from);
        let found = said(&other, "import jax, os; print(jax.__version__, os.path.dirname(jax.__path__[0]))");
        let Some((version, place)) = found.ok().and_then(|text| text.split_once(' ').map(owned)) else {
            let problem = format!("{} has no JAX; name a Python that has it in SIRTAKI_BENCH_PYTHON", other.display());
            return Err(BenchError::Protocol(problem));
        };
        let folder = folder.join(format!("jax-{version}"));
        run(Command::new(&other).args(["-m", "venv", "--clear"]).arg(&folder))?;
        let python = folder.join("bin/python");
        let own = PathBuf::from(said(&python, "import sysconfig; print(sysconfig.get_path('purelib'))")?);
        fs::write(own.join("jax.pth"), place).map_err(BenchError::io("cannot tell an environment of JAX"))?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        run(Command::new(&python).args(pip).arg(wheel))?;
        Ok(Self { sirtaki: folder.join("bin/sirtaki"), python, version })
    }
}

fn owned((version, place): (&str, &str)) -> (String, String) {
    (version.to_owned(), place.to_owned())
}

/// A system that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// Two processes that do not communicate, as if started by hand.
    Strangers,
    /// `sirtaki.jax`.
    Sirtaki,
    /// `jax.distributed` over Gloo.
    Gloo,
}

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Contender::Strangers => "2 strangers",
            Contender::Sirtaki => "sirtaki.jax",
            Contender::Gloo => "JAX over Gloo",
        }
    }

    fn start(self, environment: &JaxPython) -> Result<Peer, BenchError> {
        let commands = match self {
            Contender::Strangers => by_hand(environment, "alone", ""),
            Contender::Gloo => {
                let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
                let address = free.map_err(BenchError::io("cannot find a free port"))?;
                by_hand(environment, "gloo", &address.to_string())
            }
            Contender::Sirtaki => {
                let mut command = Command::new(&environment.sirtaki);
                let ranks = RANKS.to_string();
                command.args(["run", "-n", &ranks, "--oversubscribe", "--progress", "off", "--"]);
                command.arg(&environment.python).arg(peer_script("jax_peer.py")).arg("sirtaki");
                vec![settled(command)]
            }
        };
        Peer::start(self.name(), commands, RANKS, PATIENCE)
    }
}

fn by_hand(environment: &JaxPython, name: &str, coordinator: &str) -> Vec<Command> {
    let command = |rank: usize| {
        let mut command = Command::new(&environment.python);
        command.arg(peer_script("jax_peer.py")).arg(name);
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", RANKS.to_string()).env("COORDINATOR", coordinator);
        settled(command)
    };
    (0..RANKS).map(command).collect()
}

fn settled(mut command: Command) -> Command {
    command.stdin(Stdio::null()).env("OMP_NUM_THREADS", "1").env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// The systems at work.
#[derive(Debug)]
pub struct JaxCrew(Vec<(Contender, Peer)>);

impl JaxCrew {
    /// Starts all of them.
    pub fn start(environment: &JaxPython, say: &dyn Fn(&str)) -> Result<Self, BenchError> {
        let all = [Contender::Strangers, Contender::Sirtaki, Contender::Gloo];
        let started = all.into_iter().map(|contender| {
            say(&format!("starting {} with JAX {}", contender.name(), environment.version));
            Ok((contender, contender.start(environment)?))
        });
        Ok(Self(started.collect::<Result<_, BenchError>>()?))
    }

    /// Has everybody do a task in turns.
    pub fn perform(&mut self, task: &JaxTask, rounds: usize) -> Result<Contest, BenchError> {
        for (_, peer) in &mut self.0 {
            peer.perform(task.name, WARM_UP)?;
        }
        let mut results: Vec<(Contender, Vec<f64>)> = self.0.iter().map(|(who, _)| (*who, Vec::new())).collect();
        for _ in 0..rounds {
            for ((_, peer), (_, speeds)) in self.0.iter_mut().zip(&mut results) {
                speeds.push(task.speed(&peer.perform(task.name, task.calls)?));
            }
        }
        Ok(Contest { task: *task, results })
    }
}

impl JaxTask {
    /// Samples of all ranks per second, or calls of the slowest rank.
    fn speed(&self, times: &[Vec<f64>]) -> f64 {
        if self.batch == 0 {
            return 1e6 / median(&slowest(times));
        }
        let rate = |micros: &Vec<f64>| (self.batch * micros.len()) as f64 / micros.iter().sum::<f64>() * 1e6;
        times.iter().map(rate).sum()
    }
}

/// What everybody reached in a task, round by round: the higher, the better.
#[derive(Debug)]
pub struct Contest {
    task: JaxTask,
    results: Vec<(Contender, Vec<f64>)>,
}

impl Contest {
    fn speeds(&self, who: Contender) -> &[f64] {
        self.results.iter().find(|(other, _)| *other == who).map_or(&[], |(_, speeds)| speeds)
    }

    /// The median over rounds of sirtaki's speed as a multiple of another's.
    fn over(&self, other: Contender) -> f64 {
        let pairs = self.speeds(Contender::Sirtaki).iter().zip(self.speeds(other));
        median(&pairs.map(|(ours, theirs)| ours / theirs).collect::<Vec<_>>())
    }

    /// One line per system.
    pub fn table(&self) -> String {
        let mut text = self.task.about.to_owned();
        for (who, speeds) in &self.results {
            if self.task.batch == 0 && *who == Contender::Strangers {
                continue;
            }
            let middle = median(speeds);
            let shown = if self.task.batch == 0 { time(1e6 / middle) } else { format!("{middle:.0} samples/s") };
            let _ = write!(text, "\n  {:<20} {shown:>16}", who.name());
        }
        text
    }

    /// Whether sirtaki is fast enough.
    pub fn verdicts(&self) -> Vec<Verdict> {
        let (task, ratio) = (&self.task, self.over(Contender::Gloo));
        let what = format!("{}, ÷ JAX over Gloo: {ratio:.2}", task.about);
        let goal = |least: f64| Verdict {
            reached: Goal(least).is_reached(ratio),
            text: format!("{what}, to be at least {least:.2}"),
        };
        let mut verdicts = vec![task.over_gloo.map_or(Verdict { reached: true, text: what.clone() }, goal)];
        verdicts.extend(task.efficiency.map(|least| {
            let share = self.over(Contender::Strangers);
            let (percent, least_percent) = (100.0 * share, 100.0 * least);
            let text = format!("{}, of strangers: {percent:.1} %, to be at least {least_percent:.0} %", task.about);
            Verdict { reached: Goal(least).is_reached(share), text }
        }));
        verdicts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contest(task: JaxTask, ours: f64, gloo: f64, strangers: f64) -> Contest {
        let results = vec![
            (Contender::Strangers, vec![strangers]),
            (Contender::Sirtaki, vec![ours]),
            (Contender::Gloo, vec![gloo]),
        ];
        Contest { task, results }
    }

    #[test]
    fn every_goal_can_be_missed() {
        let [small, _, _, cnn, _] = TASKS;
        let reached = |contest: Contest| contest.verdicts().iter().map(|one| one.reached).collect::<Vec<_>>();
        assert_eq!(reached(contest(small, 2.0, 1.0, 1.0)), [true]);
        assert_eq!(reached(contest(small, 1.9, 1.0, 1.0)), [false]);
        assert_eq!(reached(contest(cnn, 95.0, 95.0, 100.0)), [true, true]);
        assert_eq!(reached(contest(cnn, 90.0, 95.0, 100.0)), [false, false]);
    }

    #[test]
    fn calls_are_as_fast_as_the_slowest_rank_and_samples_are_added() {
        let [small, _, _, cnn, _] = TASKS;
        assert!((small.speed(&[vec![10.0], vec![20.0]]) - 50_000.0).abs() < 1e-6);
        assert!((cnn.speed(&[vec![1e6], vec![2e6]]) - 96.0).abs() < 1e-6);
        assert!(contest(small, 2.0, 1.0, 1.0).table().contains("500 ms"));
    }
}
