//! What people see of a training run beside the launcher's live view: a line for each epoch, and the result.

use std::io;

use sirtaki::train::{Epoch, Observer, Report, Start};

use crate::{
    launch::report::{grouped, percent, seconds_in_words},
    printer::{Printer, Style},
};

/// Shows a run.
pub(super) struct Display<'a> {
    printer: &'a mut Printer,
    quiet: bool,
    epochs: u64,
}

impl<'a> Display<'a> {
    pub(super) fn new(printer: &'a mut Printer, quiet: bool) -> Self {
        Self { printer, quiet, epochs: 0 }
    }

    /// The result, as data.
    pub(super) fn report(&mut self, report: &Report) -> io::Result<()> {
        let here = std::env::current_dir().unwrap_or_default();
        let place = |path: &std::path::PathBuf| path.strip_prefix(&here).unwrap_or(path).display().to_string();
        let last = report.epochs.last();
        let mut rows = vec![(
            "test accuracy",
            percent(report.test_accuracy, 2),
            last.map_or(String::new(), |last| format!("loss {:.4}", last.test_loss)),
        )];
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
        let workers = if report.workers == 1 { "1 worker".into() } else { format!("{} workers", report.workers) };
        rows.push((
            "throughput",
            format!("{} images/s", grouped(report.images_per_second)),
            format!("{workers}, {} images per step", grouped(report.global_batch as f64)),
        ));
        if let (Some(speedup), Some(one)) = (report.speedup, report.images_per_second_one_worker) {
            let efficiency = percent(speedup / report.workers as f64, 0);
            let note = format!("over one worker alone ({} images/s): efficiency {efficiency}", grouped(one));
            rows.push(("speed-up", format!("{speedup:.2}"), note));
            rows.push((
                "communication",
                percent(report.communication_share, 1),
                "of the time, waiting for other workers included".into(),
            ));
        }
        let memory = report.peak_memory.iter().max().copied().unwrap_or(0);
        rows.push(("memory", format!("{} MB", memory / 1_000_000), "of the largest worker".into()));
        rows.push(("time", seconds_in_words(report.seconds), format!("{} steps in all, tests included", report.steps)));
        if report.shards.is_some() {
            rows.push(("weights", report.weights[..16].into(), "the same on any number of workers (SHA-256)".into()));
        }
        if let Some(checkpoint) = &report.checkpoint {
            rows.push(("checkpoint", place(checkpoint), String::new()));
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

    fn say(&mut self, line: &str) {
        if !self.quiet {
            self.printer.message(line);
        }
    }
}

impl Observer for Display<'_> {
    fn begins(&mut self, start: &Start) {
        self.epochs = start.epochs;
        let (train, test) = (grouped(start.samples.0 as f64), grouped(start.samples.1 as f64));
        let weights = grouped(start.parameters as f64);
        let workers = match start.workers {
            1 => format!("1 worker with {} images per step", start.batch_per_worker),
            some => format!("{some} workers with {} images per step each", start.batch_per_worker),
        };
        self.say(&format!(
            "training {} ({weights} weights) on {train} images, testing on {test}; {workers}",
            start.model
        ));
        for refused in &start.refused {
            self.say(&format!("not used: {refused}"));
        }
        if let Some((path, step)) = &start.resumed {
            self.say(&format!("going on after step {step}, from {}", path.display()));
        }
    }

    fn epoch_ends(&mut self, done: &Epoch) {
        let line = format!(
            "{}  test accuracy {}  loss {:.4}  train accuracy {}  {} images/s  {}",
            epoch(done.epoch, self.epochs),
            self.printer.paint_message(Style::Bold, &percent(done.test_accuracy, 2)),
            done.test_loss,
            percent(done.train_accuracy, 2),
            grouped(done.images_per_second),
            seconds_in_words(done.seconds),
        );
        self.say(&line);
    }
}

fn epoch(number: u64, of: u64) -> String {
    format!("epoch {number}/{of}")
}
