//! The folder of a run: what is in it after a good end, after a bad one, and after nobody was left to end it.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Signal, kill_process};
use serde_json::Value;
use sirtaki_tests::launch::Launch;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/mnist");
const RANK: &str = env!("CARGO_BIN_EXE_engine-rank");

fn sirtaki(words: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sirtaki-under-test"));
    command.current_dir(folder).args(words);
    command
}

fn read(path: PathBuf) -> Value {
    serde_json::from_slice(&fs::read(&path).unwrap()).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What the program said, without a last line that was cut off.
fn rows(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("steps.jsonl")).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Permissions of everything in a folder that somebody else could use.
fn open_to_others(folder: &Path) -> Vec<(PathBuf, u32)> {
    let entries: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    let own = |path: &PathBuf| (path.clone(), fs::metadata(path).unwrap().permissions().mode() & 0o777);
    let inside = entries.iter().filter(|path| path.is_dir()).flat_map(|path| open_to_others(path));
    entries.iter().map(own).filter(|(_, mode)| mode & 0o077 != 0).chain(inside).collect()
}

#[test]
fn a_run_leaves_what_it_was_and_how_it_went() {
    let place = tempfile::tempdir().unwrap();
    let words = ["train", "-n", "2", "--max-steps", "30", "--checkpoint-dir", "here", "--data", DATA];
    let done = Launch::start(sirtaki(&[&words[..], &["--tensorboard", "events"]].concat(), place.path())).ends();
    assert_eq!(done.code, 0, "{}", done.message());
    let events: Vec<PathBuf> =
        fs::read_dir(place.path().join("events")).unwrap().map(|it| it.unwrap().path()).collect();
    let [events]: [PathBuf; 1] = events.try_into().unwrap();
    assert!(events.file_name().unwrap().to_string_lossy().starts_with("events.out.tfevents."));
    let events = String::from_utf8_lossy(&fs::read(events).unwrap()).into_owned();
    let times = |tag: &str| events.matches(tag).count();
    assert_eq!((times("loss/train"), times("accuracy/test")), (3, 1));
    assert!(events.contains("| batch_per_worker | 64 |"));
    let folder = place.path().join("here");
    assert!(folder.join("checkpoint-000001/manifest.json").exists());
    assert_eq!(open_to_others(place.path()), []);
    let about = read(folder.join("run.json"));
    assert_eq!((&about["ranks"], &about["settings"]["batch_per_worker"]), (&2.into(), &"64".into()));
    assert_eq!((&about["exit"]["code"], &about["ended"]["failed"]), (&0.into(), &Value::Null));
    assert_eq!(about["launch"][1], "train");
    let part = |about: &Value| (about["settings"]["max_steps"].clone(), about["settings"]["resumed_step"].clone());
    assert_eq!(part(&about), ("30".into(), Value::Null), "it is a part of a training");
    assert!(!about["environment"].to_string().contains("SECRET"), "{about}");
    let rows = rows(&folder);
    let steps: Vec<u64> = rows.iter().map(|row| row["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, [0, 10, 20, 30, 30]);
    assert!(rows[1]["loss"].is_number() && rows[4]["test_accuracy"].is_number(), "{rows:?}");
    assert_eq!(read(folder.join("profile.json"))["ranks"].as_array().unwrap().len(), 2);
    // Going on is another run.
    let words = ["train", "-n", "1", "--max-steps", "40", "--batch-size", "64", "--resume", "--checkpoint-dir", "here"];
    let done = Launch::start(sirtaki(&[&words[..], &["--data", DATA]].concat(), place.path())).ends();
    assert_eq!(done.code, 0, "{}", done.message());
    let went_on = read(place.path().join("here-2").join("run.json"));
    assert_eq!((&went_on["ranks"], part(&went_on)), (&1.into(), ("40".into(), "30".into())));
    assert_eq!(read(folder.join("run.json"))["ranks"], 2);
}

#[test]
fn a_run_that_fails_says_so() {
    let place = tempfile::tempdir().unwrap();
    let mut command = sirtaki(&["run", "-n", "2", "--record=failed", "--", RANK], place.path());
    command.env("TEST_SCENARIO", "abort").env("TEST_ODD", "1");
    let done = Launch::start(command).ends();
    assert_ne!(done.code, 0);
    let about = read(place.path().join("failed").join("run.json"));
    assert_eq!(about["exit"]["code"], done.code);
    assert!(about["exit"]["how"].as_str().unwrap().starts_with("rank 1 "), "{about}");
}

#[test]
fn files_are_whole_when_everybody_is_killed() {
    let place = tempfile::tempdir().unwrap();
    let words = ["train", "-n", "2", "--epochs", "50", "--checkpoint-dir", "here", "--data", DATA];
    let launch = Launch::start(sirtaki(&words, place.path()));
    let folder = place.path().join("here");
    let deadline = Instant::now() + Duration::from_secs(300);
    while rows(&folder).len() < 3 {
        assert!(Instant::now() < deadline, "nothing was recorded");
        sleep(Duration::from_millis(50));
    }
    for (pid, name) in launch.processes() {
        if name.contains("train-worker") {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    let done = launch.ends();
    assert_ne!(done.code, 0, "{}", done.message());
    assert!(rows(&folder).len() >= 3);
    let about = read(folder.join("run.json"));
    assert!(about.get("ended").is_none(), "nobody could say that it ended: {about}");
    assert_eq!(about["exit"]["code"], done.code);
    let left = fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let left: Vec<_> = left.filter(|name| !name.starts_with("checkpoint")).collect();
    assert!(left.iter().all(|name| !name.starts_with('.')), "nothing half-written is left: {left:?}");
}
