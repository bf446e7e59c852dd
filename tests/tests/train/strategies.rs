//! How workers learn together, and on what: the same bits where that is promised, and what it cost.

use super::{number, place::Place};

#[test]
fn devices_of_processes_are_workers_whatever_they_compute() {
    let place = Place::with_small_data();
    let weights = |arguments: &str| {
        let common = "--data small --model cnn --reproducible --shards 4 --global-batch 32 --max-steps 3";
        place.weights(&format!("{common} {arguments}"))
    };
    // With dropout, whose random numbers follow from the samples.
    let alone = weights("-n 1");
    for others in [
        "-n 4",
        "-n 1 --devices 4",
        "-n 2 --devices 2 --strategy central",
        "-n 2 --devices 2 --strategy server --servers 2 --copies 2",
        "-n 1 --devices 4 --mesh data=2,pipe=2",
    ] {
        assert_eq!(weights(others), alone, "{others}");
    }
}

#[test]
fn every_strategy_says_what_it_cost() {
    let place = Place::with_small_data();
    let cost = |arguments: &str| {
        let report = place.report(&format!("-n 2 --data small --batch-size 2 --epochs 1 {arguments}"));
        let exchange = &report["exchange"];
        (report["strategy"].as_str().unwrap().to_owned(), number(exchange, "bytes"), number(exchange, "shared"))
    };
    let (name, whole, shared) = cost("");
    assert!(name == "data" && whole > 0.0 && shared == 0.0, "{name} {whole} {shared}");
    assert_eq!(cost("--strategy sharded"), ("sharded".into(), whole, 0.0));
    let (name, half, shared) = cost("--strategy central");
    assert!(name == "central" && half == whole / 2.0 && shared > 0.0, "{name} {half} {shared}");
    let done = place.train("-n 2 --data small --batch-size 2 --epochs 1 --strategy central");
    for text in ["exchanged", "shared"] {
        assert!(done.out.iter().any(|line| line.starts_with(text)), "{text}: {:?}", done.out);
    }
    // Gradients go and weights come, in blocks with headers; two workers average with as many bytes.
    let (name, more, _) = cost("--strategy server");
    assert!(name == "server" && more > whole && more < 1.2 * whole, "{name} {more} {whole}");
    // Three averages instead of 24, and the state at the end.
    let (name, less, _) = cost("--strategy local --every 8");
    assert!(name == "local" && less < whole / 4.0, "{name} {less} {whole}");
}

#[test]
fn workers_with_servers_keep_the_delay_and_go_on_with_other_servers_or_none() {
    let place = Place::with_small_data();
    let common = "--data small --batch-size 4 --checkpoint-dir here";
    let run = |arguments: &str| {
        let report = place.report(&format!("{common} {arguments}"));
        let list = |name: &str| report["exchange"][name].as_array().unwrap().clone();
        assert_eq!((list("waited_each").len(), list("computed_each").len()), (2, 2), "{report}");
        let staleness: Vec<u64> = list("staleness").iter().map(|times| times.as_u64().unwrap()).collect();
        (number(&report, "steps"), staleness)
    };
    let (steps, staleness) = run("-n 2 --strategy server --delay 3 --servers 2 --copies 2 --max-steps 8");
    assert_eq!((steps, staleness.iter().sum::<u64>()), (8.0, 16), "one for each step of both");
    assert!(staleness.len() <= 4, "{staleness:?}");
    let (steps, _) = run("-n 2 --strategy server --delay 3 --servers 1 --max-steps 12 --resume");
    assert_eq!(steps, 12.0);
    let refused = place.train(&format!("{common} -n 2 --strategy server --delay none --max-steps 16 --resume"));
    let expected = "delay: it was 3 when this run began, now it is none";
    assert!(refused.code == 1 && refused.message().contains(expected), "{}", refused.message());
    let done = place.train(&format!("{common} -n 2 --strategy server --delay 3 --max-steps 16 --resume"));
    for text in ["exchanged", "staleness", "waiting"] {
        assert!(done.out.iter().any(|line| line.starts_with(text)), "{text}: {:?} {}", done.out, done.message());
    }
}

#[test]
fn workers_that_average_weights_now_and_then_learn_as_well_and_go_on_exactly() {
    let place = Place::new();
    let common = "-n 2 --batch-size 16 --lr 0.02 --strategy local --every 4 --after 10";
    let report = place.report(&format!("{common} --max-steps 60"));
    assert!(number(&report, "test_accuracy") > 0.5, "{report}");
    let weights =
        |arguments: &str| place.weights(&format!("{common} --outer nesterov --checkpoint-every 15 {arguments}"));
    let whole = weights("--max-steps 25 --checkpoint-dir whole");
    weights("--max-steps 15 --checkpoint-dir parts");
    assert_eq!(weights("--max-steps 25 --checkpoint-dir parts --resume"), whole);
}
