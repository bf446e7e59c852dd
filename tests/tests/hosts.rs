//! Several hosts, as network namespaces: three with two ranks each.

use std::path::Path;

use rustix::process::Signal;
use sirtaki_tests::{
    hosts::Hosts,
    job::{Job, Plan, parse_error},
};

fn start(hosts: &Hosts, plan: &Plan) -> Job {
    let names: Vec<String> = (0..6).map(|rank| hosts.name(rank / 2)).collect();
    let places: Vec<Option<&str>> = names.iter().map(|name| Some(name.as_str())).collect();
    Job::start(Path::new(env!("CARGO_BIN_EXE_rank")), &places, plan)
}

#[test]
fn six_ranks_on_three_hosts_work_in_layers() {
    let hosts = Hosts::new("sum", 3);
    for plan in
        [Plan::new("sum"), Plan { tls: true, ..Plan::new("sum") }, Plan { shared_memory: false, ..Plan::new("sum") }]
    {
        let job = start(&hosts, &Plan { interface: Some("fast"), ..plan.clone() });
        let expected = if plan.shared_memory { "done layered sum 21" } else { "done mesh sum 21" };
        assert!(job.all_say("done").iter().all(|line| line == expected));
    }
}

#[test]
fn the_faster_interface_is_measured_and_chosen() {
    let hosts = Hosts::new("net", 3);
    hosts.throttle("slow", 50);
    let job = start(&hosts, &Plan::new("sum"));
    for line in job.all_say("network") {
        assert!(line.contains("fast 10.77.1."), "{line}");
        assert!(line.contains("slow"), "{line}");
    }
    job.all_say("done");
    let forced = start(&hosts, &Plan { interface: Some("slow"), ..Plan::new("sum") });
    assert!(forced.all_say("network").iter().all(|line| line.contains("slow 10.77.2.")));
    forced.all_say("done");
}

#[test]
fn an_interface_that_does_not_exist_is_an_error_that_lists_those_that_do() {
    let hosts = Hosts::new("nof", 3);
    let job = start(&hosts, &Plan { interface: Some("ib7"), ..Plan::new("sum") });
    for line in job.all_say("error") {
        assert!(line.contains("ib7") && line.contains("fast"), "{line}");
    }
}

#[test]
fn a_host_that_is_cut_off_is_named_after_the_timeout() {
    let hosts = Hosts::new("cut", 3);
    let job = start(&hosts, &Plan { timeout: 4.0, interface: Some("fast"), ..Plan::new("loop") });
    job.all_say("ready");
    hosts.cut(1);
    for rank in [0, 1, 4, 5] {
        let line = job.says(rank, "error");
        let (_, text) = parse_error(&line);
        let named = text.contains("rank 2 ") || text.contains("rank 3 ");
        assert!(named && text.contains("made no progress"), "rank {rank} names no rank of the host: {text}");
    }
}

/// A rank that is stopped keeps its host's others waiting in shared memory, and those the other hosts in turn.
#[test]
fn a_rank_that_is_stopped_is_named_on_all_hosts() {
    let hosts = Hosts::new("stp", 3);
    for culprit in [0, 3] {
        let job = start(&hosts, &Plan { timeout: 4.0, interface: Some("fast"), ..Plan::new("loop") });
        job.all_say("ready");
        job.signal(culprit, Signal::STOP);
        for rank in (0..6).filter(|&rank| rank != culprit) {
            let line = job.says(rank, "error");
            let named = line.contains(&format!("rank {culprit} ")) && line.contains("made no progress");
            assert!(named, "rank {rank} does not name rank {culprit}: {line}");
        }
    }
}

#[test]
fn a_killed_rank_is_named_on_all_hosts() {
    let hosts = Hosts::new("kil", 3);
    for culprit in [0, 3] {
        let mut job = start(&hosts, &Plan { interface: Some("fast"), ..Plan::new("loop") });
        job.all_say("ready");
        job.signal(culprit, Signal::KILL);
        for rank in (0..6).filter(|&rank| rank != culprit) {
            let line = job.says(rank, "error");
            assert!(line.contains(&format!("rank {culprit} ")) && line.contains("is gone"), "{line}");
        }
        job.ended(&[]);
    }
}
