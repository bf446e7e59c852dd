//! A rank that holds the others up is named, with what takes it longer; ranks are threads.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{
    fs,
    sync::{Arc, Condvar, Mutex},
    thread::sleep,
    time::Duration,
};

use serde_json::Value;
use sirtaki_engine::{Engine, Phase, Profiling, Settings, Ticket};
use sirtaki_tests::{
    engines::{each, sum},
    make,
    team::Make,
};

const STEPS: usize = 16;
const WORK: Duration = Duration::from_millis(3);
const DELAY: Duration = Duration::from_millis(60);
/// Where a delay is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Delay {
    In(Phase),
    Outside,
    Nowhere,
}

/// How many times the other ranks have come to where they wait for the odd one. It is late by intent, however busy the
/// machine is: its delay begins only when all others are there.
#[derive(Default)]
struct Others {
    arrived: Mutex<usize>,
    changed: Condvar,
}

impl Others {
    fn arrive(&self) {
        *self.arrived.lock().unwrap() += 1;
        self.changed.notify_all();
    }

    /// Comes after this many arrivals.
    fn come_after(&self, arrivals: usize) {
        let arrived = self.arrived.lock().unwrap();
        drop(self.changed.wait_while(arrived, |arrived| *arrived < arrivals).unwrap());
        sleep(DELAY);
    }
}

/// Two gradients are handed in during the backward pass, and results are waited for in the optimizer, as PyTorch's
/// optimizers do; waiting is not the optimizer's work. `number` counts the steps.
fn step(engine: &Engine, delay: Delay, others: &Others, number: usize) {
    let each = engine.group().size() - 1;
    let work = |phase| {
        sleep(WORK);
        if delay == Delay::In(phase) {
            // What comes after the wait delays the next one.
            others.come_after(each * (number + 1 + usize::from(phase == Phase::Optimizer)));
        }
    };
    for phase in [Phase::Input, Phase::Forward] {
        let _phase = engine.phase(phase);
        work(phase);
    }
    let backward = engine.phase(Phase::Backward);
    sleep(WORK);
    let last = sum(engine, "last", vec![1.0_f32; 1000]);
    work(Phase::Backward);
    let tickets: [Ticket; 2] = [last, sum(engine, "first", vec![1.0_f32; 1000])];
    drop(backward);
    let optimizer = engine.phase(Phase::Optimizer);
    if delay == Delay::Nowhere {
        others.arrive();
    }
    tickets.into_iter().for_each(|ticket| drop(ticket.wait().unwrap()));
    work(Phase::Optimizer);
    drop(optimizer);
    if delay == Delay::Outside {
        others.come_after(each * (number + 2));
    }
}

/// The page and the JSON after some steps in which rank `odd` has a delay.
fn profile(make: Make<'_>, ranks: usize, odd: usize, delay: Delay, adopt: bool) -> (String, Value) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.json");
    let said = Arc::new(Mutex::new(String::new()));
    let page = said.clone();
    let settings = Settings {
        profile: Some(Profiling::File(path.clone())),
        warn: Arc::new(move |text| page.lock().unwrap().push_str(text)),
        adopt,
        ..Settings::default()
    };
    let others = Others::default();
    each(make, ranks, &settings, |engine| {
        let delay = if engine.group().rank() == odd { delay } else { Delay::Nowhere };
        (0..STEPS).for_each(|number| step(engine, delay, &others, number));
        if delay == Delay::Nowhere {
            others.arrive();
        }
        engine.barrier("end").unwrap();
    });
    let text = said.lock().unwrap().clone();
    (text, serde_json::from_slice(&fs::read(&path).unwrap()).unwrap())
}

fn check(make: Make<'_>, ranks: usize, odd: usize, delay: Delay, adopt: bool) {
    let (page, profile) = profile(make, ranks, odd, delay, adopt);
    let steps = profile["ranks"][odd]["lateness"]["events"].as_u64().unwrap();
    assert_eq!(steps > STEPS as u64 / 2, adopt, "every step is an event in an adopted order only");
    let name = match delay {
        Delay::In(phase) => phase.name(),
        _ => "unknown",
    };
    let straggler = &profile["straggler"];
    assert!(straggler["rank"] == odd && straggler["phase"] == name, "{delay:?} on rank {odd}: {page}");
    let sentence = straggler["sentence"].as_str().unwrap();
    assert!(sentence.starts_with(&format!("rank {odd} (host ")), "{sentence}");
    assert!(page.contains(&format!("straggler: {sentence}")), "{page}");
    let lateness = &profile["ranks"][odd]["lateness"];
    let events = |one: &Value| one["events"].as_u64().unwrap();
    assert_eq!(events(lateness), lateness["distribution"].as_array().unwrap().iter().map(events).sum::<u64>());
    // The others are not on time either, so this is less than it could be.
    let [total, by] = [&lateness["seconds"], &lateness["by_phase"][name]].map(|seconds| seconds.as_f64().unwrap());
    let enough = total > 0.5 * STEPS as f64 * DELAY.as_secs_f64() && by > 0.5 * total;
    assert!(enough, "{delay:?} on rank {odd}: {page}");
}

#[test]
fn a_delay_in_each_phase_is_named() {
    for (odd, phase) in [1, 2, 0, 1].into_iter().zip(Phase::ALL) {
        check(&make::arena, 3, odd, Delay::In(phase), true);
    }
}

#[test]
fn work_outside_of_phases_and_the_one_of_two_are_named() {
    check(&make::arena, 3, 1, Delay::Outside, true);
    check(&make::tcp, 2, 0, Delay::In(Phase::Input), true);
    check(&make::tcp, 2, 1, Delay::In(Phase::Forward), true);
}

#[test]
fn without_an_adopted_order_the_total_names_it() {
    check(&make::arena, 3, 2, Delay::In(Phase::Backward), false);
}
