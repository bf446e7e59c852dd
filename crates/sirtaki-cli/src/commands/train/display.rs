//! What people see of a training run besides the launcher's live view: a line for each epoch, and the result.

use std::io;

use sirtaki::train::{BenchReport, Epoch, ExchangeReport, Observer, Report, Start};
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
    workers: usize,
    /// Whether this is a benchmark.
    is_measured: bool,
}

impl<'a> Display<'a> {
    pub(super) fn new(printer: &'a mut Printer, quiet: bool, is_measured: bool, again: &'a str) -> Self {
        Self { printer, quiet, epochs: 0, samples: "", again, workers: 1, is_measured }
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
            rows.extend(training(report));
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
        if let Some(file) = &report.export {
            rows.push(("network", relative(file), "for `sirtaki infer`".into()));
        }
        self.table(rows)
    }

    /// The result of a benchmark, as data.
    pub(super) fn bench(&mut self, report: &BenchReport) -> io::Result<()> {
        let Some((mean, deviation)) = mean_and_deviation(&report.rounds) else {
            self.printer.message("interrupted before the first round was done");
            return Ok(());
        };
        let (samples, workers) = (report.domain.samples(), report.workers as f64);
        let rate = |by: f64| format!("{} ± {} {samples}/s", speed(mean / by), speed(deviation / by));
        let step = format!("{} {samples} per step", grouped(report.global_batch as f64));
        let many = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let all = format!("{}, {step}", many(report.workers, "worker"));
        let each = format!(
            "mean and deviation of {} of {}",
            many(report.rounds.len(), "round"),
            many(report.steps_per_round, "step")
        );
        let mut rows = vec![("per worker", rate(workers), each), ("in all", rate(1.0), all)];
        if report.workers > 1 {
            rows.push(("communication", percent(report.communication_share, 1), COMMUNICATION.into()));
        }
        rows.extend(report.load.and_then(|load| busy(load, report.workers)));
        self.table(rows)
    }

