//! The measurements behind `cargo xtask bench launch`: how fast a job starts and ends compared with other launchers,
//! and what `sirtaki run` uses while a job runs.
//!
//! Every launcher starts the same work in every round: one all-reduce of one number, by the library that belongs to it.
//! `torchrun` and `sirtaki run` start the same PyTorch script, so that both pay for Python and its modules.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use sirtaki_launch::tree;

use crate::{
    BenchError,
    command::{self, Seen},
    peer::median,
    report::{Verdict, time},
    start::{Starter, has_open_mpi, open_mpi, peer_script},
};

/// Microseconds that the first collective may take beyond the bare start of the same processes.
const START: f64 = 150e3;
/// Percentage of a core that the launcher may use while a job runs.
const PERCENT: f64 = 1.0;
/// How long it is watched.
const WATCH: Duration = Duration::from_secs(10);
/// How long a job may take until it can be watched.
const PATIENCE: Duration = Duration::from_secs(30);
/// When a job of programs that end at once is given up: Open MPI 4.1 never ends with some of them.
const HANGS: Duration = Duration::from_secs(10);
/// When any other job is given up; Python with PyTorch takes a while to start on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);
/// The name of `sirtaki run` in tables.
const OURS: &str = "sirtaki run";

/// One way to start a job.
struct Way {
    name: &'static str,
    /// The commands that are started together; none if it is not installed.
    commands: Vec<Command>,
}

/// What a way to start a job took, round by round.
#[derive(Debug, Clone)]
pub struct Start {
    /// Its name.
    pub name: &'static str,
    /// Empty if it is not installed; `None` for a round that did not end.
    pub rounds: Vec<Option<Seen>>,
}

impl Start {
    /// The median of the times until the first collective was done, or until `true`, which does none, had ended.
    pub fn first(&self) -> f64 {
        median(&self.rounds.iter().flatten().map(first).collect::<Vec<_>>())
    }

    /// The median of the times from start to end.
    pub fn whole(&self) -> f64 {
        median(&self.rounds.iter().flatten().map(|seen| seen.whole).collect::<Vec<_>>())
    }

    /// Processes left behind, in all rounds together.
    pub fn left(&self) -> usize {
        self.rounds.iter().flatten().map(|seen| seen.left).sum()
    }

    /// Rounds that did not end.
    pub fn hung(&self) -> usize {
        self.rounds.iter().filter(|seen| seen.is_none()).count()
    }
}

fn first(seen: &Seen) -> f64 {
    seen.first.unwrap_or(seen.whole)
}

fn ours(starter: &Starter, ranks: usize, program: &Path) -> Command {
    let mut command = Command::new(starter.program("sirtaki"));
    command.args(["run", "-n", &ranks.to_string(), "--"]).arg(program);
    command
}

fn with(mut command: Command, word: impl AsRef<std::ffi::OsStr>) -> Command {
    command.arg(word);
    command
}

fn theirs(ranks: usize, program: &Path) -> Vec<Command> {
    if has_open_mpi() { vec![with(open_mpi(ranks), program)] } else { Vec::new() }
}

/// Every way takes its turn in every round, after one round that does not count.
fn measure(rounds: usize, limit: Duration, mut ways: Vec<Way>) -> Result<Vec<Start>, BenchError> {
    let mut starts: Vec<Start> = ways.iter().map(|way| Start { name: way.name, rounds: Vec::new() }).collect();
    for round in 0..=rounds {
        for (way, start) in ways.iter_mut().zip(&mut starts).filter(|(way, _)| !way.commands.is_empty()) {
            let seen = command::watch(&mut way.commands, limit)?;
            if round > 0 {
                start.rounds.push(seen);
            }
        }
    }
    Ok(starts)
}

