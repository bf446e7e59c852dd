//! `sirtaki run` where something is in the way: readers that do not read, processes that are stopped, limits of the
//! system and strange input.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use std::{fs::File, os::fd::OwnedFd, process::Command, thread, time::Duration};

use rustix::{
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, ptsname, unlockpt},
};
use sirtaki_tests::{
    launch::{Finished, Launch, memory, state, written},
    wait::until,
};

const SIRTAKI: &str = env!("CARGO_BIN_EXE_sirtaki-under-test");
/// What launcher and agent may use while nobody reads.
const MEMORY: u64 = 64 << 20;

fn sirtaki(arguments: &[&str], script: &str) -> Command {
    let mut command = Command::new(SIRTAKI);
    command.arg("run").args(arguments).args(["--", "sh", "-c", script]);
    command
}

fn run(arguments: &[&str], script: &str) -> Finished {
    Launch::start(sirtaki(arguments, script)).ends()
}

/// Waits until a process that writes has to wait for its reader, while launcher and agent stay small.
fn is_held_up(launch: &Launch, writer: Pid) {
    let (mut before, mut same) = (0, 0);
    until("a rank that waits for the reader of its output", || {
        for pid in launch.agents().into_iter().chain([launch.pid()]) {
            assert!(memory(pid) < MEMORY, "process {pid} uses {} MB", memory(pid) >> 20);
        }
        let bytes = written(writer);
        same = if state(writer) == Some('S') && bytes == before && bytes > 0 { same + 1 } else { 0 };
        before = bytes;
        same > 100
    });
}

/// Waits until the rank has become `yes`.
fn writer(launch: &Launch) -> Pid {
    let running = || launch.processes().into_iter().find(|(_, line)| line == "yes");
    until("`yes`", || running().is_some());
    running().expect("it never ends").0
}

#[test]
fn output_that_nobody_reads_takes_no_memory_and_a_reader_that_is_gone_ends_the_job() {
    let mut launch = Launch::start_unread(sirtaki(&["-n", "1"], "exec yes"));
    is_held_up(&launch, writer(&launch));
    launch.close_output();
    let done = launch.ends();
    assert_eq!(done.code, 141, "{}", done.message());
    assert!(done.message().contains("SIGPIPE"), "{}", done.message());
}

#[test]
fn a_job_whose_output_nobody_reads_ends_when_it_is_asked_to() {
    let launch = Launch::start_unread(sirtaki(&["-n", "2", "--grace", "1"], "trap '' TERM; yes"));
    is_held_up(&launch, writer(&launch));
    launch.signal(Signal::TERM);
    assert_eq!(launch.ends().code, 143);
}

/// Both ends of a terminal.
fn terminal() -> (OwnedFd, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let theirs = ioctl_tiocgptpeer(&ours, flags).unwrap();
    (ours, theirs)
}

#[test]
fn a_terminal_that_stands_still_takes_no_memory_while_rows_are_shown() {
    let (screen, _theirs) = terminal();
    let name = ptsname(&screen, Vec::new()).unwrap().into_string().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" >$SCREEN 2>$SCREEN", "sh", SIRTAKI, "run", "-n", "1", "--grace", "1", "--"]);
    command.args(["sh", "-c", "printf '50%%\\r' >&2; exec yes"]).env("TERM", "xterm").env("SCREEN", name);
    let launch = Launch::start(command);
    is_held_up(&launch, writer(&launch));
    launch.signal(Signal::TERM);
    assert_eq!(launch.ends().code, 143);
}

#[test]
fn output_of_a_rank_that_has_ended_waits_for_a_slow_reader() {
    // More than all windows and pipes together; the rank is gone long before its last line is read.
    let done = run(&["-n", "1"], "seq 1 200000");
    assert_eq!((done.code, done.out.len()), (0, 200_000), "{}", done.message());
    assert_eq!(done.out.last().unwrap(), "[0] 200000");
}

#[test]
fn a_stopped_agent_is_given_up_when_somebody_ends_the_job() {
    // Two signals of a kind that come at once are one.
    for signals in [&[Signal::TERM][..], &[Signal::INT, Signal::TERM]] {
        let launch = Launch::start(sirtaki(&["-n", "2", "--grace", "1"], "echo ready; exec sleep 1000"));
        launch.prints("ready", 2);
        kill_process(launch.agents()[0], Signal::STOP).unwrap();
        signals.iter().for_each(|signal| launch.signal(*signal));
        let done = launch.ends();
        assert!([130, 143].contains(&done.code), "{}: {}", done.code, done.message());
    }
}

#[test]
fn a_second_signal_does_not_wait_for_ranks_that_ignore_the_first() {
    let script = "trap '' TERM INT; echo ready; while :; do sleep 1; done";
    let launch = Launch::start(sirtaki(&["-n", "2", "--grace", "1000"], script));
    launch.prints("ready", 2);
    launch.signal(Signal::INT);
    launch.signal(Signal::TERM);
    let done = launch.ends();
    assert!([130, 143].contains(&done.code), "{}: {}", done.code, done.message());
}

#[test]
fn a_stopped_agent_is_noticed_and_named() {
    let launch = Launch::start(sirtaki(&["-n", "2", "--grace", "1"], "echo ready; exec sleep 1000"));
    launch.prints("ready", 2);
    let agent = launch.agents()[0];
    kill_process(agent, Signal::STOP).unwrap();
    let done = launch.ends();
    let headline = done.err.iter().find(|line| line.starts_with("error: ")).expect("a headline");
    assert!(headline.contains("its agent") && headline.contains(&format!("process {agent} was stopped")), "{headline}");
}

