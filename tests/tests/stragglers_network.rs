//! A host whose network is slow is named; hosts are network namespaces with names of their own.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use serde_json::Value;
use sirtaki_tests::{
    hosts::Hosts,
    job::{Job, Plan},
};

const RANK: &str = env!("CARGO_BIN_EXE_engine-rank");

/// The profile of a job with one rank on each of three hosts, called host0 to host2.
fn profile(hosts: &Hosts) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let (script, path) = (folder.path().join("rank"), folder.path().join("p.json"));
    let named = format!("echo host$TEST_RANK > /proc/sys/kernel/hostname && exec {RANK}");
    fs::write(&script, format!("#!/bin/sh\nexec unshare --uts sh -c '{named}'\n")).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let names: Vec<String> = (0..hosts.count()).map(|host| hosts.name(host)).collect();
    let places: Vec<Option<&str>> = names.iter().map(|name| Some(name.as_str())).collect();
    let plan = Plan { profile: Some(path.clone()), interface: Some("fast"), ..Plan::new("some") };
    let mut job = Job::start(Path::new(&script), &places, &plan);
    job.all_say("done");
    job.ended(&[]);
    serde_json::from_slice(&fs::read(&path).unwrap()).unwrap()
}

fn check(profile: &Value, host: usize) {
    let straggler = &profile["straggler"];
    assert_eq!((&straggler["rank"], &straggler["phase"]), (&host.into(), &"network".into()), "{profile:#}");
    assert_eq!(straggler["host"], format!("host{host}"));
    assert!(straggler["sentence"].as_str().unwrap().contains("slow network"), "{straggler}");
    let by = |rank: usize| profile["ranks"][rank]["lateness"]["by_phase"]["network"].as_f64().unwrap();
    assert!((0..3).all(|rank| (by(rank) > 0.0) == (rank == host)), "{profile:#}");
}

#[test]
fn a_host_that_sends_slowly_is_named() {
    for host in [0, 1] {
        let hosts = Hosts::new("slow", 3);
        hosts.throttle_host(host, "fast", 20);
        check(&profile(&hosts), host);
    }
}

#[test]
fn similar_hosts_are_not_blamed_for_their_network() {
    let hosts = Hosts::new("alike", 3);
    hosts.throttle("fast", 20);
    let profile = profile(&hosts);
    assert!(profile["ranks"][0]["lateness"]["round_trip"].is_object(), "the network was looked at: {profile:#}");
    assert_ne!(profile["straggler"]["phase"], "network", "{profile:#}");
}
