//! What people see of a training run besides the launcher's live view: a line for each epoch, and the result.

use std::{io, time::Instant};

use sirtaki::train::{Epoch, ExchangeReport, Observer, Report, Start};
use sirtaki_engine::machine;
use sirtaki_launch::words::{grouped, percent, seconds_in_words};

use super::relative;
use crate::{
    commands::report::words,
    printer::{Printer, Style},
};

/// Shows a run.
pub(super) struct Display<'a> {
    printer: &'a mut Printer,
    quiet: bool,
    epochs: u64,
    /// What samples are called.
    samples: &'static str,
    /// The command that continues this run.
    again: &'a str,
    /// When this began, and the machine's load then.
    began: (Instant, Option<f64>),
}

impl<'a> Display<'a> {
    pub(super) fn new(printer: &'a mut Printer, quiet: bool, again: &'a str) -> Self {
        Self { printer, quiet, epochs: 0, samples: "", again, began: (Instant::now(), machine::load()) }
    }

    /// The result, as data.
    pub(super) fn report(&mut self, report: &Report) -> io::Result<()> {
        if report.interrupted {
            self.interrupted(report);
            return Ok(());
        }
        let last = report.epochs.last();
        let mut rows = vec![(
            "test accuracy",
            percent(report.test_accuracy, 2),
            last.map_or(String::new(), |last| format!("loss {:.4}", last.test_loss)),
        )];
        rows.extend(report.prediction.map(|prediction| {
            let note = format!("perplexity {:.3}", prediction.perplexity);
            ("bits/character", format!("{:.3}", prediction.bits_per_character), note)
        }));
        if last.is_some() {
            rows.extend(training(report, self.load()));
        }
        let memory = report.peak_memory.iter().max().copied().unwrap_or(0);
        rows.push(("memory", format!("{} MB", memory / 1_000_000), "of the largest worker".into()));
        rows.push(("time", seconds_in_words(report.seconds), format!("{} steps in all, tests included", report.steps)));
        let is_exact = report.pipeline.as_ref().is_none_or(|pipeline| pipeline.parts == 1);
        if report.shards.is_some() && is_exact {
            rows.push(("weights", report.weights[..16].into(), "the same on any number of workers (SHA-256)".into()));
        }
        if let Some(checkpoint) = &report.checkpoint {
            rows.push(("checkpoint", relative(checkpoint), String::new()));
        }
        self.printer.data("")?;
        for (name, value, note) in rows {
            let line = format!(
                "{:<15} {} {}",
                name,
                self.printer.paint(Style::Bold, &format!("{value:<16}")),
                self.printer.paint(Style::Faint, &note)
            );
            self.printer.data(line.trim_end())?;
        }
        Ok(())
    }

    /// A line for the study that this run is a trial of; a loss that is not a number is written as Python would.
    pub(super) fn report_to_study(&mut self, epoch: &Epoch) {
        let number = |value: f64| if value.is_finite() { value.to_string() } else { "NaN".into() };
        let line = format!(
            "{{\"step\": {}, \"train_loss\": {}, \"test_loss\": {}, \"test_accuracy\": {}}}",
            epoch.epoch,
            number(epoch.train_loss),
            number(epoch.test_loss),
            number(epoch.test_accuracy)
        );
        // A study that no longer listens has ended, and ends this run, too.
        let _ = self.printer.data(&line);
    }

    /// The machine's load during the run.
    fn load(&self) -> Option<f64> {
        let (began, before) = self.began;
        machine::load_during(before?, machine::load()?, began.elapsed().as_secs_f64())
    }

    /// What was saved and how to continue, whether progress is shown or not.
    fn interrupted(&mut self, report: &Report) {
        let kept = report.checkpoint.as_ref().map_or("not saved".into(), |path| format!("saved in {}", relative(path)));
        self.printer.message(&format!("interrupted after step {}, {kept}", report.steps));
        self.printer.message(&format!("to continue: {}", self.again));
    }

    fn say(&mut self, line: &str) {
        if !self.quiet {
            self.printer.message(line);
        }
    }
}

