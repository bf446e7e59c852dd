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
    for others in
        ["-n 4", "-n 1 --devices 4", "-n 2 --devices 2 --strategy central", "-n 1 --devices 4 --mesh data=2,pipe=2"]
    {
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
    // Three averages instead of 24, and the state at the end.
    let (name, less, _) = cost("--strategy local --every 8");
    assert!(name == "local" && less < whole / 4.0, "{name} {less} {whole}");
}
