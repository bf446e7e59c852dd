//! Engines on several hosts, as network namespaces: three with two ranks each, and one of the hosts is cut off.
//!
//! Whoever still reaches rank 0 gives its reason, which names a rank of the other side. Whoever does not blames rank 0.

use std::path::Path;

use rustix::process::Signal;
use sirtaki_tests::{
    hosts::Hosts,
    job::{Job, Plan, parse_error},
};

const TIMEOUT: f64 = 3.0;

fn start(hosts: &Hosts, plan: &Plan) -> Job {
    let names: Vec<String> = (0..6).map(|rank| hosts.name(rank / 2)).collect();
    let places: Vec<Option<&str>> = names.iter().map(|name| Some(name.as_str())).collect();
    Job::start(Path::new(env!("CARGO_BIN_EXE_engine-rank")), &places, plan)
}

/// The reason these ranks give, which is the same.
fn common_reason(job: &Job, ranks: &[usize]) -> String {
    let reason = |rank: &usize| {
        let line = job.says(*rank, "error");
        let (_, text) = parse_error(&line);
        text.split_once(" was not done: ").unwrap_or_else(|| panic!("no tensor is named: {text}")).1.to_string()
    };
    let reasons: Vec<String> = ranks.iter().map(reason).collect();
    assert!(reasons.iter().all(|reason| *reason == reasons[0]), "ranks {ranks:?}: {reasons:#?}");
    reasons[0].clone()
}

fn cut(scenario: &'static str, host: usize, shared_memory: bool) {
    let hosts = Hosts::new("eng", 3);
    let odd = (scenario == "silence").then_some(2 * host);
    let plan = Plan { timeout: TIMEOUT, interface: Some("fast"), odd, shared_memory, ..Plan::new(scenario) };
    let mut job = start(&hosts, &plan);
    job.all_say("ready");
    if odd.is_some() {
        // Everybody has left the adopted order and waits for the odd rank.
        job.says(0, "warning");
    }
    hosts.cut(host);
    // The odd rank waits for nothing, so it has nothing to fail.
    let all = || (0..6).filter(|&rank| Some(rank) != odd);
    let (cut_off, others): (Vec<usize>, Vec<usize>) = all().partition(|rank| rank / 2 == host);
    let (with_rank_0, without) = if host == 0 { (cut_off, others) } else { (others, cut_off) };
    let reason = common_reason(&job, &with_rank_0);
    let beyond = |rank: usize| (rank / 2 == host) == (host != 0);
    let named = (0..6).find(|rank| reason.contains(&format!("rank {rank} (host ")));
    assert!(named.is_some_and(beyond), "{scenario}: ranks {with_rank_0:?} say: {reason}");
    let reason = common_reason(&job, &without);
    assert!(reason.contains("rank 0 (host "), "{scenario}: ranks {without:?} say: {reason}");
    job.ended(odd.as_slice());
}

#[test]
fn whoever_knows_how_a_rank_ended_is_asked() {
    for culprit in [0, 3] {
        let hosts = Hosts::new("eng", 3);
        let mut job = start(&hosts, &Plan { interface: Some("fast"), ..Plan::new("loop") });
        job.all_say("ready");
        job.tell_ending(culprit, "was killed by an angry test");
        job.signal(culprit, Signal::KILL);
        let others: Vec<usize> = (0..6).filter(|&rank| rank != culprit).collect();
        let reason = common_reason(&job, &others);
        assert!(reason.starts_with(&format!("rank {culprit} (host ")), "{reason}");
        assert!(reason.ends_with("is gone: it was killed by an angry test"), "{reason}");
        job.ended(&[]);
    }
}

#[test]
fn a_cut_in_an_adopted_order() {
    for host in [0, 1] {
        cut("loop", host, true);
        cut("loop", host, false);
    }
}

#[test]
fn a_cut_in_agreement() {
    cut("varied", 0, false);
    cut("varied", 1, true);
    cut("varied", 2, false);
}

#[test]
fn a_cut_while_an_adopted_order_is_left() {
    cut("leave", 0, true);
    cut("leave", 1, false);
    cut("leave", 2, true);
}

#[test]
fn a_cut_in_silence() {
    cut("silence", 0, true);
    cut("silence", 1, false);
}
