//! `sirtaki bench scaling` with real trainings: all runs are made, recorded and counted, whatever becomes of them.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::Value;
use sirtaki_tests::launch::Launch;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/mnist");

fn sirtaki(folder: &Path, arguments: &str) -> Launch {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sirtaki-under-test"));
    command.current_dir(folder).args(arguments.split_whitespace());
    Launch::start(command)
}

fn report(folder: &Path) -> Value {
    let done = sirtaki(folder, "report out --json").ends();
    assert_eq!(done.code, 0, "{}", done.message());
    serde_json::from_str(&done.out.join("\n")).unwrap()
}

#[test]
fn strong_and_weak_runs_become_one_report() {
    let place = tempfile::tempdir().unwrap();
    let job = format!("-- sirtaki train --max-steps 20 --data {DATA}");
    let done = sirtaki(place.path(), &format!("bench scaling --workers 2,1 --seeds 1 --batch 64 -o out {job}")).ends();
    assert_eq!(done.code, 0, "{}", done.message());
    assert!(place.path().join("out/report.html").exists());
    let data = report(place.path());
    let names: Vec<&str> = data["runs"].as_array().unwrap().iter().map(|run| run["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["workers1-seed1", "strong-workers2-seed1", "weak-workers2-seed1"]);
    assert!(data["runs"].as_array().unwrap().iter().all(|run| run["state"] == "finished"), "{data}");
    let kinds: Vec<&str> =
        data["scaling"].as_array().unwrap().iter().map(|one| one["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["strong", "weak"], "{data}");
    assert!(done.out.iter().any(|line| line.starts_with("Strong: 64 samples per step")), "{:?}", done.out);
}

#[test]
fn runs_that_fail_are_counted() {
    let place = tempfile::tempdir().unwrap();
    let done = sirtaki(place.path(), "bench scaling --workers 1,2 --weak --seeds 1 -o out -- false").ends();
    assert_eq!(done.code, 1, "{}", done.message());
    assert!(done.message().contains("2 runs: 2 failed"), "{}", done.message());
    let data = report(place.path());
    assert_eq!(data["runs"].as_array().unwrap().len(), 2);
    assert!(data["runs"][0]["failed"].as_str().unwrap().len() > 5, "{data}");
    let again = sirtaki(place.path(), "bench scaling --workers 1 --seeds 1 -o out -- true").ends();
    assert_eq!((again.code, again.err.len()), (1, 2), "{}", again.message());
    assert!(again.err[0].contains("out is not empty"), "{}", again.message());
}

#[test]
fn an_interrupt_ends_the_series_and_keeps_what_there_is() {
    let place = tempfile::tempdir().unwrap();
    let job = format!("-- sirtaki train --epochs 100 --data {DATA}");
    let running = sirtaki(place.path(), &format!("bench scaling --workers 1,2 --seeds 2 -o out {job}"));
    let recorded = place.path().join("out/workers1-seed1/run.json");
    let deadline = Instant::now() + Duration::from_secs(300);
    while !fs::metadata(&recorded).is_ok_and(|about| about.len() > 0) {
        assert!(Instant::now() < deadline, "nothing is recorded");
        std::thread::sleep(Duration::from_millis(50));
    }
    running.signal(Signal::INT);
    let done = running.ends();
    assert_eq!(done.code, 130, "{}", done.message());
    assert!(done.message().contains("interrupted: 5 of 6 runs were not made"), "{}", done.message());
    assert!(place.path().join("out/report.html").exists());
    let data = report(place.path());
    assert_eq!((data["runs"].as_array().unwrap().len(), &data["runs"][0]["state"]), (1, &"failed".into()), "{data}");
}
