//! `sirtaki train` as people use it: what it reaches, what it writes, and what it says about mistakes.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use sirtaki_tests::launch::{Finished, Launch};
use tempfile::TempDir;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/mnist");

/// A folder to work in.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn train(&self, arguments: &str) -> Finished {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sirtaki-under-test"));
        command.current_dir(self.0.path()).arg("train").args(arguments.split_whitespace());
        if !arguments.contains("--data") {
            command.args(["--data", DATA]);
        }
        Launch::start(command).ends()
    }

    /// The closing report of a run that goes well.
    fn report(&self, arguments: &str) -> Value {
        let done = self.train(&format!("{arguments} --json report.json"));
        assert_eq!(done.code, 0, "{}", done.message());
        serde_json::from_slice(&fs::read(self.path("report.json")).unwrap()).unwrap()
    }

    fn weights(&self, arguments: &str) -> String {
        self.report(arguments)["weights"].as_str().unwrap().to_owned()
    }

    /// What is said about a mistake: an error in one line and a hint in another.
    fn refused(&self, arguments: &str) -> String {
        let done = self.train(arguments);
        assert_eq!((done.code, done.err.len()), (1, 2), "{arguments}: {}", done.message());
        assert!(done.err[0].starts_with("error: ") && done.err[1].starts_with("hint: "), "{}", done.message());
        done.message()
    }
}

fn number(report: &Value, name: &str) -> f64 {
    report[name].as_f64().unwrap_or_else(|| panic!("{name}: {}", report[name]))
}

#[test]
fn an_epoch_recognises_nearly_all_digits_and_tells_of_it() {
    let place = Place::new();
    let done = place.train("-n 2 --epochs 1 --target-accuracy 0.97 --json report.json");
    assert_eq!(done.code, 0, "{}", done.message());
    for text in ["test accuracy", "time to target", "throughput", "speed-up", "communication", "memory", "checkpoint"] {
        assert!(done.out.iter().any(|line| line.starts_with(text)), "{text}: {:?}", done.out);
    }
    assert!(done.message().contains("epoch 1/1  test accuracy 9"), "{}", done.message());
    let report: Value = serde_json::from_slice(&fs::read(place.path("report.json")).unwrap()).unwrap();
    assert!(number(&report, "test_accuracy") >= 0.97, "{report}");
    assert_eq!((number(&report, "workers"), number(&report, "steps")), (2.0, 469.0));
    let (to_target, whole) = (number(&report, "seconds_to_target"), number(&report, "seconds"));
    assert!(0.0 < to_target && to_target <= whole, "{report}");
    let share = number(&report, "communication_share");
    assert!((0.0..1.0).contains(&share), "{report}");
    assert_eq!(report["peak_memory"].as_array().unwrap().len(), 2);
    let checkpoint = Path::new(report["checkpoint"].as_str().unwrap());
    assert!(checkpoint.starts_with(place.path("runs")) && checkpoint.join("manifest.json").exists(), "{report}");
}

#[test]
fn a_run_that_was_stopped_ends_as_if_it_had_not_been() {
    let place = Place::new();
    for optimizer in ["sgd", "adam"] {
        let common = format!("-n 2 --batch-size 16 --optimizer {optimizer}");
        let whole = place.weights(&format!("{common} --max-steps 12 --checkpoint-dir whole-{optimizer}"));
        let part = place.weights(&format!("{common} --max-steps 5 --checkpoint-dir part-{optimizer}"));
        assert_ne!(whole, part);
        let resumed = place.weights(&format!("{common} --max-steps 12 --checkpoint-dir part-{optimizer} --resume"));
        assert_eq!(whole, resumed, "{optimizer}");
    }
    // Other workers share what is left of the epoch.
    let report = place.report("-n 3 --batch-size 16 --max-steps 14 --checkpoint-dir part-sgd --resume");
    assert_eq!(number(&report, "steps"), 14.0);
}

