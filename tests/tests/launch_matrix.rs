//! The kill matrix: every part of a job ended in every way, on one host and on two. Whoever reads the report has to see
//! who it was, and nothing may be left anywhere.
//!
//! All 100 runs take some minutes: `cargo xtask test kill-matrix`. A few of them run every day.

#![allow(clippy::print_stdout, reason = "the matrix is printed for whoever asked for it")]

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    process::Command,
    time::Instant,
};

use rustix::process::{Pid, Signal, kill_process};
use sirtaki_tests::{
    hosts::Hosts,
    launch::{Launch, is_agent, state},
    memory::Cramped,
    sshd::Sshd,
    wait::until,
};

const SIRTAKI: &str = env!("CARGO_BIN_EXE_sirtaki-under-test");
const PROGRAM: &str = env!("CARGO_BIN_EXE_engine-rank");
const RANKS: usize = 4;

/// Whom it hits.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Victim {
    Rank(usize),
    /// The one on this host.
    Agent(usize),
    Launcher,
    /// The cable of the second host.
    Cable,
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Kill,
    Stop,
    Crash,
    Exception,
    Exit,
    /// It exits, but its exit handlers take longer than the others need to end.
    SlowExit,
    OutOfMemory,
    Cut,
}

/// What somebody else can do to a process.
const SIGNALS: [Fault; 3] = [Fault::Kill, Fault::Stop, Fault::Crash];

/// One run.
#[derive(Debug, Clone, Copy)]
struct Cell {
    hosts: usize,
    victim: Victim,
    fault: Fault,
    /// What the ranks do meanwhile: one order again and again, or something new all the time.
    scenario: &'static str,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (victim, fault) = (format!("{:?}", self.victim), format!("{:?}", self.fault));
        write!(f, "{} host{:<2} {victim:<9} {fault:<11} {:<7}", self.hosts, plural(self.hosts), self.scenario)
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// Where jobs run.
struct Place {
    /// Two hosts with an OpenSSH server each; the launcher runs on the first.
    cluster: Option<(Hosts, Sshd)>,
}

impl Place {
    fn new(hosts: usize) -> Place {
        let cluster = (hosts == 2).then(|| {
            let hosts = Hosts::new("mx", 2);
            let servers = Sshd::on(&hosts);
            (hosts, servers)
        });
        Place { cluster }
    }

    fn start(&self, cell: &Cell, cramped: Option<&Cramped>) -> Launch {
        let mut command = match &self.cluster {
            None => Command::new(SIRTAKI),
            Some((hosts, _)) => hosts.command(0, SIRTAKI),
        };
        command.arg("run");
        match &self.cluster {
            None => command.args(["-n", &RANKS.to_string()]),
            Some((_, servers)) => {
                command.args(["--via", "ssh", "--ssh-config", &servers.options()[1], "-H", "h0:2,h1:2"]);
                command.args(["--env", "TEST_RUN", "--env", "TEST_SCENARIO", "--env", "TEST_ODD"])
            }
        };
        let scenario = match cell.fault {
            Fault::Exception => "exception",
            Fault::Exit => "exit",
            Fault::SlowExit => "handler",
            Fault::OutOfMemory => "memory",
            _ => cell.scenario,
        };
        let odd = if let Victim::Rank(rank) = cell.victim { rank } else { usize::MAX };
        command.env("TEST_SCENARIO", scenario).env("TEST_ODD", odd.to_string());
        command.args(["--grace", "2", "--timeout", "5", "--", PROGRAM]);
        Launch::start(cramped.map(|cramped| cramped.with(&command)).unwrap_or(command))
    }