/// Two ranks that do one all-reduce: bare processes that do nothing, sirtaki's with the engine, Open MPI's with MPI.
pub fn programs(rounds: usize, starter: &Starter) -> Result<Vec<Start>, BenchError> {
    let program = starter.program("start-peer");
    let bare = || with(Command::new(&program), "nothing");
    let mpi = theirs(2, &program).into_iter().map(|command| with(command, "mpi"));
    let ways = vec![
        Way { name: "bare processes", commands: vec![bare(), bare()] },
        Way { name: OURS, commands: vec![with(ours(starter, 2, &program), "engine")] },
        Way { name: "mpirun (Open MPI)", commands: mpi.collect() },
    ];
    measure(rounds, LIMIT, ways)
}

/// Two ranks of the same PyTorch script, started by `sirtaki run` and by `torchrun`.
pub fn scripts(rounds: usize, starter: &Starter) -> Result<Vec<Start>, BenchError> {
    let script = peer_script("first_collective.py");
    let mut ways =
        vec![Way { name: "sirtaki run python", commands: vec![] }, Way { name: "torchrun", commands: vec![] }];
    if let Some(python) = starter.python() {
        ways[0].commands.push(with(ours(starter, 2, python), &script));
        let mut command = Command::new(python);
        command.args(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]).arg(&script);
        ways[1].commands.push(command);
    }
    measure(rounds, LIMIT, ways)
}

/// Many ranks that end at once.
pub fn many(rounds: usize, ranks: usize, starter: &Starter) -> Result<Vec<Start>, BenchError> {
    let program = Path::new("true");
    let ways = vec![
        Way { name: OURS, commands: vec![ours(starter, ranks, program)] },
        Way { name: "mpirun (Open MPI)", commands: theirs(ranks, program) },
    ];
    measure(rounds, HANGS, ways)
}

/// Whether the first collective comes soon enough after the bare start.
pub fn soon(bare: &Start, ours: &Start) -> Verdict {
    let over = ours.first() - bare.first();
    let text = format!(
        "2 ranks, {}: first collective {} after the bare start, to be at most {}",
        ours.name,
        time(over),
        time(START)
    );
    Verdict { reached: over <= START, text }
}

/// Whether sirtaki's first collective comes sooner than another launcher's, if that is installed: the median of the
/// ratios of all rounds.
pub fn sooner(ours: &Start, other: &Start) -> Option<Verdict> {
    if other.rounds.is_empty() {
        return None;
    }
    let pairs = ours.rounds.iter().zip(&other.rounds).filter_map(|(ours, other)| ours.as_ref().zip(other.as_ref()));
    let ratios: Vec<f64> = pairs.map(|(ours, other)| first(other) / first(ours)).collect();
    let (ratio, names) = (median(&ratios), (ours.name, other.name));
    let text = format!("2 ranks, first collective, {} ÷ {}: {ratio:.2}, to be above 1.00", names.1, names.0);
    Some(Verdict { reached: ratio > 1.0, text })
}

/// Whether all of sirtaki's jobs ended and left nothing behind, if there were any.
pub fn clean(title: &str, starts: &[Start]) -> Option<Verdict> {
    let ours = starts.iter().find(|start| start.name.starts_with(OURS) && !start.rounds.is_empty())?;
    let (jobs, left, hung) = (ours.rounds.len(), ours.left(), ours.hung());
    let text = format!(
        "{title}, {}, start to end in {}: in {jobs} jobs {left} processes left behind, {hung} jobs did not end, to be none",
        ours.name,
        time(ours.whole())
    );
    Some(Verdict { reached: left + hung == 0, text })
}

/// What sirtaki's launcher and agent use while two ranks sleep, and while two ranks print ten lines per second each.
pub fn running(starter: &Starter) -> Result<Vec<Verdict>, BenchError> {
    let quiet = with(ours(starter, 2, Path::new("sleep")), "3600");
    let chatter = with(ours(starter, 2, &starter.program("start-peer")), "chatter");
    let jobs = [("2 ranks that sleep", quiet), ("2 ranks that print 10 lines per second each", chatter)];
    jobs.into_iter().map(|(name, command)| use_of(name, command)).collect()
}

