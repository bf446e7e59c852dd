//! What was measured beside theory, and the goals.

use std::fmt::Write;

use sirtaki::pipeline::PipelineSchedule;

use crate::{
    goals::{Goal, percent, ratio},
    options::Options,
    work::{Course, Size, Way, median},
};

/// How many points a bubble may be larger than theory says.
const POINTS: f64 = 0.03;
/// The least share of the efficiency that theory allows.
const SHARE: f64 = 0.95;

/// One line.
pub(crate) struct Row {
    name: String,
    workers: usize,
    theirs: bool,
    /// Seconds of a step.
    step: f64,
    /// Measured and by theory.
    bubble: Option<f64>,
    theory: f64,
    /// Micro-batches whose activations each worker of a 1F1B pipeline keeps.
    held: Option<Vec<usize>>,
}

/// The share of the time in which workers with equal stages wait.
fn theory(workers: usize, chunks: usize, micros: usize) -> f64 {
    (workers - 1) as f64 / (chunks * micros + workers - 1) as f64
}

impl Row {
    pub(crate) fn ours(way: Way, size: Size, courses: &[Course]) -> Self {
        let name = if way.workers == 1 { "one process" } else { way.schedule.name() };
        Self {
            name: name.into(),
            workers: way.workers,
            theirs: false,
            step: median(courses.iter().map(|course| course.step)),
            bubble: Some(median(courses.iter().map(|course| course.bubble))),
            theory: theory(way.workers, way.chunks, size.micros),
            held: courses
                .iter()
                .map(|course| course.held.clone())
                .reduce(|one, other| one.iter().zip(&other).map(|(one, other)| *one.max(other)).collect())
                .filter(|_| way.schedule == PipelineSchedule::OneForwardOneBackward),
        }
    }

    pub(crate) fn theirs(workers: usize, size: Size, steps: &[f64]) -> Self {
        let name = if workers == 1 { "PyTorch, one process" } else { "PyTorch, 1f1b over Gloo" };
        let (step, theory) = (median(steps.iter().copied()), theory(workers, 1, size.micros));
        Self { name: name.into(), workers, theirs: true, step, bubble: None, theory, held: None }
    }

    /// One process divided by all workers' time.
    fn efficiency(&self, rows: &[Row]) -> f64 {
        let one = rows.iter().find(|row| row.workers == 1 && row.theirs == self.theirs);
        one.map_or(f64::NAN, |one| one.step / (self.workers as f64 * self.step))
    }
}

/// The table, and the goals.
pub(crate) fn show(options: &Options, rows: &[Row]) -> (String, Vec<Goal>) {
    let Size { micros, layers, width, samples, steps } = options.size;
    let mut text = format!(
        "{layers} layers of {width} × {width}, {micros} micro-batches of {samples} samples; medians of {} turns of {steps} \
         steps\n\n{:>7}  {:<24} {:>10} {:>8} {:>8} {:>11} {:>8}",
        options.rounds, "workers", "", "step", "bubble", "theory", "efficiency", "theory"
    );
    for row in rows {
        let bubble = row.bubble.map_or("-".into(), percent);
        let _ = write!(
            text,
            "\n{:>7}  {:<24} {:>7.2} ms {:>8} {:>8} {:>11.3} {:>8.3}",
            row.workers,
            row.name,
            1000.0 * row.step,
            bubble,
            percent(row.theory),
            row.efficiency(rows),
            1.0 - row.theory
        );
    }
    (text, rows.iter().flat_map(|row| goals(row, rows)).collect())
}

fn goals(row: &Row, rows: &[Row]) -> Vec<Goal> {
    let Some(bubble) = row.bubble.filter(|_| row.workers > 1) else { return Vec::new() };
    let of = format!("{} on {} workers", row.name, row.workers);
    let (efficiency, least) = (row.efficiency(rows), SHARE * (1.0 - row.theory));
    let mut goals = vec![
        Goal::at_most(&format!("{of}: bubble"), bubble, row.theory + POINTS, percent),
        Goal::at_least(&format!("{of}: efficiency"), efficiency, least, ratio),
    ];
    if let Some(held) = &row.held {
        let is_reached = held.iter().enumerate().all(|(worker, &held)| held <= row.workers - worker);
        let text = format!("{of}: activations of {held:?} micro-batches kept, to be at most those of p - s");
        goals.push(Goal { is_reached, text });
    }
    if let Some(other) = rows.iter().find(|other| other.theirs && other.workers == row.workers) {
        let other = other.efficiency(rows);
        let text = format!("{of}: efficiency {efficiency:.3}, to be above PyTorch's {other:.3}");
        goals.push(Goal { is_reached: efficiency > other, text });
    }
    goals
}