type Row = (&'static str, String, String);

/// Efficiencies below this need an explanation.
const LOW: f64 = 0.8;

/// A note that other programs compete for the cores, if that may be why the efficiency is low.
fn busy(speedup: f64, load: f64, workers: usize) -> Option<Row> {
    let is_low = speedup / (workers as f64) < LOW && machine::is_busy(load, workers);
    let note = "other programs keep this machine busy, which lowers the efficiency";
    is_low.then(|| ("machine", format!("load {load:.1}"), note.into()))
}

/// The result of training, while the machine had this load.
fn training(report: &Report, load: Option<f64>) -> Vec<Row> {
    let mut rows = Vec::new();
    let reached = report.epochs.iter().find(|epoch| Some(epoch.seconds) == report.seconds_to_target);
    let target = format!("{} reached", percent(report.target_accuracy, 2));
    rows.push(match (reached, report.seconds_to_target) {
        (Some(epoch), Some(seconds)) => {
            ("time to target", seconds_in_words(seconds), format!("{target} after epoch {}", epoch.epoch))
        }
        _ => (
            "time to target",
            "–".into(),
            format!("{} not reached; more --epochs may help", percent(report.target_accuracy, 2)),
        ),
    });
    let samples = report.domain.samples();
    let workers = if report.workers == 1 { "1 worker".into() } else { format!("{} workers", report.workers) };
    rows.push((
        "throughput",
        format!("{} {samples}/s", grouped(report.samples_per_second)),
        format!("{workers}, {} {samples} per step", grouped(report.global_batch as f64)),
    ));
    if let (Some(speedup), Some(one)) = (report.speedup, report.samples_per_second_one_worker) {
        let efficiency = percent(speedup / report.workers as f64, 0);
        let note = format!("over one worker alone ({} {samples}/s): efficiency {efficiency}", grouped(one));
        rows.push(("speed-up", format!("{speedup:.2}"), note));
        rows.extend(load.and_then(|load| busy(speedup, load, report.workers)));
        rows.push((
            "communication",
            percent(report.communication_share, 1),
            "of the time, waiting for other workers included".into(),
        ));
        rows.extend(exchange(report));
    }
    rows.extend(report.pipeline.as_ref().filter(|pipeline| pipeline.workers > 1).map(|pipeline| {
        let note = format!("of the time, waiting for stages; {} micro-batches", pipeline.micro_batches);
        ("bubble", percent(pipeline.bubble, 1), note)
    }));
    rows
}

/// What workers exchanged, where that is not simply all gradients.
fn exchange(report: &Report) -> Vec<Row> {
    let ExchangeReport { bytes, bytes_of_data_parallelism: usual, shared, .. } = report.exchange;
    if report.strategy == "data" {
        return Vec::new();
    }
    let note = format!("sent and received by each worker; averaging all gradients takes {}", words::bytes(usual));
    let mut rows = vec![("exchanged", words::bytes(bytes), note)];
    if shared > 0 {
        rows.push((
            "shared",
            words::bytes(shared as f64),
            "of weights, once per host instead of on every worker".into(),
        ));
    }
    rows
}

impl Observer for Display<'_> {
    fn begins(&mut self, start: &Start) {
        (self.epochs, self.samples) = (start.epochs, start.domain.samples());
        let (train, test) = (grouped(start.samples.0 as f64), grouped(start.samples.1 as f64));
        let weights = grouped(start.parameters as f64);
        let batch = format!("{} {} per step", start.batch_per_worker, self.samples);
        let workers = match (start.workers, start.copies) {
            (1, _) => format!("1 worker with {batch}"),
            (some, copies) if copies == some => format!("{some} workers with {batch} each"),
            (some, 1) => format!("{some} workers share the network, with {batch}"),
            (some, copies) => format!("{some} workers share {copies} copies of it, with {batch} each"),
        };
        self.say(&format!(
            "training {} ({weights} weights) on {train} {}, testing on {test}; {workers}",
            start.model, self.samples
        ));
        for refused in &start.refused {
            self.say(&format!("not used: {refused}"));
        }
        if let Some((path, step)) = &start.resumed {
            self.say(&format!("continuing after step {step}, from {}", relative(path)));
        }
        if start.is_finished {
            let more = "a larger --max-steps continues it; more --epochs need a new run";
            self.say(&format!("this run is finished, so the model is only tested; {more}"));
        }
    }

    fn epoch_ends(&mut self, done: &Epoch) {
        let loss = match done.prediction {
            Some(prediction) => format!("{:.3} bits/character", prediction.bits_per_character),
            None => format!("loss {:.4}", done.test_loss),
        };
        let line = format!(
            "{}  test accuracy {}  {loss}  train accuracy {}  {} {}/s  {}",
            epoch(done.epoch, self.epochs),
            self.printer.paint_message(Style::Bold, &percent(done.test_accuracy, 2)),
            percent(done.train_accuracy, 2),
            grouped(done.samples_per_second),
            self.samples,
            seconds_in_words(done.seconds),
        );
        self.say(&line);
    }
}

fn epoch(number: u64, of: u64) -> String {
    format!("epoch {number}/{of}")
}

#[cfg(test)]
mod tests {
    use super::busy;

    #[test]
    fn a_busy_machine_is_named_beside_a_low_efficiency() {
        assert_eq!(busy(1.2, 5.04, 2).unwrap().1, "load 5.0");
        assert!(busy(1.9, 5.0, 2).is_none(), "nothing to explain");
        assert!(busy(1.2, 2.1, 2).is_none(), "it is our own work");
    }
}
