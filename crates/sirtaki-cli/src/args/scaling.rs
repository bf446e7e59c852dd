//! What can be typed after `sirtaki bench scaling`.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::Args;

use super::at_least_one;

const EXAMPLES: &str = "\
Examples:
  `sirtaki train` on 1, 2, 4, ... workers up to the number of cores, strong and
  weak scaling, 3 seeds each:
    sirtaki bench scaling

  A larger network for 2 epochs, strong scaling of 256 images per step:
    sirtaki bench scaling --strong --batch 256 -- \\
      sirtaki train --model cnn --epochs 2

  Another program, which gets its settings as arguments:
    sirtaki bench scaling --workers 1,2,4 -- \\
      python train.py --batch-size {batch} --seed {seed}

In the arguments of another program, {workers} is replaced by the number of
workers, {batch} by the samples per step of each, {global_batch} by those of all
together, and {seed} by the seed. A program without a batch size among its
arguments can only scale weakly. Every run is recorded, as with `sirtaki run
--record`. A single worker counts for both kinds of scaling and runs once per
seed. Runs alternate, so that a disturbance affects all of them alike; Ctrl-C
ends the series and keeps the results so far. `sirtaki report FOLDER` writes the
page again.";

/// `sirtaki bench scaling`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, override_usage = "sirtaki bench scaling [OPTIONS] [-- COMMAND...]")]
pub struct Scaling {
    /// Numbers of workers, such as `1,2,4` [default: powers of two up to the number of cores]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = at_least_one)]
    pub workers: Vec<NonZeroUsize>,

    /// Strong scaling only: one batch shared by all workers [default: strong and weak]
    #[arg(long)]
    pub strong: bool,

    /// Weak scaling only: a batch of the same size for each worker
    #[arg(long, conflicts_with = "strong")]
    pub weak: bool,

    /// Samples per step: of all workers together in strong scaling, of each in weak scaling
    #[arg(long, value_name = "N", default_value = "128", value_parser = at_least_one)]
    pub batch: NonZeroUsize,

    /// Number of seeds, counted from 1
    #[arg(long, value_name = "K", default_value = "3", value_parser = at_least_one)]
    pub seeds: NonZeroUsize,

    /// Folder for the runs and report.html [default: a new one in runs]
    #[arg(short, long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,

    /// Command to run [default: sirtaki train]
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}
