//! What can be typed after `sirtaki bench train`: what to measure, and all that can be said of a training.

use std::num::NonZeroUsize;

use clap::{ArgMatches, Args, Command, FromArgMatches};

use super::{at_least_one, train::Train};

const EXAMPLES: &str = "\
Examples:
  ResNet-50 on made-up images, one worker per core, 32 images each:
    sirtaki bench train --model resnet50 --synthetic

  A smaller network, and less to wait for:
    sirtaki bench train --model cnn --synthetic --num-iters 5

  Two hosts, over ssh, with gradients as 16 bits:
    sirtaki bench train -H a:4,b:4 --model cnn --synthetic --precision bf16

  Reading included: with a data set instead of made-up images:
    sirtaki bench train --model resnet18 --data photos

There are no tests and no checkpoints. Speeds are those of each round of steps;
their mean and standard deviation are reported, per worker and of all workers.
All other options are those of `sirtaki train`.";

/// Options of a training that mean nothing to a benchmark.
const NOT_MEASURED: [&str; 11] = [
    "epochs",
    "max_steps",
    "target_accuracy",
    "checkpoint_dir",
    "resume",
    "checkpoint_every",
    "keep",
    "allow_nan",
    "record",
    "elastic",
    "export",
];

/// `sirtaki bench train`.
#[derive(Debug, Args)]
pub struct BenchTrain {
    /// What is trained, how and where.
    #[command(flatten)]
    pub train: TrainArguments,

    /// Made-up images instead of a data set: 224 by 224 pixels in 1000 classes for resnet18 and resnet50, as those of MNIST
    /// for others; --image-size changes that
    #[arg(long, conflicts_with = "data", help_heading = "Measurement")]
    pub synthetic: bool,

    /// Steps before the first round
    #[arg(long, value_name = "N", default_value = "10", help_heading = "Measurement")]
    pub num_warmup_batches: usize,

    /// Steps of a round
    #[arg(long, value_name = "N", default_value = "10", value_parser = at_least_one, help_heading = "Measurement")]
    pub num_batches_per_iter: NonZeroUsize,

    /// Rounds
    #[arg(long, value_name = "N", default_value = "10", value_parser = at_least_one, help_heading = "Measurement")]
    pub num_iters: NonZeroUsize,
}

/// The options of `sirtaki train` that matter here.
#[derive(Debug)]
pub struct TrainArguments(pub Box<Train>);

impl Args for TrainArguments {
    fn augment_args(command: Command) -> Command {
        let train = Train::augment_args(command);
        let train = NOT_MEASURED.into_iter().fold(train, |train, name| train.mut_arg(name, |option| option.hide(true)));
        let batch = "Images, rows, sequences or patches per worker and step [default: 32]";
        train
            .mut_arg("batch_size", |option| option.help(batch))
            .after_help(EXAMPLES)
            .override_usage("sirtaki bench train [OPTIONS]")
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for TrainArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Train::from_arg_matches(matches).map(Box::new).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}
