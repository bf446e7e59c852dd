//! `sirtaki train --model transformer`: text instead of images.

use std::fs;

use serde_json::Value;

use super::{DATA, Place, number};

/// A folder with a text that repeats itself in parts.
fn place() -> Place {
    let place = Place::new();
    let part = |number: usize| format!("{} and {} and {}; ", number % 7, number * 3 % 7, number * 5 % 7);
    fs::write(place.path("text.txt"), (0..240).map(part).collect::<String>()).unwrap();
    place
}

const COMMON: &str = "--model transformer --data text.txt --context 16";

#[test]
fn it_learns_what_follows_and_reports_it() {
    let place = place();
    let common = format!("{COMMON} -n 2 --batch-size 8 --lr 0.002 --target-accuracy 0.7 --epochs 6");
    let done = place.train(&format!("{common} --json report.json"));
    assert_eq!(done.code, 0, "{}", done.message());
    for text in ["test accuracy", "bits/character", "time to target", "throughput", "speed-up"] {
        assert!(done.out.iter().any(|line| line.starts_with(text)), "{text}: {:?}", done.out);
    }
    for text in ["sequences, testing on", "8 sequences per step", "bits/character  train accuracy", "sequences/s"] {
        assert!(done.message().contains(text), "{text}: {}", done.message());
    }
    let report: Value = serde_json::from_slice(&fs::read(place.path("report.json")).unwrap()).unwrap();
    assert!(number(&report, "test_accuracy") > 0.7, "{report}");
    let (bits, perplexity) = (number(&report, "bits_per_character"), number(&report, "perplexity"));
    assert!(bits < 1.5 && (bits.exp2() - perplexity).abs() < 1e-9, "{report}");
    let last = &report["epochs"].as_array().unwrap().last().unwrap().clone();
    assert!((number(last, "test_loss").exp() - perplexity).abs() < 1e-9, "{report}");
    assert_eq!((&report["optimizer"], &report["domain"]), (&"adamw".into(), &"text".into()));
    // Halves, on a text of the grammar.
    let report = place.report("--model transformer -n 2 --context 8 --batch-size 2 --max-steps 2 --precision bf16");
    assert!(number(&report, "bits_per_character").is_finite(), "{report}");
}

#[test]
fn stages_of_a_transformer_end_with_the_bits_of_one_process() {
    let place = place();
    let weights = |folder: &str, arguments: &str| {
        let common = format!("{COMMON} --reproducible --shards 4 --global-batch 16");
        place.weights(&format!("{common} --checkpoint-dir {folder} {arguments}"))
    };
    let alone = weights("one", "-n 1 --max-steps 3");
    assert_eq!(weights("two", "-n 2 --shard-optimizer --max-steps 3"), alone);
    assert_eq!(weights("lent", "-n 2 --shard-parameters --max-steps 3"), alone);
    assert_eq!(weights("staged", "-n 2 --mesh pipe=2 --schedule gpipe --max-steps 3 --timeline=timeline.json"), alone);
    let timeline = fs::read_to_string(place.path("timeline.json")).unwrap();
    for name in
        ["stage 0, forward of micro-batch 3", "stage 1, backward of micro-batch 0", "bubble: waits for gradients"]
    {
        assert!(timeline.contains(name), "{name}");
    }
    // Begun as two copies in two stages, each with half of the parameters, continued in eight stages on four workers, and ended by one.
    weights("moved", "-n 4 --mesh data=2,pipe=2 --shard-parameters --max-steps 1");
    weights("moved", "-n 4 --mesh pipe=4 --schedule interleaved --shard-optimizer --max-steps 2 --resume");
    assert_eq!(weights("moved", "-n 1 --max-steps 3 --resume"), alone);
}

