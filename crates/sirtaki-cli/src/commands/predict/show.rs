//! A prediction for people and for programs.

use std::io;

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    bars::bars,
    cost::Network,
    failure_table,
    faults::Faults,
    scale::{Prediction, ScalingMode},
    strategy::Strategy,
    strategy_table, topology,
    work::Work,
};
use crate::{
    commands::bench::{sizes, time},
    printer::{Printer, Style},
};

/// What no prediction contains.
pub(super) const LEFT_OUT: &str = "Left out: other traffic and switches that are slower than --topology says, the loss of packets, memory \
                        and processors shared by workers, reading of data that does not keep up, results that are waited \
                        for within a step.";

/// Seconds that are shown as none.
const NOTHING: f64 = 5e-9;

/// A prediction with what it was made from.
pub(super) struct Forecast {
    pub work: Work,
    pub network: Network,
    pub scaling: ScalingMode,
    /// At least one; each number of workers has a row for each.
    pub strategies: Vec<Strategy>,
    pub faults: Option<Faults>,
    pub calibration: Option<Calibration>,
    pub rows: Vec<Prediction>,
}

/// What the prediction says about the record that it was made from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Calibration {
    pub workers: usize,
    pub recorded_step_seconds: f64,
    pub predicted_step_seconds: f64,
}

impl Calibration {
    /// By how much the prediction is above the record, relative to it.
    pub(super) fn difference(&self) -> f64 {
        self.predicted_step_seconds / self.recorded_step_seconds - 1.0
    }
}

impl Forecast {
    /// What it was made from, and what was assumed.
    pub(super) fn assumptions(&self) -> Vec<String> {
        let mut list = self.work.notes.clone();
        list.extend(self.calibration.map(|found| {
            format!(
                "The record itself: {} took {} a step, and {} are predicted for that ({:+.1} %).",
                count(found.workers, "worker"),
                seconds(found.recorded_step_seconds),
                seconds(found.predicted_step_seconds),
                100.0 * found.difference()
            )
        }));
        let most = self.rows.iter().map(|row| row.workers).max().unwrap_or(1);
        let (count, variation) = (self.work.samples.len(), self.work.variation() * 100.0);
        if self.work.noise.is_some() {
            list.push(format!(
                "Each worker's computing time varies by {variation:.1} % from step to step, normally and by itself."
            ));
        } else if variation == 0.0 {
            list.push("All steps take equally long here, so nobody waits for a slower worker.".into());
        } else if most > count {
            list.push(format!(
                "{count} steps were recorded; how slow the slowest of {most} workers is follows from these. \
                 `--noise {variation:.1}%` lets it be slower than any of them."
            ));
        }
        list.extend(topology::description(self.network.rails, self.network.spine));
        if self.network.per_host > 1 && self.work.local.is_none() {
            list.push("No all-reduce inside a host was recorded; 5 GB/s are assumed.".into());
        }
        if self.scaling == ScalingMode::Strong && self.work.fixed == 0.0 {
            list.push("No time of the optimizer is known; all computing is taken to shrink with the data.".into());
        }
        list.extend(strategy_table::assumptions(&self.strategies, &self.work));
        list.extend(self.faults.iter().flat_map(failure_table::assumptions));
        list
    }

    /// Everything as one object.
    pub(super) fn json(&self) -> Value {
        let Self { work, network, scaling, rows, .. } = self;
        json!({
            "title": work.title,
            "tensors": work.tensors.len(),
            "bytes": work.bytes(),
            "computing_seconds": work.computing(),
            "variation": work.variation(),
            "recorded_workers": work.workers,
            "recorded_steps": work.samples.len(),
            "batch_per_worker": work.batch,
            "latency_seconds": network.latency,
            "bandwidth_bytes_per_second": network.bandwidth,
            "workers_per_host": network.per_host,
            "rails": network.rails,
            "hosts_per_group": network.spine.map(|spine| spine.hosts),
            "group_bandwidth_bytes_per_second": network.spine.map(|spine| spine.bandwidth),
            "group_latency_seconds": network.spine.map(|spine| spine.latency),
            "scaling": scaling,
            "message_seconds": network.per_message,
            "strategies": self.strategies,
            "every": self.strategies.iter().find_map(|strategy| strategy.every()).unwrap_or(1),
            "servers": self.strategies.iter().find_map(|strategy| strategy.servers()),
            "calibration": self.calibration,
            "rows": rows,
            "notes": self.assumptions(),
            "left_out": LEFT_OUT,
        })
    }