fn use_of(name: &str, mut command: Command) -> Result<Verdict, BenchError> {
    let launcher = command.get_program().to_owned();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(BenchError::io("cannot start a job"))?;
    let used = wait_for_start(Path::new(&launcher), 2).and_then(|processes| {
        let all = || processes.iter().map(|&process| command::processor_time(process)).collect::<Result<Vec<_>, _>>();
        let before = all()?;
        sleep(WATCH);
        Ok(all()?.into_iter().zip(before).map(|(after, before)| after - before).collect::<Vec<_>>())
    });
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        let _ = kill_process(pid, Signal::TERM);
    }
    let _ = child.wait();
    let (left, used) = (command::clean(), used?);
    let percent = used.iter().sum::<Duration>().as_secs_f64() / WATCH.as_secs_f64() * 100.0;
    let each: Vec<String> = used.iter().map(|used| time(used.as_secs_f64() * 1e6)).collect();
    let text = format!(
        "{name}: launcher and agent use {} of processor time in {} s, {percent:.3} % of a core, to be below {PERCENT} %; \
         {left} processes left behind after SIGTERM",
        each.join(" + "),
        WATCH.as_secs()
    );
    Ok(Verdict { reached: percent < PERCENT && left == 0, text })
}

/// Processes of the command itself in a job on one host.
const PROCESSES: usize = 3;

/// Waits until a launcher has an agent and `ranks` ranks; returns launcher, agent and its watchdog, which are the same
/// program.
fn wait_for_start(program: &Path, ranks: usize) -> Result<Vec<u32>, BenchError> {
    let program = fs::canonicalize(program).map_err(BenchError::io("cannot find the launcher"))?;
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let processes = tree::descendants();
        let is_ours = |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|path| path == program);
        let pids = processes.iter().map(|pid| pid.as_raw_nonzero().get() as u32);
        let ours: Vec<u32> = pids.filter(is_ours).collect();
        if ours.len() == PROCESSES && processes.len() == PROCESSES + ranks {
            return Ok(ours);
        }
        sleep(tree::LOOK);
    }
    Err(BenchError::Protocol(format!("a job of {ranks} ranks did not start within {} s", PATIENCE.as_secs())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(name: &'static str, times: &[f64], left: usize) -> Start {
        let seen = |&time: &f64| time.is_finite().then_some(Seen { first: Some(time), whole: time + 1.0, left });
        Start { name, rounds: times.iter().map(seen).collect() }
    }

    #[test]
    fn a_late_start_and_a_faster_launcher_are_seen() {
        let bare = start("bare processes", &[1e3, 2e3, 3e3], 0);
        assert!(soon(&bare, &start(OURS, &[152e3], 0)).reached);
        assert!(!soon(&bare, &start(OURS, &[153e3], 0)).reached);
        let ours = start(OURS, &[10.0, 10.0, 10.0], 0);
        assert!(sooner(&ours, &start("other", &[9.0, 11.0, 12.0], 0)).unwrap().reached);
        assert!(!sooner(&ours, &start("other", &[9.0, 9.0, 12.0], 0)).unwrap().reached);
        assert!(sooner(&ours, &start("other", &[f64::INFINITY, 9.0, 12.0], 0)).is_some_and(|verdict| !verdict.reached));
        assert_eq!(sooner(&ours, &start("other", &[], 0)), None);
    }

    #[test]
    fn only_what_we_leave_behind_counts() {
        let reached = |starts: &[Start]| clean("jobs", starts).map(|verdict| verdict.reached);
        assert_eq!(reached(&[start(OURS, &[1.0], 0), start("other", &[1.0], 3)]), Some(true));
        assert_eq!(reached(&[start(OURS, &[1.0, 1.0], 1)]), Some(false));
        assert_eq!(reached(&[start(OURS, &[1.0, f64::INFINITY], 0)]), Some(false));
        assert_eq!(reached(&[start(OURS, &[], 0)]), None);
    }
}