    fn table(&mut self, rows: Vec<Row>) -> io::Result<()> {
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

    /// What was saved and how to continue, whether progress is shown or not.
    fn interrupted(&mut self, report: &Report) {
        let kept = report.checkpoint.as_ref().map_or("not saved".into(), |path| format!("saved in {}", relative(path)));
        self.printer.message(&format!("interrupted after step {}, {kept}", report.steps));
        self.printer.message(&format!("to continue: {}", self.again));
    }

    /// Some lines below a headline.
    fn list(&mut self, headline: &str, lines: &[String]) {
        self.say(headline);
        for line in lines.iter().take(NAMED) {
            self.say(&format!("  {line}"));
        }
        if lines.len() > NAMED {
            self.say(&format!("  and {} more", lines.len() - NAMED));
        }
    }

    fn say(&mut self, line: &str) {
        if !self.quiet {
            self.printer.message(line);
        }
    }
}

/// How many of the files or lines that cannot be read are named.
const NAMED: usize = 5;

type Row = (&'static str, String, String);

const COMMUNICATION: &str = "of the time, waiting for other workers included";

/// A note that other programs competed for the cores, because speeds then say little.
fn busy(load: f64, workers: usize) -> Option<Row> {
    let note = "other programs kept this machine busy: speeds are not those of a free one";
    machine::is_busy(load, workers).then(|| ("machine", format!("load {load:.1}"), note.into()))
}

/// Mean and standard deviation, if there is something.
fn mean_and_deviation(rates: &[f64]) -> Option<(f64, f64)> {
    let count = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / count;
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    (!rates.is_empty()).then(|| (mean, variance.sqrt()))
}

/// Slow networks need a digit behind the point.
fn speed(rate: f64) -> String {
    if rate < 100.0 { format!("{rate:.1}") } else { grouped(rate) }
}

/// Over what a speed-up is, with how far the turns differ, and the efficiency that follows.
fn compared(report: &Report, one: f64) -> String {
    let (samples, workers) = (report.domain.samples(), report.workers as f64);
    let efficiency = |one: f64| percent(report.samples_per_second / one / workers, 0);
    let turns = &report.turns_of_one_worker;
    let (low, high) = turns.iter().fold((one, one), |(low, high), &turn| (low.min(turn), high.max(turn)));
    let alone = format!("over one worker alone ({} {samples}/s", speed(one));
    let range = format!("{} to {} in {} turns", speed(low), speed(high), turns.len());
    let (least, most) = (efficiency(high), efficiency(low));
    match least == most {
        true => format!("{alone}, {range}): efficiency {}", efficiency(one)),
        false => format!("{alone}, {range}): efficiency {} ({least} to {most})", efficiency(one)),
    }
}

/// The result of training.
fn training(report: &Report) -> Vec<Row> {
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
        rows.push(("speed-up", format!("{speedup:.2}"), compared(report, one)));
        rows.push(("communication", percent(report.communication_share, 1), COMMUNICATION.into()));
        rows.extend(exchange(report));
    }
    rows.extend(report.load.and_then(|load| busy(load, report.workers)));
    rows.extend(report.pipeline.as_ref().filter(|pipeline| pipeline.workers > 1).map(|pipeline| {
        let note = format!("of the time, waiting for stages; {} micro-batches", pipeline.micro_batches);
        ("bubble", percent(pipeline.bubble, 1), note)
    }));
    rows
}

/// What workers exchanged, where that is not simply all gradients.
fn exchange(report: &Report) -> Vec<Row> {
    let ExchangeReport { bytes, bytes_of_data_parallelism: usual, shared, ref staleness, ref waited_each, .. } =
        report.exchange;
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
    if report.strategy == "server" {
        rows.push((
            "staleness",
            lacking(staleness),
            "steps of the slowest worker that weights lacked; mean, then shares".into(),
        ));
        let waits: Vec<String> = waited_each.iter().map(|&waited| seconds_in_words(waited)).collect();
        rows.push((
            "waiting",
            String::new(),
            format!("for servers and other workers, by worker: {}", waits.join(", ")),
        ));
    }
    rows
}

/// How many steps were lacking: `0.7 (0: 50 %, 1: 30 %, 2: 20 %)`.
fn lacking(staleness: &[u64]) -> String {
    /// Shares that are shown one by one.
    const SHOWN: usize = 4;
    let all = staleness.iter().sum::<u64>().max(1) as f64;
    let mean = (0..).zip(staleness).fold(0.0, |sum, (steps, &times)| sum + f64::from(steps) * times as f64) / all;
    let share = |(steps, &times): (usize, &u64)| format!("{steps}: {}", percent(times as f64 / all, 0));
    let mut shares: Vec<String> = staleness.iter().enumerate().take(SHOWN).map(share).collect();
    if let rest @ [_, ..] = staleness.get(SHOWN..).unwrap_or_default() {
        shares.push(format!("{SHOWN}+: {}", percent(rest.iter().sum::<u64>() as f64 / all, 0)));
    }
    format!("{mean:.1} ({})", shares.join(", "))
}

impl Observer for Display<'_> {
    fn begins(&mut self, start: &Start) {
        (self.epochs, self.samples, self.workers) = (start.epochs, start.domain.samples(), start.workers);
        if start.goes_on {
            return;
        }
        self.say(&start.found);
        if !start.unreadable.is_empty() {
            let count = grouped(start.unreadable.len() as f64);
            self.list(&format!("left out, because they cannot be read: {count}"), &start.unreadable);
        }
        let (train, test) = (grouped(start.samples.0 as f64), grouped(start.samples.1 as f64));
        let weights = grouped(start.parameters as f64);
        let batch = format!("{} {} per step", start.batch_per_worker, self.samples);
        let workers = match (start.workers, start.copies) {
            (1, _) => format!("1 worker with {batch}"),
            (some, copies) if copies == some => format!("{some} workers with {batch} each"),
            (some, 1) => format!("{some} workers share the network, with {batch}"),
            (some, copies) => format!("{some} workers share {copies} copies of it, with {batch} each"),
        };
        self.say(&match self.is_measured {
            true => format!("measuring {} ({weights} weights); {workers}", start.model),
            false => format!(
                "training {} ({weights} weights) on {train} {}, testing on {test}; {workers}",
                start.model, self.samples
            ),
        });
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

    fn bench_round(&mut self, number: usize, samples_per_second: f64) {
        let each = speed(samples_per_second / self.workers as f64);
        self.say(&format!("round {number}  {each} {}/s per worker", self.samples));
    }

    fn replaced(&mut self, files: &[String]) {
        let count = grouped(files.len() as f64);
        self.list(&format!("replaced by others, because they cannot be decoded: {count}"), files);
    }
}

fn epoch(number: u64, of: u64) -> String {
    format!("epoch {number}/{of}")
}

#[cfg(test)]
mod tests {
    use super::{busy, lacking, mean_and_deviation};

    #[test]
    fn a_busy_machine_is_named() {
        assert_eq!(busy(5.04, 2).unwrap().1, "load 5.0");
        assert!(busy(2.1, 2).is_none(), "it is our own work");
    }

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        assert_eq!(mean_and_deviation(&[]), None);
        assert_eq!(mean_and_deviation(&[3.0]), Some((3.0, 0.0)));
        assert_eq!(mean_and_deviation(&[2.0, 4.0, 6.0]), Some((4.0, 2.0)));
    }

    #[test]
    fn staleness_is_a_mean_and_shares() {
        assert_eq!(lacking(&[]), "0.0 ()");
        assert_eq!(lacking(&[4]), "0.0 (0: 100 %)");
        assert_eq!(lacking(&[2, 1, 1]), "0.8 (0: 50 %, 1: 25 %, 2: 25 %)");
        assert_eq!(lacking(&[0, 0, 0, 0, 3, 1]), "4.2 (0: 0 %, 1: 0 %, 2: 0 %, 3: 0 %, 4+: 100 %)");
    }
}
