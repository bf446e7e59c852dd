//! `sirtaki bench allreduce` with real processes: its results, and what happens when one of them dies or stops.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStderr, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Generous, since machines are busy; nothing is measured with it.
const PATIENCE: Duration = Duration::from_secs(60);

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sirtaki"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SIRTAKI_")) {
        command.env_remove(name);
    }
    command.args(["bench", "allreduce"]).args(arguments);
    command
}

/// A benchmark that would go on for a long time, with its ranks connected.
struct Running {
    parent: Child,
    messages: BufReader<ChildStderr>,
    ranks: Vec<u32>,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let endless = ["-n", "3", "--sizes", "1M", "--repeat", "1000000000"];
        let mut command = bench(&endless);
        let mut parent = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut messages = BufReader::new(parent.stderr.take().unwrap());
        let mut line = String::new();
        messages.read_line(&mut line).unwrap();
        assert!(line.contains("among 3 processes"), "{line}");
        let path = format!("/proc/{0}/task/{0}/children", parent.id());
        let ranks = fs::read_to_string(path).unwrap().split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        Self { parent, messages, ranks }
    }

    /// What the parent says until its end.
    fn last_words(&mut self) -> String {
        let mut text = String::new();
        self.messages.read_to_string(&mut text).unwrap();
        assert_eq!(self.parent.wait().unwrap().code(), Some(1), "{text}");
        text
    }
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

/// Waits until none of these processes runs any more.
fn assert_gone(pids: &[u32]) {
    let runs = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
    };
    let deadline = Instant::now() + PATIENCE;
    while let Some(pid) = pids.iter().find(|pid| runs(pid)) {
        assert!(Instant::now() < deadline, "process {pid} is left behind");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn rows(arguments: &[&str]) -> Vec<Value> {
    let output = bench(arguments).arg("--json").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_size_is_a_line_of_json() {
    for transport in ["auto", "shm", "tcp", "tls"] {
        let rows = rows(&["-n", "2", "--sizes", "0,4,64K,1M", "--repeat", "3", "--transport", transport]);
        let sizes: Vec<_> = rows.iter().map(|row| row["bytes"].as_u64().unwrap()).collect();
        assert_eq!(sizes, [0, 4, 64 << 10, 1 << 20], "{transport}");
        for row in rows {
            assert_eq!((row["algorithm"].as_str(), row["ranks"].as_u64()), (Some("auto"), Some(2)));
            assert!(row["median_us"].as_f64().unwrap() > 0.0, "{row}");
            assert!(row["p99_us"].as_f64().unwrap() >= row["median_us"].as_f64().unwrap(), "{row}");
        }
    }
}

#[test]
fn all_algorithms_are_compared_for_any_type_and_number_of_ranks() {
    let rows = rows(&["-n", "3", "--sizes", "4,100K", "--algorithm", "all", "--dtype", "f16", "--repeat", "2"]);
    let mut names: Vec<_> = rows.iter().map(|row| row["algorithm"].as_str().unwrap().to_owned()).collect();
    names.dedup();
    assert_eq!(names.len(), rows.len(), "sizes come one after another: {names:?}");
    assert!(rows.len() >= 6 && names[0] == "auto", "{names:?}");
}

#[test]
fn a_table_marks_the_fastest_and_says_where_they_cross() {
    let output =
        bench(&["-n", "2", "--sizes", "4,64K", "--algorithm", "auto,ring,tree", "--repeat", "2"]).output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(table.contains("algorithm") && table.contains("bus GB/s"), "{table}");
    assert!(table.contains("is fastest") && table.contains("R ring"), "{table}");
}

#[test]
fn one_rank_alone_works_too() {
    assert_eq!(rows(&["-n", "1", "--sizes", "4", "--repeat", "2"]).len(), 1);
}

#[test]
fn a_killed_rank_is_named_and_nobody_is_left() {
    let mut job = Running::start(&[]);
    let victim = job.ranks[1];
    signal(victim, Signal::KILL);
    let text = job.last_words();
    assert!(text.contains(&format!("error: rank 1 (pid {victim}) was killed by SIGKILL")), "{text}");
    assert_gone(&job.ranks);
}

#[test]
fn a_stopped_rank_is_named_and_nobody_is_left() {
    for transport in ["shm", "tcp"] {
        let mut job = Running::start(&["--timeout", "2", "--transport", transport]);
        let victim = job.ranks[2];
        signal(victim, Signal::STOP);
        let text = job.last_words();
        assert!(text.contains("rank 2") && text.contains("no progress"), "{transport}: {text}");
        assert!(text.contains("hint: "), "{transport}: {text}");
        assert_gone(&job.ranks);
    }
}

#[test]
fn ranks_end_with_their_parent_whatever_ends_it() {
    for end in [Signal::KILL, Signal::INT, Signal::TERM] {
        let mut job = Running::start(&[]);
        assert_eq!(job.ranks.len(), 3);
        signal(job.parent.id(), end);
        job.parent.wait().unwrap();
        assert_gone(&job.ranks);
    }
}

#[test]
fn the_secret_is_in_no_argument() {
    let mut job = Running::start(&[]);
    for pid in &job.ranks {
        let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
        let variables = read("environ");
        let secret = variables.split('\0').find_map(|variable| variable.strip_prefix("SIRTAKI_SECRET=")).unwrap();
        assert!(secret.len() == 64 && !read("cmdline").contains(secret));
    }
    job.parent.kill().unwrap();
    job.parent.wait().unwrap();
    assert_gone(&job.ranks);
}
