//! Engines whose ranks die, fall silent or never come: the others say who and what, all the same, and soon.

use std::{path::Path, thread, time::Duration};

use rustix::process::Signal;
use sirtaki_engine::telemetry::recorder::{Recorder, Stage};
use sirtaki_tests::{
    job::{Job, Plan, named_segments, parse_error},
    memory::Cramped,
};

const SIZE: usize = 4;

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_engine-rank"))
}

fn transports(plan: &Plan) -> [Plan; 2] {
    [plan.clone(), Plan { shared_memory: false, ..plan.clone() }]
}

/// The reason all ranks but `culprit` give, which is the same and names it.
fn survivors_blame(job: &Job, culprit: usize) -> String {
    let reason = |rank: usize| {
        let line = job.says(rank, "error");
        let (_, text) = parse_error(&line);
        let (_, reason) = text.split_once(" was not done: ").unwrap_or_else(|| panic!("no tensor is named: {text}"));
        reason.to_string()
    };
    let reasons: Vec<String> = (0..SIZE).filter(|&rank| rank != culprit).map(reason).collect();
    assert!(reasons.iter().all(|reason| *reason == reasons[0]), "reasons differ: {reasons:#?}");
    assert!(reasons[0].contains(&format!("rank {culprit} (host ")), "does not name rank {culprit}: {}", reasons[0]);
    reasons[0].clone()
}

/// Runs `scenario` until `harm` is done to `culprit`, and checks what the others say of it.
fn harm(plan: &Plan, culprit: usize, harm: impl Fn(&Job), words: &str) {
    for plan in transports(plan) {
        let mut job = Job::local(program(), SIZE, &plan);
        job.all_say("ready");
        harm(&job);
        // That a dead rank is noticed at once shows in the words: after the timeout they would be others.
        let reason = survivors_blame(&job, culprit);
        assert!(reason.contains(words), "{}: {reason}", plan.scenario);
        let stopped = words.contains("no progress");
        job.ended(if stopped { std::slice::from_ref(&culprit) } else { &[] });
    }
    assert!(named_segments().is_empty());
}

#[test]
fn a_killed_rank_is_named_at_once() {
    for scenario in ["loop", "varied", "leave", "silence", "messages"] {
        for culprit in [0, 2] {
            let plan = Plan { odd: Some(culprit), ..Plan::new(scenario) };
            harm(&plan, culprit, |job| job.signal(culprit, Signal::KILL), "is gone: it was killed by SIGKILL");
        }
    }
}

#[test]
fn a_stopped_rank_is_named_after_the_timeout() {
    for scenario in ["loop", "varied", "messages"] {
        for culprit in [0, 2] {
            let plan = Plan { timeout: 2.0, ..Plan::new(scenario) };
            harm(&plan, culprit, |job| job.signal(culprit, Signal::STOP), "made no progress");
        }
    }
}

#[test]
fn a_rank_that_fails_by_itself_is_named() {
    for (scenario, words) in [("exception", "it ended with exit code 101"), ("abort", "it was killed by SIGABRT")] {
        for culprit in [0, 2] {
            let plan = Plan { odd: Some(culprit), ..Plan::new(scenario) };
            harm(&plan, culprit, |_| (), words);
        }
    }
}

#[test]
fn a_rank_without_memory_is_named() {
    for culprit in [0, 2] {
        let cramped = Cramped::new();
        let (means, words) = match &cramped {
            Some(_) => ("a memory cgroup", "it was killed by SIGKILL"),
            None => ("a limit of its address space", "it was killed by SIGABRT"),
        };
        eprintln!("rank {culprit} runs out of memory through {means}");
        let door = cramped.as_ref().map(Cramped::door);
        let plan = Plan { odd: Some(culprit), cramped: door, ..Plan::new("memory") };
        harm(&plan, culprit, |_| (), words);
    }
}

