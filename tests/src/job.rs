//! Jobs of real processes, for what threads cannot show: death, silence, and other hosts.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use sirtaki_comm::secure::Secret;
use tempfile::TempDir;

/// How long any single line of output may take to come, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// What a job's ranks do; see the binary `rank`.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What all ranks do.
    pub scenario: &'static str,
    /// The rank that does something else, where the scenario has one.
    pub odd: Option<usize>,
    /// How long a rank waits for another without progress.
    pub timeout: f64,
    /// Whether ranks of one host share memory.
    pub shared_memory: bool,
    /// Whether connections are encrypted.
    pub tls: bool,
    /// The interface to use between hosts.
    pub interface: Option<&'static str>,
    /// After how many seconds an engine gives up on a tensor that waits.
    pub shutdown: Option<f64>,
    /// A file for the timeline.
    pub timeline: Option<PathBuf>,
    /// A file for the profile.
    pub profile: Option<PathBuf>,
    /// Where the odd rank enters a memory cgroup; without one, it limits its own address space.
    pub cramped: Option<PathBuf>,
}

impl Plan {
    /// The scenario with a long timeout, over shared memory where possible.
    pub fn new(scenario: &'static str) -> Self {
        Self {
            scenario,
            odd: None,
            timeout: 60.0,
            shared_memory: true,
            tls: false,
            interface: None,
            shutdown: None,
            timeline: None,
            profile: None,
            cramped: None,
        }
    }
}

/// One process of a job.
pub struct Process {
    child: Child,
    lines: Receiver<String>,
}

/// The processes of a job. Whatever is left of them is killed on drop.
pub struct Job {
    ranks: Vec<Process>,
    /// Where they meet.
    store: TempDir,
}

impl Job {
    /// Starts one rank per entry of `hosts`: in the network namespace of that name, or here.
    pub fn start(program: &Path, hosts: &[Option<&str>], plan: &Plan) -> Job {
        let store = tempfile::tempdir().expect("a folder for the store");
        let secret = Secret::random().expect("random bytes");
        let rank = |(rank, host): (usize, &Option<&str>)| {
            let mut command = match host {
                Some(host) => {
                    let mut command = Command::new("ip");
                    command.args(["netns", "exec", host]).arg(program);
                    command
                }
                None => Command::new(program),
            };
            command
                .env("TEST_RANK", rank.to_string())
                .env("TEST_SIZE", hosts.len().to_string())
                .env("TEST_STORE", store.path())
                .env("TEST_SECRET", secret.to_hex())
                .env("TEST_SCENARIO", plan.scenario)
                .env("TEST_TIMEOUT", plan.timeout.to_string())
                .env("TEST_SHARED_MEMORY", u8::from(plan.shared_memory).to_string())
                .env("TEST_TLS", u8::from(plan.tls).to_string());
            plan.odd.map(|odd| command.env("TEST_ODD", odd.to_string()));
            plan.shutdown.map(|seconds| command.env("TEST_SHUTDOWN", seconds.to_string()));
            plan.timeline.as_ref().map(|path| command.env("SIRTAKI_TIMELINE", path));
            plan.profile.as_ref().map(|path| command.env("SIRTAKI_PROFILE", path));
            plan.cramped.as_ref().map(|door| command.env("TEST_CRAMPED", door));
            plan.interface.map(|interface| command.env("TEST_INTERFACE", interface));
            Process::start(command)
        };
        Job { ranks: hosts.iter().enumerate().map(rank).collect(), store }
    }

    /// `count` ranks on this host.
    pub fn local(program: &Path, count: usize, plan: &Plan) -> Job {
        Job::start(program, &vec![None; count], plan)
    }

    /// Waits until every rank has said a line that begins with `word`; returns these lines.
    pub fn all_say(&self, word: &str) -> Vec<String> {
        (0..self.ranks.len()).map(|rank| self.says(rank, word)).collect()
    }

    /// Waits until `rank` has said a line that begins with `word`.
    pub fn says(&self, rank: usize, word: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.ranks[rank].lines.recv_timeout(left) {
                Ok(line) if line.starts_with(word) => return line,
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => panic!("rank {rank} did not say `{word}` in time"),
                Err(RecvTimeoutError::Disconnected) => panic!("rank {rank} ended without saying `{word}`"),
            }
        }
    }

    /// Sends a signal to `rank`.
    pub fn signal(&self, rank: usize, signal: Signal) {
        kill_process(self.ranks[rank].pid(), signal).expect("the process is there");
    }

    /// Lets all ranks know how `rank` ended, once they ask.
    pub fn tell_ending(&self, rank: usize, ending: &str) {
        let file = self.store.path().join(format!("ending {rank}"));
        std::fs::write(file, ending).expect("the store's folder is there");
    }

    /// CPU time of `rank` so far, in clock ticks.
    pub fn ticks(&self, rank: usize) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.ranks[rank].child.id()));
        let stat = stat.expect("the process is there");
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        fields[11].parse::<u64>().expect("user time") + fields[12].parse::<u64>().expect("system time")
    }

    /// Waits until all processes but those in `except` have ended.
    pub fn ended(&mut self, except: &[usize]) {
        let deadline = Instant::now() + PATIENCE;
        for (rank, process) in self.ranks.iter_mut().enumerate() {
            while !except.contains(&rank) && process.child.try_wait().expect("a child of ours").is_none() {
                assert!(Instant::now() < deadline, "rank {rank} is still running");
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

impl Process {
    fn start(mut command: Command) -> Process {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the test program starts");
        let output = child.stdout.take().expect("standard output is piped");
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Process { child, lines }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The seconds and the text of an `error` line.
pub fn parse_error(line: &str) -> (f64, &str) {
    let rest = line.strip_prefix("error ").expect("an error line");
    let (seconds, text) = rest.split_once(' ').expect("seconds and a text");
    (seconds.parse().expect("a number of seconds"), text)
}

/// Shared-memory files with a name, which this project never makes.
pub fn named_segments() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/dev/shm").expect("/dev/shm exists");
    let ours = |path: &PathBuf| path.to_string_lossy().contains("sirtaki");
    entries.filter_map(|entry| Some(entry.ok()?.path())).filter(ours).collect()
}