#[test]
fn any_number_of_workers_ends_with_the_same_bits() {
    let place = Place::new();
    let weights = |folder: &str, arguments: &str| {
        let common = "--reproducible --global-batch 64 --optimizer adam --checkpoint-dir";
        place.weights(&format!("{common} {folder} {arguments}"))
    };
    let alone = weights("one", "-n 1 --max-steps 6");
    assert_eq!(weights("two", "-n 2 --max-steps 6"), alone);
    assert_eq!(weights("four", "-n 4 --max-steps 6"), alone);
    weights("moved", "-n 4 --max-steps 3");
    assert_eq!(weights("moved", "-n 2 --max-steps 6 --resume"), alone);
    assert_ne!(weights("other", "-n 2 --max-steps 6 --seed 43"), alone);
    // With dropout, whose random numbers belong to the shards.
    let cnn = ["1", "2"].map(|workers| weights(workers, &format!("-n {workers} --max-steps 2 --model cnn")));
    assert_eq!(cnn[0], cnn[1]);
}

#[test]
fn halves_learn_as_well() {
    let place = Place::new();
    for precision in ["bf16", "f16"] {
        let report = place.report(&format!("-n 2 --batch-size 16 --max-steps 60 --lr 0.02 --precision {precision}"));
        assert!(number(&report, "test_accuracy") > 0.5, "{precision}: {report}");
        assert_eq!(number(&report, "skipped"), 0.0);
    }
}

#[test]
fn mistakes_are_told_before_anything_starts() {
    let place = Place::new();
    assert!(place.refused("--data nowhere").contains("nowhere"));
    let damaged = place.path("damaged");
    fs::create_dir(&damaged).unwrap();
    for entry in fs::read_dir(DATA).unwrap().flatten() {
        fs::copy(entry.path(), damaged.join(entry.file_name())).unwrap();
    }
    let images = fs::read_dir(&damaged).unwrap().flatten().map(|entry| entry.path());
    let images = images.filter(|path| path.to_string_lossy().contains("train-images")).collect::<Vec<_>>();
    let bytes = fs::read(&images[0]).unwrap();
    fs::write(&images[0], &bytes[..bytes.len() / 2]).unwrap();
    assert!(place.refused("--data damaged").contains("train-images"));
    assert!(place.refused("-n 3 --global-batch 64").contains("3 workers"));
    assert!(place.refused("-n 3 --reproducible --batch-size 8").contains("8 shards"));
    assert!(place.refused("--epochs 1 --warmup-epochs 2").contains("epochs"));
    assert!(place.refused("--resume").contains("no run of lenet"));
    assert!(place.refused("lenet").contains("`lenet`"));
    assert_eq!(place.train("--target-accuracy 98.5").code, 2);
    assert!(!place.path("runs").exists());
}

#[test]
fn checkpoints_of_others_are_left_alone() {
    let place = Place::new();
    let common = "-n 1 --batch-size 16 --checkpoint-dir mine";
    place.report(&format!("{common} --max-steps 2"));
    assert!(place.refused(common).contains("--resume"));
    let listed = || {
        let mut all: Vec<_> = fs::read_dir(place.path("mine")).unwrap().flatten().map(|entry| entry.path()).collect();
        all.sort();
        all
    };
    let before = listed();
    for (arguments, says) in [
        ("-n 1 --batch-size 32 --resume --checkpoint-dir mine", "batch-size: it was 16"),
        ("-n 1 --batch-size 16 --resume --checkpoint-dir mine --model cnn", "checkpoint of \"lenet\""),
    ] {
        let done = place.train(arguments);
        assert!(done.code != 0 && done.message().contains(says), "{}", done.message());
        assert!(done.message().contains("hint:"), "{}", done.message());
    }
    let tensors = before[0].join("tensors.safetensors");
    let mut bytes = fs::read(&tensors).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&tensors, &bytes).unwrap();
    let done = place.train(&format!("{common} --resume"));
    assert!(done.code != 0 && done.message().contains("changed or cut"), "{}", done.message());
    assert_eq!((listed(), fs::read(&tensors).unwrap()), (before, bytes));
}
