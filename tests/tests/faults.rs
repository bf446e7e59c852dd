//! What happens when ranks die, fall silent or call something else: every other rank says who and what, soon, and
//! nothing is left behind.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use sirtaki_tests::{
    job::{Job, Plan, named_segments, parse_error},
    wait::until,
};

const SIZE: usize = 4;
/// Long enough for a process that computes to use a clock tick.
const PAUSE: Duration = Duration::from_millis(100);

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_rank"))
}

/// How long ranks that are to be silent are waited for: long enough that no rank is silent on a busy machine.
const LIMIT: f64 = 8.0;

/// The transports a job on one host can use.
fn transports(plan: &Plan) -> [Plan; 3] {
    [
        plan.clone(),
        Plan { shared_memory: false, ..plan.clone() },
        Plan { shared_memory: false, tls: true, ..plan.clone() },
    ]
}

/// Runs `check` for several jobs at once, because most of their time is spent waiting.
fn at_once(plans: &[Plan], check: impl Fn(&Plan) + Sync) {
    thread::scope(|scope| plans.iter().for_each(|plan| drop(scope.spawn(|| check(plan)))));
}

/// All ranks but `culprit` report an error that names it. What they say tells also how they noticed: `is gone` at once,
/// `made no progress` when the limit was reached.
fn survivors_blame(job: &Job, culprit: usize, words: &str) {
    for rank in (0..SIZE).filter(|&rank| rank != culprit) {
        let line = job.says(rank, "error");
        let (_, text) = parse_error(&line);
        assert!(text.contains(&format!("rank {culprit} ")), "does not name rank {culprit}: {text}");
        assert!(text.contains(words), "does not say `{words}`: {text}");
    }
}

#[test]
fn a_killed_rank_is_named_at_once() {
    for scenario in ["loop", "small-loop", "ring-loop"] {
        for plan in transports(&Plan::new(scenario)) {
            for culprit in [0, 2] {
                let mut job = Job::local(program(), SIZE, &plan);
                job.all_say("ready");
                job.signal(culprit, Signal::KILL);
                survivors_blame(&job, culprit, "is gone");
                job.ended(&[]);
            }
        }
    }
    assert!(named_segments().is_empty());
}

#[test]
fn a_stopped_rank_is_named_after_the_timeout() {
    for scenario in ["loop", "ring-loop"] {
        for culprit in [0, 3] {
            at_once(&transports(&Plan { timeout: LIMIT, ..Plan::new(scenario) }), |plan| {
                let mut job = Job::local(program(), SIZE, plan);
                job.all_say("ready");
                job.signal(culprit, Signal::STOP);
                survivors_blame(&job, culprit, "made no progress");
                job.ended(&[culprit]);
            });
        }
    }
}

#[test]
fn a_rank_that_never_comes_is_named_after_the_timeout() {
    at_once(&transports(&Plan { timeout: LIMIT, odd: Some(1), ..Plan::new("silence") }), |plan| {
        let job = Job::local(program(), SIZE, plan);
        job.all_say("ready");
        survivors_blame(&job, 1, "made no progress");
    });
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
        // From "ready" on it computes for a moment, then it waits: a tenth of a second passes without a tick.
        let mut last = u64::MAX;
        until("rank 0 waits", || {
            thread::sleep(PAUSE);
            std::mem::replace(&mut last, job.ticks(0)) == last
        });
        let (before, start) = (job.ticks(0), Instant::now());
        thread::sleep(20 * PAUSE);
        // A tick is a hundredth of a second. A busy machine gives a process fewer, never more.
        let (used, passed) = (job.ticks(0) - before, start.elapsed().as_millis() as u64 / 10);
        assert!(used <= passed / 50, "a waiting rank used {used} of {passed} clock ticks");
    }
}
