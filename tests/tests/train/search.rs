//! `sirtaki search --train`: trials are `sirtaki train` itself.

use std::{fs, process::Command};

use serde_json::{Value, json};
use sirtaki_cli::study::by_text::StudyByText;
use sirtaki_tests::launch::{Finished, Launch};

use super::place::Place;

fn search(place: &Place, arguments: &[&str]) -> Finished {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sirtaki-under-test"));
    command.current_dir(place.0.path()).arg("search").args(arguments);
    Launch::start(command).ends()
}

#[test]
fn settings_of_the_training_are_found_by_trials_of_several_ranks() {
    let place = Place::with_small_data();
    let space = "lr=log:1e-3..1e-1,batch-size=8|16,optimizer=sgd|adam";
    let options = ["--", "--data", "small", "--epochs", "2"];
    let more = [&["--train", space, "--trials", "3", "-n", "1", "--ranks", "2"][..], &options].concat();
    let done = search(&place, &more);
    assert_eq!((done.code, done.out[0].as_str()), (0, "study train: 3 finished"), "{}", done.message());
    let exported = search(&place, &["export", "runs/train"]).out.join("\n");
    let study: Value = serde_json::from_str(&exported).unwrap();
    assert_eq!(study["objectives"][0], "minimize test_loss");
    for (number, trial) in study["trials"].as_array().unwrap().iter().enumerate() {
        assert_eq!(trial["reports"].as_array().unwrap().len(), 2, "one per epoch: {trial}");
        let folder = place.path(&format!("runs/train/{number:04}"));
        assert!(folder.join("rank-1.log").exists());
        let kept = fs::read_dir(folder.join("checkpoints")).unwrap().count();
        assert!(kept > 0, "checkpoints stay");
    }
}

/// Three trials were stopped after one epoch, and one of them is among the best third.
#[test]
fn a_promoted_trial_goes_on_from_its_checkpoint() {
    let place = Place::with_small_data();
    let (space, journal) = ("lr=log:1e-3..1e-1", place.path("runs/train/journal.log"));
    let about = json!({
        "name": "train", "space": space, "objectives": ["minimize test_loss"], "trials": 3,
        "stop": "asha:min=1,max=3,promote=1",
    });
    let mut study = StudyByText::open(&about.to_string(), Some(&journal), "new").unwrap();
    for (number, loss) in (0..).zip([2.5, 2.0, 2.25]) {
        let asked: Value = serde_json::from_str(&study.ask().unwrap().unwrap()).unwrap();
        if number == 1 {
            let folder = "--checkpoint-dir runs/train/0001/checkpoints";
            let options = "-n 1 --data small --batch-size 16 --epochs 3 --max-steps 6";
            let done = place.train(&format!("{options} --lr {} {folder}", asked["parameters"]["lr"]));
            assert_eq!(done.code, 0, "{}", done.message());
        }
        study.report(number, 1, loss).unwrap();
        study.tell(number, "stopped", vec![], "").unwrap();
    }
    drop(study);
    let rest = ["--trials", "3", "--stop", "asha:min=1,max=3", "-n", "1", "--resume", "--", "--data", "small"];
    let options = ["--batch-size", "16", "--epochs", "3"];
    let done = search(&place, &[&["--train", space][..], &rest, &options].concat());
    assert_eq!(
        (done.code, done.out[0].as_str()),
        (0, "study train: 1 finished, 3 stopped early"),
        "{}",
        done.message()
    );
    let exported = search(&place, &["export", "runs/train"]).out.join("\n");
    let study: Value = serde_json::from_str(&exported).unwrap();
    let promoted = &study["trials"][3];
    assert_eq!(promoted["continues"], 1, "{promoted}");
    let steps: Vec<i64> =
        promoted["reports"].as_array().unwrap().iter().map(|pair| pair[0].as_i64().unwrap()).collect();
    assert_eq!(steps, [1, 2, 3]);
    let log = fs::read_to_string(place.path("runs/train/0001/rank-0.log")).unwrap();
    let first = log.lines().find(|line| line.starts_with("{\"step\":")).unwrap();
    assert!(first.starts_with("{\"step\": 2,"), "the first epoch is not trained again: {log}");
}

#[test]
fn what_the_training_does_not_understand_is_refused_before_anything_runs() {
    let place = Place::with_small_data();
    for (space, told) in [
        ("lrr=log:1e-3..1e-1", "sirtaki train: unexpected argument '--lrr' found"),
        ("optimizer=sdg|adma", "sirtaki train: invalid value"),
        ("lr=log:0..1", "parameter `lr`: a logarithmic range starts above 0, not at 0"),
    ] {
        let done = search(&place, &["--train", space, "-n", "1", "--", "--data", "small"]);
        assert!(done.code == 1 && done.message().contains(told), "{}", done.message());
    }
    assert!(!place.path("runs").exists());
}
