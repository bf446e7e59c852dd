//! `sirtaki predict`: what can be typed.

use std::{num::NonZeroUsize, path::PathBuf, str::FromStr};

use clap::Args;
use sirtaki_comm::collective::Algorithm;

use crate::env;

const EXAMPLES: &str = "\
Examples:
  sirtaki run -n 2 --timeline trace.json -- python train.py     # record a job
  sirtaki predict trace.json --workers 2..64 --bandwidth 10Gbit --latency 50us
  sirtaki predict trace.json --workers 8,16 --per-host 4 --strong --json
  sirtaki predict --model docs/predict/vgg16.json --workers 1..512 --per-host 4
  sirtaki predict trace.json --workers 8 --bandwidth 100Mbit --every 16
  sirtaki predict trace.json --workers 8 --micro-batches 16 --memory 8G

Efficiency is the speed of N workers divided by N times the speed of one.
Latency is the time of a small message from process to process: half of what
ping shows, plus some 20 us to wake the receiver. docs/predict.md describes the
model, its accuracy and its limits.";

/// `sirtaki predict`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Predict {
    /// Timeline, or run folder with a `timeline.json`
    #[arg(value_name = "RUN", required_unless_present = "model")]
    pub run: Option<PathBuf>,

    /// Description of a network, instead of a recorded run (see docs/predict.md)
    #[arg(long, value_name = "FILE", conflicts_with = "run")]
    pub model: Option<PathBuf>,

    /// Numbers of workers: a list such as `1,2,12`, or a range such as `1..512` (doubling)
    #[arg(long, default_value = "1..64")]
    pub workers: Workers,

    /// Bandwidth of each host, per second and direction, such as `25Gbit`, `200Mbit` or `3GB`
    #[arg(long, default_value = "10Gbit", value_parser = bandwidth)]
    pub bandwidth: f64,

    /// Latency of a small message between hosts, such as `25us` or `0.5ms`
    #[arg(long, default_value = "25us", value_parser = latency)]
    pub latency: f64,

    /// Workers on each host
    #[arg(long, default_value = "1", value_name = "K", value_parser = super::at_least_one)]
    pub per_host: NonZeroUsize,

    /// Strong scaling: divide the recorded work among all workers, instead of giving each the same
    #[arg(long)]
    pub strong: bool,

    /// Local SGD: steps that workers make by themselves before they average their weights
    #[arg(long, default_value = "1", value_name = "STEPS", value_parser = super::at_least_one)]
    pub every: NonZeroUsize,

    /// Samples per worker and step, to compute samples per second [default: as recorded]
    #[arg(long, value_name = "N", value_parser = super::at_least_one)]
    pub batch: Option<NonZeroUsize>,

    /// Algorithm between hosts: ring, doubling, halving, tree, direct or layered [default: chosen by size]
    #[arg(long, value_parser = algorithm)]
    pub algorithm: Option<Algorithm>,

    /// Most bytes of tensors to reduce together, or `off`
    #[arg(long, default_value = "16M", value_name = "BYTES", value_parser = bytes_or_off)]
    pub fusion: usize,

    /// Size from which a tensor is reduced by itself
    #[arg(long, default_value = "1M", value_name = "BYTES", value_parser = env::bytes)]
    pub fusion_large: usize,

    /// Micro-batches of a step, for a network in stages: compares all meshes of data and pipe
    #[cfg(feature = "train")]
    #[arg(long, value_name = "N", value_parser = super::at_least_one, help_heading = "Stages")]
    pub micro_batches: Option<NonZeroUsize>,

    /// Order of forward and backward passes: gpipe, 1f1b, or interleaved [default: 1f1b]
    #[cfg(feature = "train")]
    #[arg(long, value_name = "NAME", requires = "micro_batches", help_heading = "Stages")]
    pub schedule: Option<String>,

    /// Memory of a worker for weights, gradients and Adam's state, such as `16G`; the fastest mesh that fits is proposed
    #[cfg(feature = "train")]
    #[arg(long, value_name = "BYTES", value_parser = env::bytes, requires = "micro_batches", help_heading = "Stages")]
    pub memory: Option<usize>,

    /// Bytes that a stage passes on for a micro-batch [default: 0]
    #[cfg(feature = "train")]
    #[arg(long, value_name = "BYTES", value_parser = env::bytes, requires = "micro_batches", help_heading = "Stages")]
    pub activations: Option<usize>,

    /// Print the prediction as a JSON object
    #[arg(long)]
    pub json: bool,
}

/// Numbers of workers, ascending, without repetition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workers(pub Vec<usize>);

/// Workers at most; one more than anybody has.
const MOST: usize = 1 << 16;

