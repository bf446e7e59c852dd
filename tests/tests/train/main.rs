//! `sirtaki train` as people use it: what it reaches, what it writes, and what it says about mistakes.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

mod data;
mod elastic;
mod place;
mod search;
mod strategies;
mod text;
mod volumes;

use std::{
    fs,
    os::unix::fs::{FileTypeExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    process::{Signal, kill_process},
};
use serde_json::Value;
use sirtaki_tests::{launch::Launch, wait::until};

use self::place::{DATA, Place};

fn number(report: &Value, name: &str) -> f64 {
    report[name].as_f64().unwrap_or_else(|| panic!("{name}: {}", report[name]))
}

#[test]
fn one_epoch_recognises_nearly_all_digits_and_reports_it() {
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
    assert_eq!(weights("three", "-n 3 --max-steps 6"), alone);
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
        let split = if precision == "f16" { "--shard-optimizer" } else { "" };
        let common = "-n 2 --batch-size 16 --max-steps 60 --lr 0.02";
        let report = place.report(&format!("{common} --precision {precision} {split}"));
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
    assert!(place.refused("-n 3 --global-batch 2").contains("3 workers"));
    assert!(place.refused("-n 9 --reproducible --batch-size 8").contains("8 shards"));
    assert!(place.refused("-n 3 --reproducible --global-batch 12").contains("8 equal shards"));
    let refused = place.refused("-n 2 --optimizer lars --shard-optimizer");
    assert!(refused.contains("lars") && refused.contains("adamw"), "{refused}");
    let refused = place.refused("-n 2 --optimizer lars --shard-parameters");
    assert!(refused.contains("leave --shard-parameters out"), "{refused}");
    assert!(place.refused("-n 4 --mesh data=3,pipe=2").contains("3 × 2 is 6, and there are 4 workers"));
    assert!(place.refused("-n 2 --micro-batches 4").contains("--mesh"));
    assert!(place.refused("-n 2 --mesh pipe=2 --schedule zigzag").contains("gpipe, 1f1b, interleaved"));
    assert!(place.refused("-n 2 --mesh pipe=2 --reproducible --micro-batches 3").contains("--shards 3"));
    assert!(place.refused("-n 2 --strategy local --reproducible").contains("leave out --strategy local or --rep"));
    assert!(place.refused("-n 2 --after 5").contains("--strategy local"));
    assert!(place.refused("-n 2 --servers 2").contains("add --strategy server"));
    assert!(place.refused("-n 2 --strategy server --copies 2").contains("take --servers 2, or --copies 1"));
    assert!(place.refused("-n 2 --strategy server --reproducible --delay 4").contains("take --delay 0"));
    assert!(place.refused("-n 2 --strategy server --optimizer lars").contains("or --optimizer lars"));
    assert!(place.refused("-n 2 --strategy central --shard-optimizer").contains("--strategy central or --shard-opt"));
    assert!(place.refused("-n 2 --devices 2 --global-batch 3").contains("4 workers"));
    assert!(place.refused("--epochs 1 --warmup-epochs 2").contains("epochs"));
    assert!(place.refused("--resume").contains("no run of lenet"));
    assert!(place.refused("lenet").contains("`lenet`"));
    assert_eq!(place.train("--target-accuracy 98.5").code, 2);
    assert!(!place.path("runs").exists());
}

#[test]
fn checkpoints_of_other_runs_are_left_alone() {
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

const SMALL: &str = "--data small --batch-size 16 --max-steps 2";

#[test]
fn links_and_pipes_stay_what_they_are() {
    let place = Place::with_small_data();
    symlink("real.json", place.path("link.json")).unwrap();
    let pipe = |name: &str| mknodat(CWD, place.path(name), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    ["profile", "timeline"].iter().for_each(|name| pipe(name));
    let readers = ["profile", "timeline"].map(|name| {
        let path = place.path(name);
        std::thread::spawn(move || serde_json::from_slice::<Value>(&fs::read(path).unwrap()).unwrap())
    });
    let done = place.train(&format!("{SMALL} -n 1 --json link.json --profile=profile --timeline=timeline"));
    assert_eq!(done.code, 0, "{}", done.message());
    let [profile, timeline] = readers.map(|reader| reader.join().unwrap());
    assert!(profile["ranks"].is_array() && timeline["traceEvents"].is_array(), "{profile} {timeline}");
    assert!(fs::symlink_metadata(place.path("link.json")).unwrap().file_type().is_symlink());
    let report: Value = serde_json::from_slice(&fs::read(place.path("real.json")).unwrap()).unwrap();
    assert_eq!(number(&report, "steps"), 2.0);
    assert!(["profile", "timeline"].iter().all(|name| fs::metadata(place.path(name)).unwrap().file_type().is_fifo()));
    let words = ["report", "-o", "page.html", "runs"];
    symlink("real.html", place.path("page.html")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sirtaki-under-test"));
    let done = Launch::start({
        command.current_dir(place.0.path()).args(words);
        command
    });
    let done = done.ends();
    assert_eq!(done.code, 0, "{}", done.message());
    assert!(fs::read_link(place.path("page.html")).is_ok() && place.path("real.html").exists());
}

#[test]
fn what_cannot_be_written_or_read_is_said_before_training() {
    let place = Place::with_small_data();
    fs::write(place.path("file"), "").unwrap();
    let small = format!("-n 1 {SMALL}");
    for (arguments, says) in [
        ("--json nowhere/r.json", "there is no folder"),
        ("--json small", "it is a folder"),
        ("--timeline=nowhere/t.json", "there is no folder"),
        ("--profile=nowhere/p.json", "there is no folder"),
        ("--checkpoint-dir file/x", "checkpoints cannot be written to"),
        ("--record=file/x", "cannot be recorded"),
        ("--checkpoint-dir /proc/nothing", "checkpoints cannot be written to"),
    ] {
        let refused = place.refused(&format!("{small} {arguments}"));
        assert!(refused.contains(says), "{arguments}: {refused}");
    }
    assert_eq!(fs::read_dir(place.path("runs")).map_or(0, Iterator::count), 0, "nothing was begun");
    let refused = place.refused("-n 2 --data small --batch-size 49");
    assert!(refused.contains("steps of 98 images") && refused.contains("only 96"), "{refused}");
    let refused = place.refused("-n 1 --data small --global-batch 18446744073709551615");
    assert!(refused.contains("only 96"), "{refused}");
    let images = place.path("small/train-images-idx3-ubyte");
    fs::remove_file(&images).unwrap();
    mknodat(CWD, &images, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    assert!(place.refused(&small).contains("not a regular file"));
    fs::remove_file(&images).unwrap();
    symlink("/dev/zero", &images).unwrap();
    assert!(place.refused(&small).contains("not a regular file"));
}

#[test]
fn runs_that_begin_at_once_have_a_folder_each() {
    let place = Place::with_small_data();
    let all: Vec<Launch> =
        (0..10).map(|seed| place.start(&format!("-n 1 {SMALL} --keep 1 --seed {seed} --checkpoint-every 1"))).collect();
    for launch in all {
        let done = launch.ends();
        assert_eq!(done.code, 0, "{}", done.message());
    }
    let folders: Vec<PathBuf> = fs::read_dir(place.path("runs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(folders.len(), 10, "{folders:?}");
    for folder in folders {
        let about: Value = serde_json::from_slice(&fs::read(folder.join("run.json")).unwrap()).unwrap();
        assert_eq!(about["exit"]["code"], 0, "{}", folder.display());
        let checkpoints = fs::read_dir(&folder).unwrap().flatten();
        let checkpoints = checkpoints.filter(|entry| entry.file_name().to_string_lossy().starts_with("checkpoint-"));
        assert_eq!(checkpoints.count(), 1, "{}", folder.display());
        assert!(!folder.join("lock").exists());
    }
}

#[test]
fn equal_runs_write_equal_files() {
    let place = Place::with_small_data();
    let files = |folder: &str, arguments: &str| {
        place.report(&format!("--data small --max-steps 3 --optimizer adam --checkpoint-dir {folder} {arguments}"));
        let files = ["tensors.safetensors", "manifest.json", "SHA256SUMS"];
        files.map(|file| fs::read(place.path(folder).join("checkpoint-000001").join(file)).unwrap())
    };
    assert!(files("one", "-n 2 --batch-size 8") == files("two", "-n 2 --batch-size 8"), "the same command");
    let reproducible = "--reproducible --global-batch 32";
    let [alone, ..] = files("three", &format!("-n 1 {reproducible}"));
    let [shared, ..] = files("four", &format!("-n 2 {reproducible}"));
    assert!(alone == shared, "another number of workers");
    let [split, ..] = files("five", &format!("-n 2 {reproducible} --shard-optimizer"));
    assert!(alone == split, "another place of the optimizer's state");
    let [central, ..] = files("seven", &format!("-n 2 {reproducible} --strategy central"));
    assert!(alone == central, "weights in memory once");
    let [served, ..] = files("nine", &format!("-n 2 {reproducible} --strategy server --servers 2"));
    assert!(alone == served, "weights on servers");
    let [mirrored, ..] = files("eight", &format!("-n 1 --devices 2 {reproducible}"));
    assert!(alone == mirrored, "threads instead of processes");
    let [staged, ..] = files("six", &format!("-n 4 {reproducible} --mesh data=2,pipe=2"));
    assert!(alone == staged, "stages on different workers");
}

#[test]
fn a_network_in_stages_ends_with_the_bits_of_one_process() {
    let place = Place::with_small_data();
    let report = |folder: &str, arguments: &str| {
        let common = "--data small --reproducible --shards 4 --global-batch 32 --optimizer adam --checkpoint-dir";
        place.report(&format!("{common} {folder} {arguments}"))
    };
    let weights = |folder: &str, arguments: &str| report(folder, arguments)["weights"].as_str().unwrap().to_owned();
    for model in ["lenet", "cnn"] {
        let folder = |name: &str| format!("{model}-{name}");
        let alone = weights(&folder("one"), &format!("--model {model} -n 1 --max-steps 3"));
        let staged =
            report(&folder("two"), &format!("--model {model} -n 2 --mesh pipe=2 --schedule gpipe --max-steps 3"));
        assert_eq!(staged["weights"], alone);
        assert_eq!(staged["pipeline"]["micro_batches"], 4);
        assert!((0.0..1.0).contains(&number(&staged["pipeline"], "bubble")), "{staged}");
        // Begun as two copies in two stages, continued in four stages on two workers, and ended by one.
        weights(&folder("moved"), &format!("--model {model} -n 4 --mesh data=2,pipe=2 --max-steps 1"));
        let interleaved = "--mesh pipe=2 --schedule interleaved --shard-optimizer --max-steps 2 --resume";
        weights(&folder("moved"), &format!("--model {model} -n 2 {interleaved}"));
        assert_eq!(weights(&folder("moved"), &format!("--model {model} -n 1 --max-steps 3 --resume")), alone);
    }
}

#[test]
fn the_optimizers_state_goes_from_any_workers_to_any_others() {
    let place = Place::with_small_data();
    let weights = |folder: &str, arguments: &str| {
        let common = "--data small --reproducible --global-batch 32 --optimizer adamw --checkpoint-dir";
        place.weights(&format!("{common} {folder} {arguments}"))
    };
    let alone = weights("one", "-n 1 --max-steps 3");
    weights("moved", "-n 4 --max-steps 1 --shard-optimizer");
    weights("moved", "-n 1 --max-steps 2 --resume");
    assert_eq!(weights("moved", "-n 2 --max-steps 3 --shard-optimizer --resume"), alone);
}

#[test]
fn an_interrupted_run_is_saved_and_says_how_to_go_on() {
    let place = Place::with_small_data();
    let launch = place.start("-n 2 --data small --batch-size 8 --epochs 100000 --checkpoint-dir mine");
    let deadline = Instant::now() + Duration::from_secs(300);
    let begun = || fs::read_to_string(place.path("mine/steps.jsonl")).is_ok_and(|rows| rows.lines().count() > 2);
    while !begun() {
        assert!(Instant::now() < deadline, "it never began");
        sleep(Duration::from_millis(20));
    }
    let refused = place.refused("-n 2 --data small --batch-size 8 --epochs 100000 --checkpoint-dir mine --resume");
    assert!(refused.contains("another run uses"), "{refused}");
    kill_process(launch.pid(), Signal::INT).unwrap();
    let done = launch.ends();
    assert_eq!(done.code, 130, "{}", done.message());
    let message = done.message();
    assert!(message.contains("interrupted after step ") && message.contains("saved in mine/checkpoint-"), "{message}");
    let again = message.lines().find_map(|line| line.strip_prefix("to continue: sirtaki train ")).unwrap().to_owned();
    let step = message.split("interrupted after step ").nth(1).unwrap();
    let step: u64 = step.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap();
    let done = place.train(&format!("{again} --max-steps {}", step + 1));
    assert!(done.code == 0 && done.message().contains(&format!("continuing after step {step},")), "{}", done.message());
}

#[test]
fn a_run_whose_worker_is_killed_goes_on_from_its_checkpoint_if_it_may_be_started_again() {
    let place = Place::with_small_data();
    let launch = place.start(
        "-n 2 --data small --batch-size 8 --epochs 100000 --checkpoint-every 5 --restarts 1 --checkpoint-dir mine",
    );
    let named = |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with("checkpoint-");
    let written = || fs::read_dir(place.path("mine")).is_ok_and(|mut all| all.any(|entry| entry.is_ok_and(named)));
    until("a checkpoint is written", written);
    kill_process(launch.rank(1), Signal::KILL).unwrap();
    assert!(launch.says("restart 1 of 1").contains("rank 1 was killed by SIGKILL"));
    launch.says("continuing after step ");
    kill_process(launch.pid(), Signal::INT).unwrap();
    assert_eq!(launch.ends().code, 130);
}

#[test]
fn a_finished_run_says_so_and_is_tested() {
    let place = Place::with_small_data();
    let before = place.report(&format!("-n 1 {SMALL} --checkpoint-dir mine --seed 7"));
    let done = place.train(&format!("-n 1 {SMALL} --checkpoint-dir mine --seed 7 --resume --json again.json"));
    assert!(done.code == 0 && done.message().contains("this run is finished"), "{}", done.message());
    let after: Value = serde_json::from_slice(&fs::read(place.path("again.json")).unwrap()).unwrap();
    for name in ["test_accuracy", "weights", "checkpoint", "steps"] {
        assert_eq!(before[name], after[name], "{name}");
    }
    assert!(!done.out.iter().any(|line| line.starts_with("throughput")), "{:?}", done.out);
}

#[test]
fn a_loss_that_is_not_a_number_stops_the_run() {
    let place = Place::with_small_data();
    let wild = "-n 2 --data small --batch-size 8 --epochs 2 --lr 1e30 --warmup-epochs 0 --checkpoint-every 1";
    let done = place.train(&format!("{wild} --checkpoint-dir mine"));
    let message = done.message();
    assert!(done.code != 0 && message.contains("the training loss is NaN after step "), "{message}");
    assert!(message.contains("the last good checkpoint is ") && message.contains("mine/checkpoint-00000"), "{message}");
    let done = place.train(&format!("{wild} --checkpoint-dir other --allow-nan"));
    assert_eq!(done.code, 0, "{}", done.message());
}

#[test]
fn a_checkpoint_that_never_ends_is_refused() {
    let place = Place::with_small_data();
    let common = format!("-n 1 {SMALL} --checkpoint-dir mine");
    place.report(&common);
    let tensors = place.path("mine/checkpoint-000001/tensors.safetensors");
    fs::remove_file(&tensors).unwrap();
    mknodat(CWD, &tensors, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let done = place.train(&format!("{common} --resume"));
    assert!(done.code != 0 && done.message().contains("not a regular file"), "{}", done.message());
}
