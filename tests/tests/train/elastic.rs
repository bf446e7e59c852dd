//! `sirtaki train` with workers that are killed, leave and come: nothing that was learned is lost, and with
//! `--reproducible` the weights are those of a run in which nothing happened.

use std::{fs, thread::sleep, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sirtaki_tests::{
    launch::{Finished, Launch},
    wait::until,
};

use super::{
    number,
    place::{DATA, Place},
};

/// Twelve steps in each of these epochs, in shards that four workers share.
const EXACT: &str = "--data small --reproducible --shards 8 --global-batch 8 --epochs 90";
const FOUR: &str = "--min-ranks 1 --max-ranks 4 --cooldown 0.01,0.02";

/// The workers, the oldest first.
fn workers(launch: &Launch) -> Vec<Pid> {
    let all = launch.processes().into_iter().filter(|(_, line)| line.contains("train-worker"));
    let mut workers: Vec<Pid> = all.map(|(pid, _)| pid).collect();
    workers.sort_by_key(|pid| pid.as_raw_nonzero());
    workers
}

/// The report of a run that ended well.
fn report(place: &Place, done: &Finished) -> Value {
    assert_eq!(done.code, 0, "{}", done.message());
    serde_json::from_slice(&fs::read(place.path("report.json")).unwrap()).unwrap()
}

fn changes(done: &Finished) -> usize {
    done.err.iter().filter(|line| line.contains("go on") || line.contains("goes on")).count()
}

#[test]
fn workers_are_killed_and_come_and_the_bits_are_those_of_an_undisturbed_run() {
    let place = Place::with_small_data();
    let alone = place.report(&format!("-n 1 {EXACT}"));
    let launch = place.start(&format!("{FOUR} {EXACT} --json report.json"));
    launch.says("epoch 2/90");
    let first = workers(&launch);
    assert_eq!(first.len(), 4);
    kill_process(first[2], Signal::KILL).unwrap();
    launch.says("lost (was killed by SIGKILL)");
    launch.says("has come");
    // Rank 0, which writes checkpoints and says how it goes.
    kill_process(first[0], Signal::KILL).unwrap();
    launch.says("worker 0 on");
    // A notice: the worker hands over and leaves in good order.
    kill_process(first[1], Signal::TERM).unwrap();
    launch.says("worker 1 on");
    let done = launch.ends();
    let elastic = report(&place, &done);
    assert!(done.err.iter().any(|line| line.contains("worker 1 on") && line.contains("left")), "{}", done.message());
    assert!(number(&elastic, "rounds") >= 4.0 && changes(&done) >= 3, "{}", done.message());
    assert_eq!(elastic["weights"], alone["weights"]);
    assert_eq!(number(&elastic, "steps"), 1080.0);
    let epochs: Vec<f64> = elastic["epochs"].as_array().unwrap().iter().map(|epoch| number(epoch, "epoch")).collect();
    assert_eq!(epochs, (1..=90).map(f64::from).collect::<Vec<_>>(), "a newcomer knows what came before it");
}

#[test]
fn without_shards_every_epoch_has_its_samples_whoever_is_there() {
    let place = Place::with_small_data();
    let common = "--data small --epochs 90 --json report.json";
    let launch = place.start(&format!("{FOUR} {common} --global-batch 8"));
    launch.says("epoch 2/90");
    kill_process(workers(&launch)[3], Signal::KILL).unwrap();
    launch.says("lost (was killed by SIGKILL)");
    let done = launch.ends();
    // 96 samples are twelve steps of eight, however many workers there were.
    assert_eq!(number(&report(&place, &done), "steps"), 1080.0, "{}", done.message());
}

/// Goes on with the run in `folder` for some steps, and compares the weights with those of one worker that was never disturbed.
fn assert_continued_exactly(place: &Place, options: &str, folder: &str, ranks: usize) {
    let resumed = format!("{options} --checkpoint-dir {folder} --resume");
    // A limit that was passed long ago only says how far the run came.
    let steps = number(&place.report(&format!("-n 1 {resumed} --max-steps 1")), "steps");
    let further = steps + 20.0;
    let undisturbed = place.weights(&format!("-n 1 {options} --max-steps {further}"));
    assert_eq!(place.weights(&format!("-n {ranks} {resumed} --max-steps {further}")), undisturbed);
}

#[test]
fn a_run_that_cannot_go_on_or_is_interrupted_is_saved_and_continued_exactly() {
    let place = Place::new();
    let exact = format!("--data {DATA} --reproducible --shards 8 --global-batch 8");
    let interrupted = place.start(&format!("{FOUR} {exact} --checkpoint-dir one"));
    interrupted.says("training lenet");
    interrupted.signal(Signal::INT);
    let done = interrupted.ends();
    assert_eq!(done.code, 130, "{}", done.message());
    assert_eq!(done.err.iter().filter(|line| line.contains("to continue: ")).count(), 1, "{}", done.message());
    // Nobody comes for a lost worker, so the other is one too few.
    let few = "--min-ranks 2 --max-ranks 2 --elastic-timeout 1 --cooldown 600,600";
    let launch = place.start(&format!("{few} {exact} --checkpoint-dir two"));
    // Every tenth step is written down.
    let steps = || fs::read_to_string(place.path("two/steps.jsonl")).unwrap_or_default();
    until("some steps", || steps().lines().any(|line| line.contains("\"loss\"")));
    kill_process(workers(&launch)[0], Signal::KILL).unwrap();
    let done = launch.ends();
    assert_eq!(done.code, 1, "{}", done.message());
    assert!(done.message().contains("1 of at least 2 workers"), "{}", done.message());
    assert!(done.message().contains("saved in two"), "{}", done.message());
    assert_continued_exactly(&place, &exact, "two", 3);
    assert_continued_exactly(&place, &exact, "one", 2);
}

#[test]
fn what_cannot_be_elastic_is_refused_with_a_way_out() {
    let place = Place::with_small_data();
    let refused = |arguments: &str| place.refused(&format!("--data small --elastic {arguments}"));
    assert!(refused("-n 2 --strategy sharded").contains("--restarts 3"));
    assert!(refused("-n 2 --mesh pipe=2").contains("leave out --mesh"));
    assert!(refused("-n 2 --devices 2").contains("leave --devices out"));
    assert!(refused("-n 2 --reproducible --batch-size 8").contains("--global-batch 16"));
    assert!(refused("--max-ranks 9 --reproducible").contains("8 shards"));
}

/// Whether all four workers have done some steps together, so that each of them has the state.
fn four_train(said: &[String]) -> bool {
    let round = said.iter().rposition(|line| line.starts_with("round "));
    let epochs = |lines: &[String]| lines.iter().filter(|line| line.contains("epoch ")).count();
    round.is_some_and(|at| said[at].contains("4 workers") && epochs(&said[at..]) > 1)
}

/// Losses and arrivals at random times. `ELASTIC_LOSSES` says how many.
#[test]
#[ignore = "takes minutes; `cargo xtask test elastic-changes`"]
fn any_history_of_workers_gives_the_same_bits() {
    let losses = std::env::var("ELASTIC_LOSSES").ok().and_then(|text| text.parse().ok()).unwrap_or(200);
    let place = Place::with_small_data();
    let exact = EXACT.replace("--epochs 90", "--epochs 1000000 --keep 1");
    let mut launch = place.start(&format!("{FOUR} {exact} --checkpoint-dir history"));
    let mut seed = 11_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let (mut lost, mut left) = (0, 0);
    while lost + left < losses {
        until("four workers that train", || launch.has_ended() || four_train(&launch.said()));
        if launch.has_ended() {
            panic!("after {lost} losses: {}", launch.ends().message());
        }
        // One of these is left, so that the state is.
        let mut there = workers(&launch);
        for _ in 0..=random(3) {
            sleep(Duration::from_millis(random(400)));
            let leaves = random(4) == 0;
            let signal = if leaves { Signal::TERM } else { Signal::KILL };
            let sent = kill_process(there.swap_remove(random(there.len() as u64) as usize), signal).is_ok();
            *(if leaves { &mut left } else { &mut lost }) += usize::from(sent);
        }
    }
    launch.signal(Signal::INT);
    let done = launch.ends();
    assert_eq!(done.code, 130, "{}", done.message());
    let rounds = changes(&done);
    let end = place.report(&format!("-n 1 {exact} --checkpoint-dir history --resume --max-steps 1"));
    let steps = number(&end, "steps");
    let undisturbed = place.weights(&format!("-n 2 {exact} --max-steps {steps}"));
    assert_eq!(end["weights"].as_str().unwrap(), undisturbed);
    println!("{lost} killed, {left} told to leave, {rounds} further rounds, {steps} steps: the same bits");
}
