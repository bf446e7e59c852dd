//! The kill matrix from the launcher's side, with ranks that have engines: whoever fails first is named by the launcher
//! and by the other ranks, the exit code is right, and nothing is left.

use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use sirtaki_tests::{
    launch::{Finished, Launch},
    memory::Cramped,
};

fn command(scenario: &str, odd: usize, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sirtaki-under-test"));
    command.args(["run", "-n", "4", "--grace", "2"]).args(arguments).args(["--", env!("CARGO_BIN_EXE_engine-rank")]);
    command.env("TEST_SCENARIO", scenario).env("TEST_ODD", odd.to_string());
    command
}

fn start(scenario: &str, odd: usize, arguments: &[&str]) -> Launch {
    Launch::start(command(scenario, odd, arguments))
}

/// The process of a rank, from the first line it prints.
fn pid_of(launch: &Launch, rank: usize) -> Pid {
    let lines = launch.prints("record", 4);
    let line = lines.iter().find(|line| line.starts_with(&format!("[{rank}]"))).expect("every rank says it");
    let pid = line.split_whitespace().nth(2).expect("a process id").parse().expect("a number");
    Pid::from_raw(pid).expect("a process id")
}

/// All other ranks name the culprit in the same words.
fn others_blame(done: &Finished, culprit: usize) -> String {
    let errors: Vec<&String> = done.out.iter().filter(|line| line.contains("] error ")).collect();
    assert_eq!(errors.len(), 3, "{done:?}");
    let reason = |line: &&String| line.split_once(" was not done: ").map(|(_, reason)| reason.to_owned());
    let reasons: Vec<Option<String>> = errors.iter().map(reason).collect();
    assert!(reasons.iter().all(|other| *other == reasons[0]), "{reasons:?}");
    let reason = reasons[0].clone().expect("a reason");
    assert!(reason.starts_with(&format!("rank {culprit} ")), "{reason}");
    reason
}

#[test]
fn a_killed_rank_is_named_by_everybody() {
    for (culprit, scenario) in [(0, "loop"), (2, "varied")] {
        let launch = start(scenario, 9, &[]);
        let pid = pid_of(&launch, culprit);
        launch.prints("ready", 4);
        kill_process(pid, Signal::KILL).expect("the rank is there");
        let done = launch.ends();
        assert_eq!(done.code, 137, "{}", done.message());
        assert!(done.message().contains(&format!("error: rank {culprit} was killed by SIGKILL")), "{}", done.message());
        let reason = others_blame(&done, culprit);
        assert!(reason.contains("SIGKILL"), "{reason}");
    }
}

#[test]
fn an_exception_and_an_abort_are_told_apart() {
    for (scenario, code, words) in [("exception", 101, "exit code 101"), ("abort", 134, "SIGABRT")] {
        for culprit in [0, 3] {
            let done = start(scenario, culprit, &[]).ends();
            assert_eq!(done.code, code, "{}", done.message());
            let text = done.message();
            assert!(text.contains(&format!("error: rank {culprit}")) && text.contains(words), "{text}");
            others_blame(&done, culprit);
        }
    }
}

#[test]
fn a_stopped_rank_is_found_and_the_others_say_where_they_were() {
    let launch = start("loop", 9, &["--timeout", "2"]);
    let pid = pid_of(&launch, 1);
    launch.prints("ready", 4);
    kill_process(pid, Signal::STOP).expect("the rank is there");
    let done = launch.ends();
    assert_eq!(done.code, 147, "{}", done.message());
    assert!(done.message().contains("error: rank 1 was stopped by a signal"), "{}", done.message());
    others_blame(&done, 1);
}

#[test]
fn a_stopped_rank_that_nobody_is_left_to_miss_does_not_keep_the_job_for_ever() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sirtaki-under-test"));
    command.args(["run", "-n", "3", "--grace", "2", "--timeout", "2", "--", "sh", "-c"]);
    command.arg("test $RANK != 1 || kill -STOP $$");
    let done = Launch::start(command).ends();
    assert_eq!(done.code, 147, "{}", done.message());
    let text = done.message();
    assert!(text.contains("rank 1 was stopped by a signal and the others have ended"), "{text}");
    assert!(text.contains("error: rank 1 was stopped by a signal"), "{text}");
}

