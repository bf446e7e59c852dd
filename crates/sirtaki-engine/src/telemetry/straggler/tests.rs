use std::time::Duration;

use super::*;
use crate::telemetry::{counts::Whole, recorder::Recorder};

const MS: u64 = 1_000_000;

/// What a rank did in each of ten steps of 100 ms, in milliseconds.
#[derive(Clone, Copy)]
struct Did {
    waited: u64,
    input: u64,
    /// Of packets: the shortest trip, the longest, and its destination.
    trips: Option<(u64, u64, Rank)>,
}

const USUAL: Did = Did { waited: 50, input: 5, trips: None };

/// The profile of ranks on hosts of these names; what is not settled in steps is compared at the end.
fn profile(ranks: &[(&str, Did)], settled: bool) -> Profile {
    let spent = |did: &Did| Spent { waited: did.waited * MS, work: [did.input * MS, 0, 0, 0] };
    let common = Common::of(ranks.iter().map(|(_, did)| spent(did)).collect::<Vec<_>>().iter()).unwrap();
    let counts = |(_, did): &(&str, Did)| {
        let recorder = Recorder::create().unwrap();
        for step in 1..=10 {
            recorder.add_whole(Whole::Waited, did.waited * MS);
            recorder.worked(Phase::Input, did.input * MS);
            if settled {
                recorder.settle(&spent(did), &common, step * 100 * MS);
            }
        }
        recorder.set_whole(Whole::Elapsed, 1000 * MS);
        if let Some((least, most, to)) = did.trips {
            let trip = Duration::from_millis;
            (0..3).for_each(|_| recorder.round_trips(&[(to + 1, trip(least)), (to, trip(most))]));
        }
        Some(recorder.counts())
    };
    Profile::new(ranks.iter().map(|(host, _)| (*host).into()).collect(), ranks.iter().map(counts).collect())
}

fn found(ranks: &[(&str, Did)]) -> Option<(Rank, Cause)> {
    let [settled, at_the_end] = [true, false].map(|settled| profile(ranks, settled).straggler());
    let short = |found: &Option<Straggler>| found.as_ref().map(|found| (found.rank, found.cause));
    assert_eq!(short(&settled), short(&at_the_end));
    short(&settled)
}

#[test]
fn the_outlier_is_named() {
    let late = Did { waited: 20, input: 35, ..USUAL };
    assert_eq!(found(&[("a", USUAL), ("a", USUAL), ("b", late)]), Some((2, Cause::Phase(Phase::Input))));
    assert_eq!(found(&[("a", late), ("a", USUAL)]), Some((0, Cause::Phase(Phase::Input))));
    assert_eq!(found(&[("a", Did { input: 5, ..late }), ("a", USUAL)]), Some((0, Cause::Unknown)));
    assert_eq!(found(&[("a", USUAL)]), None);
    assert_eq!(found(&[("a", USUAL), ("a", USUAL), ("a", USUAL)]), None);
    assert_eq!(found(&[("a", USUAL), ("a", late), ("a", late)]), None, "no one of them");
    assert_eq!(found(&[("a", USUAL), ("a", Did { waited: 49, input: 6, ..USUAL })]), None, "not worth a word");
    let text = profile(&[("a", USUAL), ("b", late)], true).straggler().unwrap().to_string();
    let expected = "rank 1 (host b) kept others waiting for 0.30 s (30 % of the time): late in 91 % of the steps, \
                    by 27.3 ms on average; its input took longer than others'";
    assert_eq!(text, expected);
}

#[test]
fn a_slow_network_is_named() {
    let trips = |least, most, to| Did { trips: Some((least, most, to)), ..USUAL };
    // Everything to and from the second host takes long.
    let delayed = [("a", trips(1, 40, 1)), ("b", trips(40, 41, 2)), ("c", trips(1, 40, 1))];
    assert_eq!(found(&delayed), Some((1, Cause::Network)));
    let text = profile(&delayed, true).straggler().unwrap().to_string();
    assert!(text.starts_with("rank 1 (host b) has a slow network: packets take 41.0 ms"), "{text}");
    // In a ring, what the first host sends and what acknowledges others wait in its queue.
    let ring = [("a", trips(2, 20, 1)), ("b", trips(1, 2, 2)), ("c", trips(1, 1, 3)), ("d", trips(1, 19, 0))];
    assert_eq!(found(&ring), Some((0, Cause::Network)));
    let two = [("a", trips(1, 40, 2)), ("a", trips(1, 40, 3)), ("b", trips(40, 40, 4)), ("b", trips(40, 42, 5))];
    let shared: Vec<_> = two.into_iter().chain([("c", trips(1, 39, 2)), ("c", trips(1, 41, 3))]).collect();
    assert_eq!(found(&shared), Some((3, Cause::Network)));
    let alike = [("a", trips(40, 42, 1)), ("b", trips(39, 41, 2)), ("c", trips(40, 40, 1))];
    assert_eq!(found(&alike), None, "all are alike");
    assert_eq!(found(&[("a", trips(1, 1, 1)), ("b", trips(1, 40, 0))]), None, "of two nobody can tell");
    let hidden = delayed.map(|(host, did)| (host, Did { waited: 3, ..did }));
    assert_eq!(profile(&hidden, true).straggler(), None, "packets that nobody waits for");
}

#[test]
fn numbers_of_different_moments_are_not_compared() {
    let late = Did { waited: 20, input: 35, ..USUAL };
    let mut old = profile(&[("a", USUAL), ("a", late)], false);
    let recorder = Recorder::create().unwrap();
    recorder.set_whole(Whole::Elapsed, 500 * MS);
    old.counts[1] = Some(recorder.counts());
    assert_eq!(old.straggler(), None);
    old.counts[1] = None;
    assert_eq!(old.straggler(), None);
    assert_eq!(old.lateness()[1], None);
}

#[test]
fn nobody_is_waited_for_longer_than_the_whole_time() {
    let late = Did { waited: 20, input: 35, ..USUAL };
    let mut killed = profile(&[("a", USUAL), ("b", late)], true);
    for counts in killed.counts.iter_mut().flatten() {
        // As after a kill within the first second.
        let before = counts.elapsed();
        counts.0.iter_mut().filter(|word| **word == before).for_each(|word| *word = MS);
    }
    let straggler = killed.straggler().unwrap();
    assert!(straggler.share <= 1.0, "{straggler}");
}

#[test]
fn the_json_has_lateness_and_the_straggler() {
    let late = Did { waited: 20, input: 35, ..USUAL };
    let json: serde_json::Value = serde_json::from_str(&profile(&[("a", USUAL), ("b", late)], true).to_json()).unwrap();
    let straggler = &json["straggler"];
    assert_eq!(
        (&straggler["rank"], &straggler["host"], &straggler["phase"]),
        (&1.into(), &"b".into(), &"input".into())
    );
    let lateness = &json["ranks"][1]["lateness"];
    assert_eq!(lateness["events"], 11);
    assert!((lateness["by_phase"]["input"].as_f64().unwrap() - 0.3).abs() < 1e-9, "{lateness}");
    assert_eq!((&lateness["by_phase"]["network"], &lateness["most_seconds"]), (&0.0.into(), &0.03.into()));
    assert_eq!(lateness["distribution"][1], serde_json::json!({ "from_seconds": 0.016384, "events": 10 }));
    let none: serde_json::Value = serde_json::from_str(&profile(&[("a", USUAL)], true).to_json()).unwrap();
    assert!(none["straggler"].is_null());
}
