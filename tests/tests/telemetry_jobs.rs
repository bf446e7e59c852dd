//! Timeline and profile of real processes: killed ones, on several hosts with clocks of their own, and under launchers.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;
use sirtaki_tests::{
    hosts::Hosts,
    job::{Job, Plan},
    launch::Launch,
    trace::Trace,
};

const RANK: &str = env!("CARGO_BIN_EXE_engine-rank");
const JOIN: &str = env!("CARGO_BIN_EXE_join-rank");

/// Waits until all ranks are in the timeline.
fn wait_for_ranks(path: &Path, ranks: u64) {
    let deadline = Instant::now() + Duration::from_secs(300);
    let all = |trace: &Trace| (0..ranks).all(|rank| trace.tensors().iter().any(|tensor| tensor.rank == rank));
    while !path.exists() || !all(&Trace::read(path)) {
        assert!(Instant::now() < deadline, "not all ranks came into the timeline");
        sleep(Duration::from_millis(50));
    }
}

/// The file is read again and again while it is written, then everybody is killed in the middle of it.
#[test]
fn a_timeline_is_valid_whoever_is_killed() {
    for (victims, pause) in [(vec![0, 1], 10), (vec![0], 35), (vec![1], 20), (vec![1, 0], 73)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.json");
        let plan = Plan { timeline: Some(path.clone()), ..Plan::new("loop") };
        let mut job = Job::local(Path::new(RANK), 2, &plan);
        job.all_say("ready");
        wait_for_ranks(&path, 2);
        (0..3).for_each(|_| drop(Trace::read(&path)));
        sleep(Duration::from_millis(pause));
        victims.iter().for_each(|&rank| job.signal(rank, Signal::KILL));
        job.ended(&[]);
        let trace = Trace::read(&path);
        trace.check_cut();
        assert!(trace.tensors().len() > 10);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left there");
    }
}

/// The second host's monotonic clock is 1,000 seconds ahead. Aligned, the slices of a collective overlap on both.
#[test]
fn clocks_of_other_hosts_are_aligned() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("rank");
    let ahead = "unshare --time --monotonic 1000 --fork --kill-child";
    let text = format!("#!/bin/sh\n[ \"$TEST_RANK\" = 0 ] && exec {RANK}\nexec {ahead} {RANK}\n");
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let hosts = Hosts::new("see", 2);
    let names = [hosts.name(0), hosts.name(1)];
    let path = folder.path().join("t.json");
    let plan = Plan { timeline: Some(path.clone()), interface: Some("fast"), ..Plan::new("varied") };
    let places: Vec<Option<&str>> = names.iter().map(|name| Some(name.as_str())).collect();
    let job = Job::start(&script, &places, &plan);
    job.all_say("ready");
    wait_for_ranks(&path, 2);
    sleep(Duration::from_millis(500));
    let trace = Trace::read(&path);
    drop(job);
    trace.check_cut();
    let clock = trace.facts("clock").into_iter().find(|fact| fact["pid"] == 1).unwrap();
    let ahead = clock["args"]["ahead_us"].as_f64().unwrap();
    let error = trace.about("clock_error_us");
    assert!((ahead + 1e9).abs() <= error, "{ahead} µs, {error} µs");
    assert!(error > 0.0 && error < 1e6, "{error}");
    let (here, there): (Vec<_>, Vec<_>) = trace.tensors().into_iter().partition(|tensor| tensor.rank == 0);
    let mut pairs = 0;
    for tensor in there {
        if let Some(other) = here.iter().find(|other| other.name == tensor.name && other.name.starts_with("tensor")) {
            let apart = (tensor.begin.max(other.begin) - tensor.end.min(other.end)).max(0) as f64 / 1e3;
            assert!(apart <= 2.0 * error, "{tensor:?} and {other:?} are {apart} µs apart");
            pairs += 1;
        }
    }
    assert!(pairs > 5, "{pairs} pairs");
}

fn check_files(timeline: &Path, profile: &Path, ranks: u64) {
    let trace = Trace::read(timeline);
    trace.check();
    assert!((0..ranks).all(|rank| trace.named("ranks").iter().any(|slice| slice.rank == rank)), "{ranks} ranks");
    let profile: Value = serde_json::from_slice(&fs::read(profile).unwrap()).unwrap();
    let reduced = profile["operations"].as_array().unwrap().iter().find(|one| one["operation"] == "all_reduce");
    assert_eq!(reduced.unwrap()["tensors"], ranks);
    assert_eq!(reduced.unwrap()["tensor_bytes"], 4 * ranks);
}

#[test]
fn programs_of_open_mpi_and_alone_are_seen() {
    let mpi = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2", JOIN];
    for (words, ranks) in [(&mpi[..], 2), (&mpi[5..], 1)] {
        let folder = tempfile::tempdir().unwrap();
        let (timeline, profile) = (folder.path().join("t.json"), folder.path().join("p.json"));
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "240"]).args(words).env("XDG_CACHE_HOME", folder.path());
        command.env("SIRTAKI_TIMELINE", &timeline).env("SIRTAKI_PROFILE", &profile).stdin(Stdio::null());
        assert!(command.status().unwrap().success());
        check_files(&timeline, &profile, ranks);
    }
}

fn launch(options: &[String], program: &[&str]) -> Launch {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sirtaki-under-test"));
    command.args(["run", "-n", "2"]).args(options).arg("--").args(program);
    Launch::start(command)
}

#[test]
fn the_launcher_has_options_for_both() {
    let folder = tempfile::tempdir().unwrap();
    let (timeline, profile) = (folder.path().join("t.json"), folder.path().join("p.json"));
    let options = [format!("--timeline={}", timeline.display()), format!("--profile={}", profile.display())];
    let done = launch(&options, &[JOIN]).ends();
    assert_eq!(done.code, 0, "{}", done.message());
    check_files(&timeline, &profile, 2);
}

#[test]
fn a_failure_report_has_the_numbers_that_are_known() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sirtaki-under-test"));
    command.args(["run", "-n", "2", "--", RANK]).env("TEST_SCENARIO", "abort").env("TEST_ODD", "1");
    let done = Launch::start(command).ends();
    assert_ne!(done.code, 0);
    let message = done.message();
    let line = message.lines().find(|line| line.trim_start().starts_with("all_reduce"));
    let line = line.unwrap_or_else(|| panic!("no figures in: {message}"));
    let tensors: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(tensors >= 30, "five steps of three tensors on both ranks: {line}");
    assert!(message.contains("profile of 2 ranks on 1 host"), "{message}");
}