impl FromStr for Workers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            let number = text.trim().parse().ok().filter(|number| (1..=MOST).contains(number));
            number.ok_or_else(|| {
                format!("`{text}` is not a number of workers from 1 to {MOST}, such as `1,2,12` or `1..512`")
            })
        };
        let mut list = Vec::new();
        for part in text.split(',') {
            match part.split_once("..") {
                None => list.push(number(part)?),
                Some((from, to)) => {
                    let (from, to) = (number(from)?, number(to)?);
                    if from > to {
                        return Err(format!("`{part}` runs backwards; write the smaller number first"));
                    }
                    list.extend(std::iter::successors(Some(from), |n| Some(2 * n)).take_while(|n| *n < to));
                    list.push(to);
                }
            }
        }
        list.sort_unstable();
        list.dedup();
        Ok(Self(list))
    }
}

/// A number with a unit, of which the first that fits counts.
fn quantity(text: &str, units: &[(&str, f64)], example: &str) -> Result<f64, String> {
    let bad = || format!("`{text}` is not understood; write {example}");
    let digits = text.trim().trim_end_matches(|letter: char| letter.is_alphabetic() || letter == '/');
    let unit = text.trim()[digits.len()..].trim_end_matches("/s");
    // A small `b` at the end is a bit, a large one a byte; nothing else depends on the case.
    let unit = match unit.strip_suffix('B') {
        Some(prefix) => format!("{}B", prefix.to_ascii_lowercase()),
        None => unit.to_ascii_lowercase(),
    };
    let factor = units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| factor).ok_or_else(bad)?;
    let number: f64 = digits.trim().parse().map_err(|_| bad())?;
    let value = number * factor;
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err(bad()) }
}

/// Bytes per second.
fn bandwidth(text: &str) -> Result<f64, String> {
    let bit = 1.0 / 8.0;
    let units = [
        ("kbit", 1e3 * bit),
        ("mbit", 1e6 * bit),
        ("gbit", 1e9 * bit),
        ("tbit", 1e12 * bit),
        ("kb", 1e3 * bit),
        ("mb", 1e6 * bit),
        ("gb", 1e9 * bit),
        ("tb", 1e12 * bit),
        ("kB", 1e3),
        ("mB", 1e6),
        ("gB", 1e9),
        ("tB", 1e12),
    ];
    let example = "bits or bytes per second with a unit, such as 25Gbit, 200Mbit or 3GB";
    match quantity(text, &units, example)? {
        none if none < 1.0 => Err("too slow for any message; write at least 1Kbit".into()),
        value => Ok(value),
    }
}

/// Seconds.
fn latency(text: &str) -> Result<f64, String> {
    let units = [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    // `/s` at the end would be no latency.
    let example = "a time with a unit, such as 25us or 0.5ms";
    if text.contains('/') {
        Err(format!("`{text}` is not understood; write {example}"))
    } else {
        quantity(text, &units, example)
    }
}

fn bytes_or_off(text: &str) -> Result<usize, String> {
    if text == "off" { Ok(0) } else { env::bytes(text) }
}

fn algorithm(text: &str) -> Result<Algorithm, String> {
    match text.parse()? {
        Algorithm::Flat => Err("`flat` works within one host only".into()),
        algorithm => Ok(algorithm),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_lists_and_ranges() {
        let parse = |text: &str| text.parse::<Workers>().map(|workers| workers.0);
        assert_eq!(parse("1..8"), Ok(vec![1, 2, 4, 8]));
        assert_eq!(parse("12, 3..20,3"), Ok(vec![3, 6, 12, 20]));
        for wrong in ["", "0", "8..4", "1..", "x", "99999999"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn links_are_typed_as_people_say_them() {
        assert_eq!(
            (bandwidth("25Gbit"), bandwidth("1 GB/s"), bandwidth("200mbit/s")),
            (Ok(3.125e9), Ok(1e9), Ok(25e6))
        );
        assert_eq!(
            (bandwidth("10Gb"), bandwidth("10Gb/s"), bandwidth("10GB"), bandwidth("8kb")),
            (Ok(1.25e9), Ok(1.25e9), Ok(1e10), Ok(1e3))
        );
        assert_eq!((latency("0.5ms"), latency("2 s"), latency("0us")), (Ok(0.5e-3), Ok(2.0), Ok(0.0)));
        assert!((latency("25us").unwrap() - 25e-6).abs() < 1e-15);
        for wrong in ["25", "fast", "-1Gbit", "0Gbit", "Gbit", "1Gbit/h"] {
            assert!(bandwidth(wrong).is_err(), "{wrong}");
        }
        for wrong in ["25", "-1us", "1us/s", "nanus"] {
            assert!(latency(wrong).is_err(), "{wrong}");
        }
    }
}
