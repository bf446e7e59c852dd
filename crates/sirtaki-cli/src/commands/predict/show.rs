//! A prediction for people and for programs.

use std::io;

use serde_json::{Value, json};

use super::{
    bars::bars,
    cost::Network,
    scale::{Prediction, ScalingMode},
    work::Work,
};
use crate::{
    commands::bench::{sizes, time},
    printer::{Printer, Style},
};

/// What no prediction contains.
const LEFT_OUT: &str = "Left out: other traffic and switches that are slower than the links, the loss of packets, memory \
                        and processors shared by workers, reading of data that does not keep up, results that are waited \
                        for within a step.";

/// A prediction with what it was made from.
pub(super) struct Forecast {
    pub work: Work,
    pub network: Network,
    pub scaling: ScalingMode,
    /// Steps between two averages of weights; with one, gradients are averaged.
    pub every: usize,
    pub rows: Vec<Prediction>,
}

impl Forecast {
    fn assumptions(&self) -> Vec<String> {
        let mut list = self.work.notes.clone();
        let most = self.rows.iter().map(|row| row.workers).max().unwrap_or(1);
        if most > self.work.samples.len() && self.work.samples.len() > 1 {
            let count = self.work.samples.len();
            list.push(format!(
                "{count} steps were recorded; how slow the slowest of {most} workers is follows from these."
            ));
        }
        if self.work.variation() == 0.0 {
            list.push("All steps take equally long here, so nobody waits for a slower worker.".into());
        }
        if self.network.per_host > 1 && self.work.local.is_none() {
            list.push("No all-reduce inside a host was recorded; 5 GB/s are assumed.".into());
        }
        if self.scaling == ScalingMode::Strong && self.work.fixed == 0.0 {
            list.push("No time of the optimizer is known; all computing is taken to shrink with the data.".into());
        }
        if self.every > 1 {
            list.push(format!(
                "Weights are averaged every {} steps, after them; the collectives are those of one average. What that \
                 costs in accuracy is not predicted.",
                self.every
            ));
        }
        list
    }

    /// Everything as one object.
    pub(super) fn json(&self) -> Value {
        let Self { work, network, scaling, every, rows } = self;
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
            "scaling": scaling,
            "every": every,
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
        for (at, line) in table(&self.rows).iter().enumerate() {
            let style = if at == 0 { Style::Bold } else { Style::Plain };
            let line = printer.paint(style, line);
            printer.data(&line)?;
        }
        bars(&self.rows).iter().for_each(|line| printer.message(line));
        self.assumptions().iter().for_each(|note| printer.message(note));
        printer.message(LEFT_OUT);
        Ok(())
    }
}

pub(super) fn seconds(value: f64) -> String {
    if value == 0.0 { "0".into() } else { time(value * 1e6) }
}

fn count(number: usize, what: &str) -> String {
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
