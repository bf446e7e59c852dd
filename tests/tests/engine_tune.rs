//! Tuning on real engines: every choice is tried while results stay right, and the outcome serves the next job.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use sirtaki_comm::{ReduceOp, Reduction};
use sirtaki_engine::{Engine, Operation, Settings, Warn, report::Report};
use sirtaki_tests::{
    engines::{each, submit, sum, vector},
    make,
    team::Make,
};

/// Steps by the end of which a search is over, with plenty of room for steps that do not count.
const MOST: usize = 1000;

fn settings(tuned: Option<PathBuf>) -> (Settings, Arc<Mutex<Vec<String>>>) {
    let said = Arc::new(Mutex::new(Vec::new()));
    let heard = said.clone();
    let warn: Warn = Arc::new(move |text: &str| heard.lock().unwrap().push(text.to_string()));
    (Settings { tune: true, tuned, warn, ..Settings::default() }, said)
}

/// Trains until rank 0 says that tuning has found something; gives the number of steps.
fn train(engine: &Engine) -> (usize, Report) {
    for step in 0..MOST {
        let lengths = [0, 20_000, 40_000, 70_000, 300_000];
        let name = |index| format!("t{index}");
        let tickets: Vec<_> =
            lengths.iter().enumerate().map(|(at, &length)| sum(engine, &name(at), vec![step as f32; length])).collect();
        let found = i64::from(!engine.report().tuned.is_empty());
        let found = submit(engine, "found", Operation::AllReduce(Reduction::new(ReduceOp::Max)), vec![found]);
        for (ticket, length) in tickets.into_iter().zip(lengths) {
            let expected = (engine.group().size() * step) as f32;
            assert!(vector::<f32>(ticket.wait_one()) == vec![expected; length], "step {step}");
        }
        if vector::<i64>(found.wait_one()) == [1] {
            return (step, engine.report());
        }
    }
    panic!("tuning does not end");
}

fn is_found_saved_and_used_again(make: Make<'_>, size: usize, choices: usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tuned.json");
    let (first, said) = settings(Some(path.clone()));
    let results = each(make, size, &first, train);
    let tuned = &results[0].1.tuned;
    assert!(tuned.len() == 1 && results[1..].iter().all(|(_, report)| report.tuned.is_empty()));
    assert_eq!((tuned[0].workload.tensors, tuned[0].workload.bytes), (6, 4 * 430_000 + 8));
    assert!((choices..=choices + 2).contains(&tuned[0].measured), "{tuned:?}");
    assert_eq!(*said.lock().unwrap(), [tuned[0].to_string()]);
    assert!(results[0].1.to_string().contains(&tuned[0].to_string()));
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(&format!("\"ranks\": {size}")) && text.contains("\"tensors\": 6"), "{text}");

    let (second, said) = settings(Some(path.clone()));
    let again = each(make, size, &second, train);
    assert!(again[0].0 < 20, "{} steps although the outcome was known", again[0].0);
    let used = &again[0].1.tuned;
    assert_eq!((used[0].choice, used[0].measured), (tuned[0].choice, 0));
    assert!(said.lock().unwrap()[0].ends_with("(as an earlier job found)"));
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn limits_and_pieces_in_shared_memory() {
    is_found_saved_and_used_again(&make::arena, 2, 6);
}

#[test]
fn limits_algorithms_and_pieces_over_tcp() {
    is_found_saved_and_used_again(&make::tcp, 3, 8);
}

#[test]
fn limits_algorithms_and_pieces_on_several_hosts() {
    is_found_saved_and_used_again(&make::layered_evenly, 4, 8);
}

#[test]
fn a_foreign_file_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("diary");
    fs::write(&path, "dear diary").unwrap();
    let (settings, said) = settings(Some(path.clone()));
    each(&make::arena, 2, &settings, train);
    let said = said.lock().unwrap();
    assert!(
        said.len() == 2 && said[0].contains("diary cannot be read") && said[1].starts_with("tuned for"),
        "{said:?}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "dear diary");
}

#[test]
fn one_switch_turns_it_off() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tuned.json");
    let (on, said) = settings(Some(path.clone()));
    each(&make::arena, 2, &Settings { tune: false, ..on }, |engine| {
        for step in 0..100 {
            assert_eq!(vector::<f32>(sum(engine, "t", vec![step as f32; 400_000]).wait_one())[7], 2.0 * step as f32);
        }
        assert!(engine.report().tuned.is_empty());
    });
    assert!(said.lock().unwrap().is_empty() && !path.exists());
}