#[test]
fn a_job_stops_and_goes_on_as_a_whole() {
    let script = "trap 'echo went on' CONT; echo ready; while ! test -e $GATE; do sleep 0.05; done";
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("gate");
    let launch = Launch::start(sirtaki(&["-n", "2", "--env", &format!("GATE={}", gate.display())], script));
    launch.prints("ready", 2);
    launch.signal(Signal::TSTP);
    let ranks = [launch.rank(0), launch.rank(1)];
    let stopped = |pid: Pid| state(pid) == Some('T');
    until("launcher and ranks that are stopped", || stopped(launch.pid()) && ranks.into_iter().all(stopped));
    launch.signal(Signal::CONT);
    launch.prints("went on", 2);
    File::create(gate).unwrap();
    let done = launch.ends();
    assert_eq!(done.code, 0, "{}", done.message());
}

#[test]
fn a_job_may_stand_still_for_longer_than_its_timeout() {
    let pause = Duration::from_secs(6);
    let mut command = Command::new(SIRTAKI);
    command.args(["run", "-n", "4", "--timeout", "2", "--grace", "1", "--", env!("CARGO_BIN_EXE_engine-rank")]);
    command.env("TEST_SCENARIO", "course").env("TEST_ODD", "1");
    let launch = Launch::start(command);
    launch.prints("half", 4);
    launch.signal(Signal::TSTP);
    let all = [0, 1, 2, 3].map(|rank| launch.rank(rank)).into_iter().chain([launch.pid()]).collect::<Vec<_>>();
    until("a job that stands still", || all.iter().all(|&pid| state(pid) == Some('T')));
    thread::sleep(pause);
    launch.signal(Signal::CONT);
    let done = launch.ends();
    assert_eq!(done.code, 0, "{}\n{}", done.out.join("\n"), done.message());
}

#[test]
fn an_agent_that_speaks_of_a_rank_that_does_not_exist_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let ssh = folder.path().join("ssh");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_strange-agent"), &ssh).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    for event in ["started", "output", "ended", "closed", "doing"] {
        let mut command = sirtaki(&["-H", "far:2", "--via", "ssh", "--grace", "1"], "true");
        command.env("PATH", &path).env("TEST_EVENT", event);
        let done = Launch::start(command).ends();
        let headline = done.err.iter().find(|line| line.starts_with("error: ")).expect("a headline");
        assert_eq!(done.code, 1, "{event}: {}", done.message());
        assert!(
            headline.contains("host far") && headline.contains("its agent spoke of rank 99"),
            "{event}: {headline}"
        );
    }
}

#[test]
fn a_limit_of_open_files_is_raised_or_named() {
    let limited = |limit: &str, ranks: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit {limit} 64 && exec \"$@\""), "sh", SIRTAKI, "run", "-n", ranks]);
        Launch::start({
            command.args(["--grace", "1", "--cores", "none", "--", "sh", "-c", "ulimit -n"]);
            command
        })
        .ends()
    };
    let done = limited("-S -n", "40");
    assert_eq!(done.code, 0, "{}", done.message());
    assert!(done.out.iter().all(|line| line.ends_with(" 64")), "ranks keep the limit that was set");
    let done = limited("-n", "40");
    let headline = done.err.iter().find(|line| line.starts_with("error: ")).expect("a headline");
    assert!(headline.contains("could not be started") && headline.contains("open files"), "{headline}");
    assert!(!headline.contains("rank 0 "), "{headline}");
    assert!(done.message().contains("ulimit -n"), "{}", done.message());
}

#[test]
fn huge_durations_mean_never() {
    let done = run(&["--grace", "1e19", "--timeout", "1e18", "--start-timeout", "1e19"], "exit 4");
    assert_eq!(done.code, 4, "{}", done.message());
    for (timeout, code) in [("1e18", 0), ("1e300", 0), ("inf", 0), ("-1", 2), ("nan", 2)] {
        let mut command = Command::new(SIRTAKI);
        command.args([
            "bench",
            "allreduce",
            "-n",
            "2",
            "--sizes",
            "1k",
            "--repeat",
            "1",
            &format!("--timeout={timeout}"),
        ]);
        let done = Launch::start(command).ends();
        assert_eq!(done.code, code, "{timeout}: {}", done.message());
    }
}

#[test]
fn files_that_never_end_and_pipes_that_nobody_writes_to_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for (option, file) in [
        ("--hostfile", fifo.as_path()),
        ("--config", &fifo),
        ("--hostfile", "/dev/zero".as_ref()),
        ("--config", "/dev/zero".as_ref()),
    ] {
        let done = run(&[option, file.to_str().unwrap()], "true");
        let text = done.message();
        assert_ne!(done.code, 0, "{option} {}", file.display());
        assert!(text.contains(file.to_str().unwrap()) && text.contains("hint:"), "{text}");
    }
    // What a shell gives for <(…) is a pipe too.
    let mut command = Command::new("bash");
    command.args(["-c", &format!("{SIRTAKI} run --hostfile <(echo localhost slots=2) -- sh -c 'echo here'")]);
    let done = Launch::start(command).ends();
    assert_eq!((done.code, done.out.len()), (0, 2), "{}", done.message());
}