#[test]
fn texts_that_do_not_fit_are_refused() {
    let place = place();
    fs::write(place.path("short.txt"), "too short").unwrap();
    fs::write(place.path("latin.txt"), b"caf\xe9, in another encoding").unwrap();
    fs::create_dir(place.path("empty")).unwrap();
    for (arguments, says) in [
        ("--model transformer --data nowhere", "there is no such file or folder"),
        ("--model transformer --data empty", "no file named .txt"),
        ("--model transformer --data short.txt", "a text of 9 characters is too short for sequences of 64"),
        ("--model transformer --data text.txt --context 2000", "too short for sequences of 2000"),
        ("--model transformer --data latin.txt", "not UTF-8, from byte 3 on"),
        (&format!("--model transformer --data {DATA}"), "a data set of images, and transformer continues text"),
        ("--model lenet --data text.txt", "a data set of text, and lenet classifies images"),
        ("--model cnn --data .", "choose --model transformer"),
        ("--model cnn --context 8", "--context is the length of sequences of text"),
        (&format!("{COMMON} --global-batch 1000"), "steps of 1000 sequences"),
    ] {
        let refused = place.refused(&format!("-n 1 {arguments}"));
        assert!(refused.contains(says), "{arguments}: {refused}");
    }
    assert!(!place.path("runs").exists());
    // A run goes on with the text that it began with.
    let common = format!("{COMMON} -n 1 --batch-size 8 --checkpoint-dir mine");
    place.report(&format!("{common} --max-steps 1"));
    let text = fs::read_to_string(place.path("text.txt")).unwrap();
    fs::write(place.path("text.txt"), text.replace('3', "8")).unwrap();
    let done = place.train(&format!("{common} --max-steps 2 --resume"));
    assert!(done.code != 0 && done.message().contains("data: it was a text with SHA-256"), "{}", done.message());
}

#[test]
fn layers_split_over_workers_learn_what_whole_ones_learn() {
    let place = place();
    let report = |folder: &str, arguments: &str| {
        let common = format!("{COMMON} --global-batch 16 --checkpoint-dir {folder}");
        place.report(&format!("{common} {arguments}"))
    };
    let whole = "-n 1 --reproducible --shards 2";
    let alone = report("one", &format!("{whole} --max-steps 4"));
    let close = |report: &Value| {
        assert_eq!(report["parameters"], alone["parameters"]);
        for (value, bound) in [("bits_per_character", 1e-3), ("test_accuracy", 1e-2)] {
            assert!((number(report, value) - number(&alone, value)).abs() < bound, "{value}: {report} {alone}");
        }
    };
    close(&report("two", "-n 2 --mesh tensor=2 --micro-batches 2 --max-steps 4"));
    // Begun in parts of layers by two copies, continued in stages of them, then in other parts, and ended by one worker.
    report("moved", "-n 4 --mesh data=2,tensor=2 --shard-optimizer --max-steps 1");
    let parts = report("moved", "-n 4 --mesh pipe=2,tensor=2 --micro-batches 2 --max-steps 2 --resume");
    // Whoever had which part, the weights of this step have one checksum.
    assert_eq!(report("moved", &format!("{whole} --max-steps 2 --resume"))["weights"], parts["weights"]);
    report("moved", "-n 3 --mesh tensor=3 --micro-batches 2 --max-steps 3 --resume");
    close(&report("moved", &format!("{whole} --max-steps 4 --resume")));
}

#[test]
fn networks_that_cannot_be_divided_like_this_are_refused() {
    let place = place();
    fs::write(place.path("two.txt"), "ab".repeat(1000)).unwrap();
    for (arguments, says) in [
        ("-n 2 --mesh tensor=2 --model lenet", "the layers of lenet cannot be split over workers"),
        (&format!("{COMMON} -n 8 --oversubscribe --mesh tensor=8"), "at most 4 workers, not 8"),
        (&format!("{COMMON} -n 4 --oversubscribe --mesh data=2,pipe=2,tensor=2"), "2 × 2 × 2 is 8"),
        (&format!("{COMMON} -n 2 --mesh tensor=2 --reproducible"), "round differently"),
        (&format!("{COMMON} -n 2 --mesh tensor=2 --shard-parameters"), "the axis tensor has split them already"),
        ("--model transformer --data two.txt --context 4 -n 3 --mesh tensor=3", "scores of 2 classes"),
        (&format!("{COMMON} -n 2 --mesh tensor=2 --optimizer lars"), "lars needs the norms of whole layers"),
        (&format!("{COMMON} -n 2 --mesh pipe=2 --precision bf16"), "does not compute in bf16"),
    ] {
        let refused = place.refused(arguments);
        assert!(refused.contains(says), "{arguments}: {refused}");
    }
}
