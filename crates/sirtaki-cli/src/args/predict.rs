//! `sirtaki predict`: what can be typed.

use std::{num::NonZeroUsize, path::PathBuf, str::FromStr};

use clap::Args;
use sirtaki_comm::collective::Algorithm;

use super::{
    fabric::Fabric,
    predict_options::{FailureOptions, NoiseOptions, StrategyOptions},
    quantities::{bandwidth, latency},
};
use crate::env;

const EXAMPLES: &str = "\
Examples:
  sirtaki run -n 2 --timeline trace.json -- python train.py     # record a job
  sirtaki predict trace.json --workers 2..64 --bandwidth 10Gbit --latency 50us
  sirtaki predict trace.json --workers 8,16 --per-host 4 --strong --json
  sirtaki predict --model docs/predict/vgg16.json --workers 1..512 --per-host 4
  sirtaki predict trace.json --workers 8 --bandwidth 100Mbit --strategy all
  sirtaki predict trace.json --workers 8 --strategy server --servers 2 --delay 4
  sirtaki predict trace.json --workers 64..4096 --noise 3% --topology fat-tree:4
  sirtaki predict trace.json --workers 64..4096 --mtbf 1000h --recovery 0.5s
  sirtaki predict trace.json --workers 1..100000 --noise 3% -o predict.html
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

    /// What connects hosts: flat (every link can be used at once), fat-tree:4 (32 hosts of a switch, or as many as in
    /// `fat-tree:4,16`, share a quarter of their links' bandwidth), rails:8 (8 such links per host), or
    /// wide-area:1Gbit,20ms,16 (sites of 16 hosts)
    #[arg(long, default_value = "flat", value_name = "KIND")]
    pub topology: Fabric,

    /// Workers on each host
    #[arg(long, default_value = "1", value_name = "K", value_parser = super::at_least_one)]
    pub per_host: NonZeroUsize,

    /// Strong scaling: divide the recorded work among all workers, instead of giving each the same
    #[arg(long)]
    pub strong: bool,

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

    /// Also write a page with plots to a file, such as `predict.html`
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// How much steps vary.
    #[command(flatten)]
    pub noise: NoiseOptions,

    /// How workers learn together.
    #[command(flatten)]
    pub strategy: StrategyOptions,

    /// How often workers fail.
    #[command(flatten)]
    pub failures: FailureOptions,

    /// Micro-batches of a step, for a network in stages: compares all meshes of data and pipe
    #[cfg(feature = "train")]
    #[arg(long, value_name = "N", value_parser = super::at_least_one, help_heading = "Stages",
          conflicts_with_all = ["strategy", "every", "servers", "delay", "mtbf", "noise", "topology", "output"])]
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

/// Workers at most.
const MOST: usize = 1 << 17;

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
}