    /// The table on standard output; what it is based on and what it leaves out, on standard error.
    pub(super) fn print(&self, printer: &mut Printer) -> io::Result<()> {
        let Self { work, network, .. } = self;
        let (size, computing) = (sizes::show(work.bytes() as u64), seconds(work.computing()));
        printer.message(&format!(
            "{}: {} tensors, {size} a step; {computing} of computing that vary by {:.1} %",
            work.title,
            work.tensors.len(),
            work.variation() * 100.0
        ));
        let scaling = match self.scaling {
            ScalingMode::Weak => "every worker has as much to do as one".to_owned(),
            ScalingMode::Strong => format!("all workers share what {} had to do", count(work.workers, "worker")),
        };
        printer.message(&format!(
            "{} a host, {} Gbit/s and {} between hosts; {scaling}",
            count(network.per_host, "worker"),
            (network.bandwidth * 8e-5).round() / 1e4,
            seconds(network.latency)
        ));
        if let [strategy] = self.strategies[..] {
            if strategy != Strategy::Data {
                printer.message(&format!("strategy {}", strategy.label()));
            }
            lines(&table(&self.rows), printer)?;
            bars(&self.rows).iter().for_each(|line| printer.message(line));
        } else {
            lines(&strategy_table::table(&self.rows), printer)?;
        }
        if self.faults.is_some() {
            printer.data("")?;
            lines(&failure_table::table(&self.rows, self.strategies.len() > 1), printer)?;
        }
        self.assumptions().iter().for_each(|note| printer.message(note));
        printer.message(LEFT_OUT);
        Ok(())
    }
}

/// A table, with its head in bold.
fn lines(table: &[String], printer: &mut Printer) -> io::Result<()> {
    for (at, line) in table.iter().enumerate() {
        let style = if at == 0 { Style::Bold } else { Style::Plain };
        let line = printer.paint(style, line);
        printer.data(&line)?;
    }
    Ok(())
}

pub(super) fn seconds(value: f64) -> String {
    if value < NOTHING { "0".into() } else { time(value * 1e6) }
}

pub(super) fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

fn table(rows: &[Prediction]) -> Vec<String> {
    let samples = rows.iter().any(|row| row.samples_per_second.is_some());
    let column = |text: &str| if samples { format!("  {text:>9}") } else { String::new() };
    let head = format!(
        "{:>7}  {:>5}  {:>8}  {:>10}  {:>8}{}  {:>10}  {:>13}  collectives",
        "workers",
        "hosts",
        "step",
        "efficiency",
        "speed-up",
        column("samples/s"),
        "stragglers",
        "communication"
    );
    let line = |row: &Prediction| {
        let list: Vec<String> =
            row.collectives.iter().map(|some| format!("{} {}", some.count, some.algorithm)).collect();
        let text = format!(
            "{:>7}  {:>5}  {:>8}  {:>8.1} %  {:>8.2}{}  {:>10}  {:>13}  {}",
            row.workers,
            row.hosts,
            seconds(row.step_seconds),
            row.efficiency * 100.0,
            row.speedup,
            column(&row.samples_per_second.map_or(String::new(), |rate| format!("{rate:.0}"))),
            seconds(row.straggler_seconds.max(0.0)),
            seconds(row.communication_seconds.max(0.0)),
            if row.workers == 1 { String::new() } else { list.join(", ") }
        );
        text.trim_end().to_owned()
    };
    std::iter::once(head).chain(rows.iter().map(line)).collect()
}
