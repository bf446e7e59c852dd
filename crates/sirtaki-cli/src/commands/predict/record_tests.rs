//! Timelines written by hand, with what has to be found in them.

use std::fs;

use std::fmt::Write;

use super::*;
use crate::commands::predict::trace::FORMAT;

/// A timeline of `ranks` with these events; times in milliseconds.
#[derive(Default)]
struct Written {
    events: String,
    ranks: usize,
}

impl Written {
    fn slice(&mut self, rank: usize, name: &str, (begin, end): (f64, f64), more: &str) {
        self.ranks = self.ranks.max(rank + 1);
        let (ts, dur) = (begin * 1e3, (end - begin) * 1e3);
        let comma = if self.events.is_empty() { "" } else { "," };
        let event = r#"{"ph":"X","tid":1,"pid""#;
        write!(
            self.events,
            "{comma}{event}:{rank},\"ts\":{ts},\"dur\":{dur},\"name\":\"{name}\",\"args\":{{{more}}}}}"
        )
        .unwrap();
    }

    /// A collective of these tensors, submitted at these times, that takes 2 ms, 1 of them inside.
    fn reduced(&mut self, rank: usize, number: usize, begin: f64, tensors: &[(&str, f64)]) {
        let bytes = 1000 * tensors.len();
        let by = format!("\"bytes\":{bytes},\"algorithm\":\"flat\"");
        let whole = format!("\"number\":{number},\"tensors\":{},{by}", tensors.len());
        self.slice(rank, "all_reduce", (begin, begin + 2.0), &whole);
        for (name, submitted) in tensors {
            let more = format!("\"bytes\":1000,\"collective\":{number}");
            self.slice(rank, name, (*submitted, begin + 2.0), &more);
            self.slice(rank, "all_reduce", (begin + 0.5, begin + 1.5), &by);
        }
    }

    fn work(&self) -> Result<Work, String> {
        let about = format!("\"format\":\"{FORMAT}\",\"ranks\":{},\"dropped\":0", self.ranks);
        let text = format!("{{\"otherData\":{{{about}}},\"traceEvents\":[{}]}}", self.events);
        work(&Trace::parse(text.as_bytes())?)
    }
}

/// `steps` steps of 100 ms: `b` after 60 ms, `a` after 80 ms (after 90 on rank 1), reduced together from 95 to 97 ms.
fn job(steps: usize) -> Written {
    let mut written = Written::default();
    for step in 0..steps {
        for rank in 0..2 {
            let begin = 100.0 * step as f64;
            let tensors = [("b", begin + 60.0), ("a", begin + 80.0 + 10.0 * rank as f64)];
            written.reduced(rank, step, begin + 95.0, &tensors);
        }
    }
    written
}

fn near(times: &[f64], expected: &[f64]) {
    assert_eq!(times.len(), expected.len());
    for (time, expected) in times.iter().zip(expected) {
        assert!((time - expected).abs() < 1e-9, "{times:?} and {expected:?}");
    }
}

#[test]
fn a_step_begins_with_the_results_of_the_one_before() {
    let work = job(5).work().unwrap();
    let names: Vec<&str> = work.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!((names, work.bytes(), work.workers), (vec!["b", "a"], 2000, 2));
    // The first step's beginning is not known. The others begin 3 ms before the round 100.
    assert_eq!(work.samples.len(), 8);
    near(&work.samples[0].ready, &[0.063, 0.083]);
    near(&work.samples[7].ready, &[0.063, 0.093]);
    near(&[work.samples[7].computed], &[0.093]);
    near(&[work.recorded_step.unwrap()], &[0.1]);
    near(&[work.copy], &[1e-3 / 2000.0]);
    near(&[work.local.unwrap().at(2000.0)], &[1e-3]);
    assert!(work.notes.is_empty());
}

#[test]
fn phases_tell_how_long_it_really_computes() {
    let mut written = job(4);
    for step in 0..4 {
        let begin = 100.0 * f64::from(step);
        written.slice(0, "backward", (begin + 50.0, begin + 94.0), "");
        written.slice(0, "optimizer", (begin + 97.0, begin + 99.0), "");
    }
    let work = written.work().unwrap();
    near(&work.samples[0].ready, &[0.063, 0.083]);
    near(&[work.samples[0].computed, work.fixed], &[0.097, 0.002]);
}

#[test]
fn what_comes_now_and_then_and_pauses_do_not_count() {
    let mut written = job(6);
    written.reduced(0, 100, 297.0, &[("accuracy", 297.0)]);
    for rank in 0..2 {
        written.reduced(rank, 101, 5000.0, &[("b", 4000.0), ("a", 4500.0)]);
    }
    let work = written.work().unwrap();
    assert_eq!((work.tensors.len(), work.samples.len()), (2, 10));
    assert!(work.notes[0].starts_with("2 of 12 steps took over 4 times"), "{:?}", work.notes);
}

#[test]
fn too_little_is_refused() {
    assert!(job(1).work().unwrap_err().contains("no step"));
    assert!(job(2).work().unwrap_err().contains("2 whole steps"));
    assert!(Written::default().work().unwrap_err().contains("no step"));
    let mut idle = Written::default();
    (0..5).for_each(|step| idle.reduced(0, step, 0.0, &[("a", 0.0)]));
    assert!(idle.work().unwrap_err().contains("no time"));
}

#[test]
fn the_line_is_that_of_the_least_squares_and_never_negative() {
    let line = fit(&[(0.0, 1.0), (10.0, 2.0), (20.0, 3.0)]);
    near(&[line.fixed, line.per_byte], &[1.0, 0.1]);
    // Falling times have no slope, and a line below zero starts at zero.
    assert_eq!(fit(&[(0.0, 2.0), (10.0, 1.0)]), LinearCost { fixed: 1.5, per_byte: 0.0 });
    assert_eq!(fit(&[(10.0, 0.0), (20.0, 3.0)]), LinearCost { fixed: 0.0, per_byte: 0.1 });
}

#[test]
fn files_that_are_not_timelines_are_refused_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let error = |path: &Path| format!("{:#}", read(path).unwrap_err());
    assert!(error(folder.path()).ends_with("has no timeline.json"));
    let file = folder.path().join("x.json");
    assert!(error(&file).contains("No such file"));
    fs::write(&file, "{}").unwrap();
    assert!(error(&file).contains("otherData"));
}

#[test]
fn a_run_folder_knows_the_batch() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(RUN), r#"{"settings": {"batch_per_worker": "64"}}"#).unwrap();
    assert_eq!(batch(folder.path()), Some(64));
    fs::write(folder.path().join(RUN), r#"{"settings": {}}"#).unwrap();
    assert_eq!(batch(folder.path()), None);
}
