//! What people see of a training run: one line that lives on a terminal, a line for each epoch, and the result.

use std::{
    io,
    time::{Duration, Instant},
};

use sirtaki::train::{Epoch, Observer, Progress, Report, Start};

use crate::{
    launch::report::duration_in_words,
    printer::{Printer, Stream, Style},
};

/// How often the living line changes.
const FRAME: Duration = Duration::from_millis(100);
/// How often a line is printed where none can live.
const PATIENCE: Duration = Duration::from_secs(10);
/// Cells of the bar.
const BAR: usize = 24;

/// Shows a run.
pub(super) struct Display<'a> {
    printer: &'a mut Printer,
    quiet: bool,
    epochs: u64,
    shown: Option<Instant>,
}

impl<'a> Display<'a> {
    pub(super) fn new(printer: &'a mut Printer, quiet: bool) -> Self {
        Self { printer, quiet, epochs: 0, shown: None }
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
                ("time to target", duration(seconds), format!("{target} after epoch {}", epoch.epoch))
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
        rows.push(("time", duration(report.seconds), format!("{} steps in all, tests included", report.steps)));
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
        self.shown = Some(Instant::now());
    }

    fn goes_on(&mut self, progress: &Progress) {
        let live = self.printer.is_terminal(Stream::Err);
        let due = if live { FRAME } else { PATIENCE };
        if self.quiet || self.shown.is_some_and(|shown| shown.elapsed() < due) {
            return;
        }
        self.shown = Some(Instant::now());
        let columns = self.printer.size().0;
        if live {
            let line = living(progress, columns, |style, text| self.printer.paint_message(style, text));
            self.printer.progress(&line);
        } else {
            self.say(&format!("{} {}", epoch(progress.epoch + 1, progress.epochs), figures(progress).join("  ")));
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
            duration(done.seconds),
        );
        self.say(&line);
    }
}

fn epoch(number: u64, of: u64) -> String {
    format!("epoch {number}/{of}")
}

/// The figures of a moment, the most important first.
fn figures(progress: &Progress) -> Vec<String> {
    vec![
        format!("step {}/{}", progress.steps.0, progress.steps.1),
        format!("{} images/s", grouped(progress.images_per_second)),
        format!("loss {:.4}", progress.loss),
        format!("accuracy {}", percent(progress.accuracy, 1)),
        format!("{} left", duration(progress.left.ceil())),
    ]
}

/// The living line, as much of it as fits.
fn living(progress: &Progress, columns: usize, paint: impl Fn(Style, &str) -> String) -> String {
    let head = epoch(progress.epoch + 1, progress.epochs);
    let full = (BAR * progress.seen / progress.samples.max(1)).min(BAR);
    let bar = format!("{}{}", paint(Style::Good, &"━".repeat(full)), paint(Style::Faint, &"─".repeat(BAR - full)));
    let mut width = head.chars().count() + 1 + BAR;
    let mut line = format!("{head} {bar}");
    for figure in figures(progress) {
        width += 2 + figure.chars().count();
        if width >= columns {
            break;
        }
        line.push_str("  ");
        line.push_str(&figure);
    }
    line
}

fn percent(share: f64, digits: usize) -> String {
    format!("{:.digits$} %", 100.0 * share)
}

/// Seconds as people say them.
fn duration(seconds: f64) -> String {
    duration_in_words(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

/// A whole number with its digits in groups of three.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or("")).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress() -> Progress {
        Progress {
            epoch: 1,
            epochs: 3,
            steps: (703, 1407),
            seen: 30_000,
            samples: 60_000,
            loss: 0.09124,
            accuracy: 0.9712,
            images_per_second: 18_204.3,
            left: 4.2,
        }
    }

    #[test]
    fn the_living_line_keeps_within_the_window() {
        let line = living(&progress(), 200, |_, text| text.into());
        let bar = format!("{}{}", "━".repeat(BAR / 2), "─".repeat(BAR / 2));
        assert_eq!(
            line,
            format!("epoch 2/3 {bar}  step 703/1407  18,204 images/s  loss 0.0912  accuracy 97.1 %  5.0 s left")
        );
        for columns in [40, 60, 80] {
            assert!(living(&progress(), columns, |_, text| text.into()).chars().count() < columns);
        }
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!([0.0, 999.4, 1000.0, 1_199_882.0].map(grouped), ["0", "999", "1,000", "1,199,882"]);
        assert_eq!([0.04, 9.94, 125.0].map(duration), ["40 ms", "9.9 s", "2 min 5 s"]);
        assert!(duration(f64::INFINITY).ends_with(" min"));
    }
}
