//! `cargo xtask bench predict`: what `sirtaki predict` says about a recorded job, compared with what really happens.
//!
//! The job is recorded on this host, over shared memory. Then it runs on several hosts made of network namespaces, over
//! links with a given rate and latency, and its steps are compared with those predicted from the record.

use std::{
    fmt,
    path::Path,
    process::{Command, Stdio},
    str::FromStr,
    time::Duration,
};

use serde::Deserialize;
use sirtaki_tests::{
    cables::{self, Cables},
    hosts::Hosts,
};

use crate::{
    BenchError,
    report::size,
    resnet,
    start::{Place, Starter},
};

/// Computing before the first gradient.
pub const FORWARD: Duration = Duration::from_millis(40);
/// Computing of all gradients.
pub const BACKWARD: Duration = Duration::from_millis(80);
/// How much longer the longest step computes than the shortest, relative to the mean.
pub const VARIATION: f64 = 0.1;
/// Steps that are not measured: names become known and an order is adopted.
pub const WARM_UP: usize = 5;
/// ResNet-50's tensors are divided by this, so that none of the links takes too long.
const PART: usize = 8;
/// The least time of a small message, including system calls and waking up, in microseconds.
const LEAST: u32 = 30;

/// Numbers per gradient, the last layer's first.
pub fn gradients() -> Vec<usize> {
    resnet::tensors().into_iter().rev().map(|length| length.div_ceil(PART)).collect()
}

/// What to compare.
#[derive(Debug, Clone)]
pub struct PredictPlan {
    /// Numbers of hosts with one rank each.
    pub ranks: Vec<usize>,
    /// What connects them.
    pub links: Vec<Link>,
    /// Bytes of a fused batch at most: large ones come late, small ones hide behind computing.
    pub fusions: Vec<usize>,
    /// Steps of every run.
    pub steps: usize,
}

/// A link between hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Megabits per second.
    pub megabits: u32,
    /// Microseconds from host to host, beyond the least there is.
    pub latency: u32,
}

impl FromStr for Link {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number =
            |part: &str| part.parse().map_err(|_| format!("`{text}` is no link; write MBIT or MBIT:MICROSECONDS"));
        let (megabits, latency) = text.split_once(':').unwrap_or((text, "0"));
        Ok(Self { megabits: number(megabits)?, latency: number(latency)? })
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} Mbit/s, {:.2} ms", self.megabits, f64::from(self.latency + LEAST) / 1e3)
    }
}

/// One comparison, in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Ranks.
    pub ranks: usize,
    /// What connects them.
    pub link: Link,
    /// Bytes of a fused batch at most.
    pub fusion: usize,
    /// The predicted step.
    pub predicted: f64,
    /// The mean of the measured steps.
    pub measured: f64,
    /// Predicted speed of all ranks divided by that of one times their number.
    pub efficiency: f64,
}

impl Comparison {
    /// The error of the prediction, relative to what was measured.
    pub fn error(&self) -> f64 {
        self.predicted / self.measured - 1.0
    }

    /// The measured efficiency, relative to the same one-rank step.
    pub fn measured_efficiency(&self) -> f64 {
        self.efficiency * self.predicted / self.measured
    }
}

