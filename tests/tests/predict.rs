//! A job is recorded, and its timeline is what `sirtaki predict` goes by.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
    thread::sleep,
    time::Duration,
};

use serde_json::Value;
use sirtaki_cli::printer::Printer;
use sirtaki_engine::{Engine, Phase, Settings, Ticket};
use sirtaki_tests::{
    engines::{each, sum},
    make,
};

const STEPS: usize = 15;
/// What a step computes at least.
const COMPUTING: Duration = Duration::from_millis(6);

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn step(engine: &Engine) {
    sleep(COMPUTING / 3);
    let backward = engine.phase(Phase::Backward);
    let late = sum(engine, "last layer", vec![1.0_f32; 1000]);
    sleep(COMPUTING / 3);
    let tickets: [Ticket; 2] =
        [sum(engine, "first layer", vec![1.0_f32; 500_000]), sum(engine, "its shift", vec![1.0_f32; 500])];
    sleep(COMPUTING / 3);
    drop(backward);
    tickets.into_iter().chain([late]).for_each(|ticket| drop(ticket.wait_one().unwrap()));
}

fn predict(arguments: &[&str]) -> Value {
    let (out, err) = (Shared::default(), Shared::default());
    let words = ["sirtaki", "predict"].iter().chain(arguments).map(Into::into);
    let code = sirtaki_cli::run(words, &mut Printer::plain(out.clone(), err.clone()));
    assert_eq!(code, 0, "{}", String::from_utf8_lossy(&err.0.lock().unwrap()));
    serde_json::from_slice(&out.0.lock().unwrap()).unwrap()
}

#[test]
fn a_recorded_job_is_understood() {
    let folder = tempfile::tempdir().unwrap();
    let timeline = folder.path().join("timeline.json");
    let settings = Settings { timeline: Some(timeline.clone()), ..Settings::default() };
    each(&make::arena, 2, &settings, |engine| {
        (0..STEPS).for_each(|_| step(engine));
        drop(sum(engine, "accuracy", vec![1.0_f32]).wait_one().unwrap());
    });
    let file = timeline.to_str().unwrap();
    let forecast = predict(&[file, "--workers", "1,2,8", "--bandwidth", "100Mbit", "--json"]);
    assert_eq!((&forecast["tensors"], &forecast["bytes"]), (&3.into(), &2_006_000.into()), "{forecast}");
    assert_eq!(forecast["recorded_workers"], 2);
    // Every step of both ranks but the first; on a busy machine some may look like pauses.
    let steps = forecast["recorded_steps"].as_u64().unwrap() as usize;
    assert!((STEPS..=2 * (STEPS - 1)).contains(&steps), "{forecast}");
    let computing = forecast["computing_seconds"].as_f64().unwrap();
    assert!(computing >= COMPUTING.as_secs_f64(), "{forecast}");
    let row = |at: usize, field: &str| forecast["rows"][at][field].as_f64().unwrap();
    assert_eq!(row(0, "efficiency"), 1.0);
    // 2 MB at 12.5 MB/s take 160 ms, which nothing hides, and 7/4 of that among eight.
    assert!(row(1, "communication_seconds") > 0.1 && row(1, "communication_seconds") < 0.25, "{forecast}");
    assert!(row(2, "communication_seconds") > 1.5 * row(1, "communication_seconds"), "{forecast}");
    // The folder of the timeline does as well.
    let again = predict(&[folder.path().to_str().unwrap(), "--workers", "1", "--batch", "10", "--json"]);
    // Read from decimal digits, the last bit may differ.
    let images = again["rows"][0]["samples_per_second"].as_f64().unwrap() * computing;
    assert!((images - 10.0).abs() < 1e-9, "{again}");
}