    fn agent(&self, launch: &Launch, host: usize) -> Pid {
        let found = match &self.cluster {
            None => launch.agents(),
            Some((_, servers)) => servers.host(host).find(SIRTAKI).into_iter().filter(|pid| is_agent(*pid)).collect(),
        };
        *found.first().expect("there is an agent")
    }
}

/// Sends a signal until it has had its effect: a handler for overflowing stacks takes the first SIGSEGV of a Rust
/// program for itself.
fn hit(victim: Pid, fault: Fault) {
    let signal = match fault {
        Fault::Kill => Signal::KILL,
        Fault::Stop => Signal::STOP,
        _ => Signal::SEGV,
    };
    until("a process that was hit", || {
        let _ = kill_process(victim, signal);
        match state(victim) {
            Some('T') => fault == Fault::Stop,
            Some('Z') | None => true,
            Some(_) => false,
        }
    });
}

/// Does what the cell says; afterwards the job ends by itself.
fn strike(place: &Place, launch: &Launch, cell: &Cell) {
    match (cell.victim, cell.fault) {
        (_, Fault::Cut) => place.cluster.as_ref().expect("cables are between hosts").0.cut(1),
        (Victim::Launcher, Fault::Stop) => {
            hit(launch.pid(), Fault::Stop);
            launch.signal(Signal::CONT);
            launch.signal(Signal::INT);
        }
        (Victim::Launcher, fault) => hit(launch.pid(), fault),
        (Victim::Agent(host), fault) => hit(place.agent(launch, host), fault),
        (Victim::Rank(rank), fault) => hit(launch.rank(rank), fault),
        (Victim::Cable, _) => unreachable!("a cable can only be cut"),
    }
}

/// What has to be in the headline; nothing where the launcher itself is gone and cannot speak.
fn expected(cell: &Cell, cramped: bool) -> Option<Vec<String>> {
    let how = match cell.fault {
        Fault::Kill => "was killed by SIGKILL",
        Fault::Crash => "was killed by SIGSEGV",
        Fault::Stop => "was stopped by a signal",
        Fault::Exception => "ended with exit code 101",
        Fault::Exit | Fault::SlowExit => "ended with exit code 5",
        Fault::OutOfMemory if cramped => "ran out of memory",
        Fault::OutOfMemory => "was killed by SIGABRT",
        Fault::Cut => "was lost",
    };
    match cell.victim {
        Victim::Rank(rank) if cell.hosts == 1 => Some(vec![format!("error: rank {rank} {how}")]),
        Victim::Rank(rank) => Some(vec![format!("error: rank {rank} on h{} {how}", rank / 2)]),
        Victim::Agent(host) if cell.hosts == 2 => Some(vec![format!("host h{host}"), "agent".into()]),
        Victim::Agent(_) => Some(vec!["was lost".into(), "agent".into()]),
        Victim::Cable => Some(vec!["on h1 was lost".into(), "host h1".into()]),
        Victim::Launcher if cell.fault == Fault::Stop => Some(vec!["ended by SIGINT".into()]),
        Victim::Launcher => None,
    }
}

/// How a run went.
struct Result {
    /// Whether the headline names the culprit, where there can be one.
    named: Option<bool>,
    nothing_left: bool,
    text: String,
}

fn run(place: &Place, cell: &Cell) -> Result {
    // Network namespaces have a /sys of their own, without cgroups; allocations fail there instead.
    let cramped = (cell.fault == Fault::OutOfMemory && cell.hosts == 1).then(Cramped::new).flatten();
    let launch = place.start(cell, cramped.as_ref());
    let words = expected(cell, cramped.is_some());
    let own = matches!(cell.fault, Fault::Exception | Fault::Exit | Fault::SlowExit | Fault::OutOfMemory);
    let done = catch_unwind(AssertUnwindSafe(|| {
        if !own {
            launch.prints("ready", RANKS);
            strike(place, &launch, cell);
        }
        let done = launch.ends_eventually();
        if let Some((_, servers)) = &place.cluster {
            (0..2).for_each(|host| servers.host(host).wait_for(SIRTAKI, false));
        }
        done
    }));
    match done {
        Ok(done) => {
            let headline = done.err.iter().find(|line| line.starts_with("error: ") || line.starts_with("ended by "));
            let headline = headline.cloned().unwrap_or_default();
            let named = words.map(|words| words.iter().all(|word| headline.contains(word)));
            Result { named, nothing_left: true, text: if headline.is_empty() { "-".into() } else { headline } }
        }
        Err(_) => Result { named: words.map(|_| false), nothing_left: false, text: "it did not end, see above".into() },
    }
}

/// All runs.
fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for hosts in [1, 2] {
        let mut add = |victim, fault, scenario| cells.push(Cell { hosts, victim, fault, scenario });
        for rank in (0..RANKS).map(Victim::Rank) {
            for scenario in ["loop", "varied"] {
                SIGNALS.into_iter().for_each(|fault| add(rank, fault, scenario));
            }
            let own = [Fault::Exception, Fault::Exit, Fault::SlowExit, Fault::OutOfMemory];
            own.into_iter().for_each(|fault| add(rank, fault, "loop"));
        }
        for victim in (0..hosts).map(Victim::Agent).chain([Victim::Launcher]) {
            SIGNALS.into_iter().for_each(|fault| add(victim, fault, "loop"));
        }
    }
    for scenario in ["loop", "varied", "idle", "leave", "set"] {
        cells.push(Cell { hosts: 2, victim: Victim::Cable, fault: Fault::Cut, scenario });
    }
    cells
}

/// Runs these cells, and says how each of them went and what came of all.
fn check(cells: &[Cell]) {
    let mut results: Vec<(Cell, Result)> = Vec::new();
    for hosts in [1, 2] {
        let mut place = Place::new(hosts);
        for cell in cells.iter().filter(|cell| cell.hosts == hosts) {
            let start = Instant::now();
            let result = run(&place, cell);
            let named = result.named.map_or("-", |named| if named { "yes" } else { "NO" });
            let left = if result.nothing_left { "nothing" } else { "SOMETHING" };
            let time = start.elapsed().as_secs_f64();
            println!("{cell} culprit named: {named:<3} left: {left:<9} {time:>5.1} s  {}", result.text);
            results.push((*cell, result));
            if cell.fault == Fault::Cut {
                place = Place::new(hosts);
            }
        }
    }
    let speaks = results.iter().filter(|(_, result)| result.named.is_some()).count();
    let named = results.iter().filter(|(_, result)| result.named == Some(true)).count();
    let clean = results.iter().filter(|(_, result)| result.nothing_left).count();
    let all = results.len();
    println!("culprit in the headline: {named} of {speaks} ({} times the launcher itself was gone)", all - speaks);
    println!("nothing left: {clean} of {all}");
    assert!(named == speaks && clean == all, "not every run went well");
}

#[test]
#[ignore = "takes some minutes: cargo xtask test kill-matrix"]
fn the_whole_matrix() {
    let cells = cells();
    assert!(cells.len() >= 100, "{} runs", cells.len());
    check(&cells);
}

#[test]
fn the_core_of_the_matrix() {
    let cell = |hosts, victim, fault| Cell { hosts, victim, fault, scenario: "loop" };
    check(&[
        cell(1, Victim::Rank(3), Fault::Crash),
        cell(1, Victim::Agent(0), Fault::Crash),
        cell(1, Victim::Launcher, Fault::Stop),
        cell(2, Victim::Rank(2), Fault::Kill),
        cell(2, Victim::Rank(1), Fault::SlowExit),
        cell(2, Victim::Agent(1), Fault::Kill),
    ]);
}