/// Runs everything; `show` gets every row as soon as it is known.
pub fn run(
    plan: &PredictPlan,
    starter: &mut Starter,
    say: &dyn Fn(&str),
    show: &dyn Fn(&Comparison),
) -> Result<Vec<Comparison>, BenchError> {
    let folder = tempfile::tempdir().map_err(BenchError::io("cannot make a folder for the timeline"))?;
    let timeline = folder.path().join("timeline.json");
    say("recording 2 ranks on this host");
    let fusion = plan.fusions.first().copied().unwrap_or_default();
    starter.predict_steps(&Place::here(2), plan.steps, fusion, Some(&timeline))?;
    let mut rows = Vec::new();
    for &link in &plan.links {
        for &fusion in &plan.fusions {
            for &ranks in &plan.ranks {
                say(&format!("{ranks} hosts, {link}"));
                let mut row = Comparison { ranks, link, fusion, predicted: 0.0, measured: 0.0, efficiency: 0.0 };
                (row.predicted, row.efficiency) = predict(starter, &timeline, &row)?;
                row.measured = measure(starter, &row, plan.steps)?;
                show(&row);
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

/// The mean step of this many ranks on as many hosts.
fn measure(
    starter: &mut Starter,
    &Comparison { ranks, link, fusion, .. }: &Comparison,
    steps: usize,
) -> Result<f64, BenchError> {
    let hosts = Hosts::new("pre", ranks);
    let latency = Duration::from_micros(link.latency.into());
    let _cables = Cables::new(&hosts, link.megabits, latency).map_err(BenchError::io("cannot lay cables"))?;
    let namespaces = (0..ranks).map(|host| Some(hosts.name(host))).collect();
    let place = Place { namespaces, interface: cables::INTERFACE.into() };
    let seconds = starter.predict_steps(&place, steps, fusion, None)?;
    Ok(seconds.iter().sum::<f64>() / seconds.len().max(1) as f64)
}

/// What the command says about this many ranks.
fn predict(
    starter: &Starter,
    timeline: &Path,
    &Comparison { ranks, link, fusion, .. }: &Comparison,
) -> Result<(f64, f64), BenchError> {
    #[derive(Deserialize)]
    struct Prediction {
        rows: Vec<Predicted>,
    }
    #[derive(Deserialize)]
    struct Predicted {
        step_seconds: f64,
        efficiency: f64,
    }
    let mut command = Command::new(starter.program("sirtaki"));
    command.arg("predict").arg(timeline).args(["--json", "--workers", &ranks.to_string()]);
    command
        .args([format!("--bandwidth={}Mbit", link.megabits), format!("--latency={}us", link.latency + LEAST)])
        .arg(format!("--fusion={fusion}"))
        .stderr(Stdio::inherit());
    let output = command.output().map_err(BenchError::io("cannot start sirtaki"))?;
    let prediction: Option<Prediction> = serde_json::from_slice(&output.stdout).ok();
    let first = prediction.and_then(|prediction| prediction.rows.into_iter().next());
    let first = first.ok_or_else(|| BenchError::Protocol(format!("no prediction came: {}", output.status)))?;
    Ok((first.step_seconds, first.efficiency))
}

/// The head of the lines below.
pub fn head() -> String {
    format!(
        "{:>5}  {:>20}  {:>7}  {:>9}  {:>9}  {:>7}  efficiency",
        "hosts", "link", "batches", "predicted", "measured", "error"
    )
}

/// A row for people.
pub fn line(row: &Comparison) -> String {
    format!(
        "{:>5}  {:>20}  {:>7}  {:>6.1} ms  {:>6.1} ms  {:>+5.1} %  {:.1} % (measured {:.1} %)",
        row.ranks,
        row.link.to_string(),
        size(row.fusion),
        row.predicted * 1e3,
        row.measured * 1e3,
        row.error() * 100.0,
        row.efficiency * 100.0,
        row.measured_efficiency() * 100.0
    )
}

/// How far off the predictions are.
pub fn summary(rows: &[Comparison]) -> String {
    let errors: Vec<f64> = rows.iter().map(|row| row.error().abs() * 100.0).collect();
    let mean = errors.iter().sum::<f64>() / errors.len().max(1) as f64;
    let most = errors.iter().copied().fold(0.0, f64::max);
    format!("off by {mean:.1} % on average and {most:.1} % at most")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_of_what_was_measured() {
        let row = |predicted| Comparison {
            ranks: 2,
            link: "100:20".parse().unwrap(),
            fusion: 1,
            predicted,
            measured: 0.2,
            efficiency: 0.5,
        };
        assert!((row(0.15).error() + 0.25).abs() < 1e-12 && (row(0.25).error() - 0.25).abs() < 1e-12);
        assert!((row(0.1).measured_efficiency() - 0.25).abs() < 1e-12);
        assert_eq!(summary(&[row(0.15), row(0.22)]), "off by 17.5 % on average and 25.0 % at most");
        assert!("fast".parse::<Link>().is_err() && "1:x".parse::<Link>().is_err());
        assert_eq!("100:20".parse::<Link>().unwrap().to_string(), "100 Mbit/s, 0.05 ms");
    }
}
