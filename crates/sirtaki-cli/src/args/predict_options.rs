//! What can be said to `sirtaki predict` of how workers learn together, how their steps vary, and how often they fail.

use std::num::NonZeroUsize;

use clap::Args;

use super::{
    at_least_one,
    quantities::{Interval, duration, latency, percentage, positive_duration},
    strategy::{DelayLimit, StrategyNames},
};

/// The heading of options of strategies.
const STRATEGIES: &str = "Strategies";
/// The heading of options of failures.
const FAILURES: &str = "Failures";

/// How workers learn together.
#[derive(Debug, Args)]
pub struct StrategyOptions {
    /// How workers learn together, as for sirtaki train: data, sharded, central, server or local; several of them, such as
    /// `data,local`, or all, are compared [default: data; with --every, local]
    #[arg(long, value_name = "NAMES", help_heading = STRATEGIES)]
    pub strategy: Option<StrategyNames>,

    /// For local: steps that workers make by themselves before they average their weights [default: 8]
    #[arg(long, value_name = "STEPS", value_parser = at_least_one, help_heading = STRATEGIES)]
    pub every: Option<NonZeroUsize>,

    /// For server: parameter servers, each on a host of its own [default: 1]
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = STRATEGIES)]
    pub servers: Option<NonZeroUsize>,

    /// For server: how many steps the fastest worker may be ahead of the slowest: 0, a number, or none [default: 0; with
    /// several strategies, 0, 4 and none]
    #[arg(long, value_name = "STEPS", help_heading = STRATEGIES)]
    pub delay: Option<DelayLimit>,
}

/// How much steps vary, and what messages cost besides their way.
#[derive(Debug, Args)]
pub struct NoiseOptions {
    /// Standard deviation of a worker's computing time from step to step, such as `5%`, normally distributed [default: the
    /// recorded steps as they are]
    #[arg(long, value_name = "SHARE", value_parser = percentage)]
    pub noise: Option<f64>,

    /// Processor time of a process for each message that it sends or receives, where it has many at once: servers, and
    /// the algorithm direct
    #[arg(long, value_name = "TIME", default_value = "4us", value_parser = latency)]
    pub message_cost: f64,
}

/// How often workers fail, and what happens then.
#[derive(Debug, Args)]
pub struct FailureOptions {
    /// Mean time between failures of one host, such as `1000h` or `90d`: predicts goodput, the share of all time that is
    /// not lost
    #[arg(long, value_name = "TIME", value_parser = positive_duration, help_heading = FAILURES)]
    pub mtbf: Option<f64>,

    /// Time between two checkpoints, such as `10m`, or a number of steps [default: the best, by Daly's formula]
    #[arg(long, value_name = "TIME", requires = "mtbf", conflicts_with = "recovery", help_heading = FAILURES)]
    pub checkpoint_every: Option<Interval>,

    /// Time for which a checkpoint stops all workers [default: 20s]
    #[arg(long, value_name = "TIME", requires = "mtbf", conflicts_with = "recovery", value_parser = duration,
          help_heading = FAILURES)]
    pub checkpoint_time: Option<f64>,

    /// Time from a failure until all workers run again [default: 2m]
    #[arg(long, value_name = "TIME", requires = "mtbf", value_parser = duration, help_heading = FAILURES)]
    pub restart_time: Option<f64>,

    /// Elastic recovery: time from a failure until the others go on from memory, without a checkpoint; --restart-time is
    /// then when the lost workers are replaced
    #[arg(long, value_name = "TIME", requires = "mtbf", value_parser = duration, help_heading = FAILURES)]
    pub recovery: Option<f64>,
}