#[test]
fn a_rank_that_leaves_and_ends_last_is_the_one_that_failed() {
    for culprit in [0, 2] {
        let done = start("handler", culprit, &[]).ends();
        assert_eq!(done.code, 5, "{}", done.message());
        let headline = format!("error: rank {culprit} ended with exit code 5");
        assert!(done.message().contains(&headline), "{}", done.message());
    }
}

#[test]
fn the_exit_code_is_that_of_the_rank_that_exits() {
    for culprit in [0, 1, 2, 3] {
        let done = start("exit", culprit, &[]).ends();
        assert_eq!(done.code, 5, "{}", done.message());
        assert!(
            done.message().contains(&format!("error: rank {culprit} ended with exit code 5")),
            "{}",
            done.message()
        );
    }
}

#[test]
fn a_rank_that_ends_before_it_joins_is_named_at_once() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sirtaki-under-test"));
    // The start timeout is far beyond what the test waits.
    command.args(["run", "-n", "3", "--grace", "2", "--start-timeout", "3600", "--", "sh", "-c"]);
    command.args(["test $RANK = 1 || exec \"$0\"", env!("CARGO_BIN_EXE_join-rank")]);
    let done = Launch::start(command).ends();
    assert_eq!(done.code, 1, "{}", done.message());
    let text = done.message();
    assert!(text.contains("error: rank 1 ended with exit code 0") && text.contains("never joined"), "{text}");
    assert!(text.contains(": waiting for all ranks to join"), "{text}");
}

#[test]
fn what_the_others_did_is_in_the_report() {
    let launch = start("silence", 2, &[]);
    let pid = pid_of(&launch, 2);
    launch.prints("warning", 1);
    kill_process(pid, Signal::ABORT).expect("the rank is there");
    let done = launch.ends();
    assert_eq!(done.code, 134, "{}", done.message());
    let text = done.message();
    let (_, others) = text.split_once("the others meanwhile:").unwrap_or_else(|| panic!("{text}"));
    assert!(others.contains(": waiting ") && !others.contains("computing"), "{text}");
}

#[test]
fn running_out_of_memory_is_named() {
    // Where no memory cgroup can be made, allocations fail instead of being punished.
    let cramped = Cramped::new();
    let command = command("memory", 1, &[]);
    let done = Launch::start(cramped.as_ref().map(|cramped| cramped.with(&command)).unwrap_or(command)).ends();
    let text = done.message();
    others_blame(&done, 1);
    let (code, words) = match cramped {
        Some(_) => (137, "error: rank 1 ran out of memory and was killed by SIGKILL"),
        None => (134, "error: rank 1 was killed by SIGABRT"),
    };
    assert_eq!(done.code, code, "{text}");
    assert!(text.contains(words), "{text}");
}

#[test]
fn a_killed_rank_did_not_run_out_of_memory_when_somebody_else_did() {
    let launch = start("loop", 9, &[]);
    let pid = pid_of(&launch, 1);
    // Where no memory cgroup can be made, nobody else runs out of memory.
    if let Some(cramped) = Cramped::new() {
        let other = Launch::start(cramped.with(&command("memory", 0, &[]))).ends();
        assert!(other.message().contains("ran out of memory"), "{}", other.message());
    }
    kill_process(pid, Signal::KILL).expect("the rank is there");
    let done = launch.ends();
    assert!(done.message().contains("error: rank 1 was killed by SIGKILL"), "{}", done.message());
}

#[test]
fn a_killed_launcher_leaves_nothing_behind() {
    let launch = start("loop", 9, &[]);
    launch.prints("ready", 4);
    launch.signal(Signal::KILL);
    launch.vanishes();
}
