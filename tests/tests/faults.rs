//! What happens when ranks die, fall silent or call something else: every other rank says who and what, soon, and
//! nothing is left behind.

use std::{path::Path, time::Instant};

use rustix::process::Signal;
use sirtaki_tests::job::{Job, Plan, named_segments, parse_error};

const SIZE: usize = 4;

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_rank"))
}

/// The transports a job on one host can use.
fn transports(plan: &Plan) -> [Plan; 3] {
    [
        plan.clone(),
        Plan { shared_memory: false, ..plan.clone() },
        Plan { shared_memory: false, tls: true, ..plan.clone() },
    ]
}

/// All ranks but `culprit` report the same error, which names it; returns the longest call.
fn survivors_blame(job: &Job, culprit: usize, words: &str) -> f64 {
    let lines: Vec<String> = (0..SIZE).filter(|&rank| rank != culprit).map(|rank| job.says(rank, "error")).collect();
    for line in &lines {
        let (_, text) = parse_error(line);
        assert!(text.contains(&format!("rank {culprit} ")), "does not name rank {culprit}: {text}");
        assert!(text.contains(words), "does not say `{words}`: {text}");
    }
    lines.iter().map(|line| parse_error(line).0).fold(0.0, f64::max)
}

#[test]
fn a_killed_rank_is_named_at_once() {
    for scenario in ["loop", "small-loop", "ring-loop"] {
        for plan in transports(&Plan::new(scenario)) {
            for culprit in [0, 2] {
                let mut job = Job::local(program(), SIZE, &plan);
                job.all_say("ready");
                job.signal(culprit, Signal::KILL);
                let killed = Instant::now();
                survivors_blame(&job, culprit, "is gone");
                let seconds = killed.elapsed().as_secs_f64();
                assert!(seconds < 2.0, "{scenario}: it took {seconds:.1} s to notice");
                job.ended(&[]);
            }
        }
    }
    assert!(named_segments().is_empty());
}

#[test]
fn a_stopped_rank_is_named_after_the_timeout() {
    for scenario in ["loop", "ring-loop"] {
        for plan in transports(&Plan { timeout: 2.0, ..Plan::new(scenario) }) {
            for culprit in [0, 3] {
                let mut job = Job::local(program(), SIZE, &plan);
                job.all_say("ready");
                job.signal(culprit, Signal::STOP);
                let stopped = Instant::now();
                survivors_blame(&job, culprit, "made no progress");
                let seconds = stopped.elapsed().as_secs_f64();
                assert!(seconds < 2.0 + 2.0, "{scenario}: it took {seconds:.1} s to report");
                job.ended(&[culprit]);
            }
        }
    }
}

#[test]
fn a_rank_that_never_comes_is_named_after_the_timeout() {
    for plan in transports(&Plan { timeout: 1.0, odd: Some(1), ..Plan::new("silence") }) {
        let job = Job::local(program(), SIZE, &plan);
        job.all_say("ready");
        let waited = survivors_blame(&job, 1, "made no progress");
        assert!(waited < 1.0 + 2.0, "it took {waited:.1} s to report");
    }
}

#[test]
fn a_rank_that_calls_something_else_is_named() {
    for (scenario, words) in [("length", "299999 f32"), ("kind", "broadcast of 300000 f32")] {
        for plan in transports(&Plan { odd: Some(2), ..Plan::new(scenario) }) {
            let mut job = Job::local(program(), SIZE, &plan);
            job.all_say("ready");
            survivors_blame(&job, 2, words);
            let own = job.says(2, "error");
            assert!(own.contains("ranks disagree"), "{own}");
            job.ended(&[]);
        }
    }
}

#[test]
fn when_all_are_killed_nothing_is_left() {
    for plan in transports(&Plan::new("loop")) {
        let mut job = Job::local(program(), SIZE, &plan);
        job.all_say("ready");
        (0..SIZE).for_each(|rank| job.signal(rank, Signal::KILL));
        job.ended(&[]);
    }
    assert!(named_segments().is_empty());
}

#[test]
fn waiting_ranks_use_no_processor() {
    for plan in transports(&Plan { odd: Some(3), ..Plan::new("silence") }) {
        let job = Job::local(program(), SIZE, &plan);
        job.all_say("ready");
        std::thread::sleep(std::time::Duration::from_millis(500));
        let before = job.ticks(0);
        std::thread::sleep(std::time::Duration::from_secs(2));
        let used = job.ticks(0) - before;
        assert!(used <= 4, "a waiting rank used {used} of 200 clock ticks");
    }
}