#[test]
fn a_killed_rank_fails_its_sets_too() {
    // The set has ranks 1 to 3, so rank 1 is the one that chooses the reason there.
    for culprit in [1, 2] {
        for plan in transports(&Plan::new("set")) {
            let mut job = Job::local(program(), SIZE, &plan);
            job.all_say("set");
            job.signal(culprit, Signal::KILL);
            let inside = (1..SIZE).filter(|&rank| rank != culprit);
            let lines: Vec<String> = inside.map(|rank| job.says(rank, "inner")).collect();
            let reasons: Vec<Option<(&str, &str)>> =
                lines.iter().map(|line| line.split_once(" was not done: ")).collect();
            let reason = reasons[0].expect("a tensor is named").1;
            assert!(reasons.iter().all(|other| other.is_some_and(|(_, text)| text == reason)), "{lines:#?}");
            assert!(reason.contains(&format!("rank {culprit} (host ")), "{reason}");
            survivors_blame(&job, culprit);
            job.ended(&[]);
        }
    }
}

#[test]
fn a_hang_explains_itself() {
    let cases = [("silence", "; it is alive and sleeping in the kernel"), ("busy", "; it is alive and computing.")];
    for (scenario, words) in cases {
        let job = Job::local(program(), SIZE, &Plan { odd: Some(2), ..Plan::new(scenario) });
        job.all_say("ready");
        let warning = job.says(0, "warning");
        assert!(
            warning.contains("rank 2 (host ") && warning.contains(") has not submitted \"missing\" for "),
            "{warning}"
        );
        assert!(warning.contains("; ranks 0,1,3 wait in it. Rank 2's last common operation was #"), "{warning}");
        assert!(warning.contains(words), "{warning}");
    }
}

#[test]
fn ranks_that_wait_for_each_other_are_told() {
    for plan in transports(&Plan { odd: Some(2), ..Plan::new("instead") }) {
        let mut job = Job::local(program(), SIZE, &plan);
        for line in job.all_say("error") {
            let (_, text) = parse_error(&line);
            let sides = "ranks 0,1,3 wait for \"missing\", rank 2 waits for \"something else\"";
            assert!(text.contains("they wait for each other") && text.contains(sides), "{text}");
        }
        job.ended(&[]);
    }
}

#[test]
fn a_hang_ends_at_the_hang_timeout() {
    let plan = Plan { odd: Some(1), shutdown: Some(2.0), ..Plan::new("silence") };
    let job = Job::local(program(), SIZE, &plan);
    job.all_say("ready");
    let reason = survivors_blame(&job, 1);
    assert!(reason.contains("has not submitted \"missing\" for "), "{reason}");
}

#[test]
fn the_record_of_a_killed_rank_can_be_read() {
    let mut job = Job::local(program(), SIZE, &Plan { odd: Some(2), ..Plan::new("silence") });
    let line = job.says(2, "record");
    let numbers: Vec<&str> = line.split(' ').collect();
    let record = Recorder::open(numbers[1].parse().expect("a process"), numbers[2].parse().expect("a descriptor"));
    let record = record.expect("the process is there");
    job.all_say("ready");
    job.signal(2, Signal::KILL);
    job.ended(&[]);
    let records = record.read();
    let done: Vec<&str> = records.iter().filter(|r| r.stage == Stage::Done).map(|r| r.name.as_str()).collect();
    assert_eq!(done.len(), 15, "five steps of three tensors: {records:?}");
    assert!(done.iter().all(|name| ["a", "b", "c"].contains(name)), "{done:?}");
    assert!(records.is_sorted_by_key(|record| record.time));
}

#[test]
fn an_idle_engine_uses_no_processor() {
    for plan in transports(&Plan::new("idle")) {
        let job = Job::local(program(), SIZE, &plan);
        job.all_say("ready");
        let before: Vec<u64> = (0..SIZE).map(|rank| job.ticks(rank)).collect();
        // Processor time, of which a busy machine gives less and not more.
        thread::sleep(Duration::from_secs(3));
        for (rank, before) in before.into_iter().enumerate() {
            let used = job.ticks(rank) - before;
            assert!(used <= 10, "an idle rank used {used} of 300 clock ticks");
        }
    }
}
