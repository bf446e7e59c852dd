//! What can be typed after `sirtaki train`: how to train, and all that can be said of a job.

use std::{num::NonZeroUsize, path::PathBuf, sync::LazyLock};

use clap::{ArgMatches, Args, Command, FromArgMatches, ValueEnum, builder::PossibleValue};
use sirtaki::{
    server::Delay,
    train::{Domain, Model, layouts},
};

pub use super::strategy::StrategyName;
use super::{at_least_one, number, roles::RoleOptions, run::Run, share};
use crate::commands::train::stages;

const EXAMPLES: &str = "\
Examples:
  One worker per core, on the digits in data/mnist:
    sirtaki train

  A larger network on 2 workers, to a target accuracy, with the result as JSON:
    sirtaki train --model cnn -n 2 --target-accuracy 0.99 --json result.json

  Images of your own, in a folder for each class, and a table with classes:
    sirtaki train --data photos --model resnet18 --image-size 96
    sirtaki train --data iris.csv --epochs 50 --batch-size 8

  Strong scaling: a batch of 256 images shared by 4 workers:
    sirtaki train -n 4 --global-batch 256

  Stop, and continue on another number of workers:
    sirtaki train -n 2 --checkpoint-dir runs/mine --max-steps 500
    sirtaki train -n 1 --checkpoint-dir runs/mine --resume

  Bit-identical results on 1, 2 or 3 workers:
    sirtaki train -n 2 --reproducible

  Workers that may be killed and come back, with the bits of a run in which nothing happens:
    sirtaki train -n 4 --elastic --reproducible

  A transformer that continues text, on a made-up one or on your own:
    sirtaki train --model transformer
    sirtaki train --model transformer --data book.txt --epochs 20

  Workers that stall now and then: two parameter servers, workers up to 4 steps apart:
    sirtaki train -n 4 --strategy server --servers 2 --delay 4

  A network that classifies the voxels of volumes, as an ONNX file for sirtaki infer:
    sirtaki train --model msd --data pairs --depth 30 --export net.onnx

  Over a slow network: weights averaged every 16 steps, instead of gradients in each:
    sirtaki train -H a:4,b:4 --strategy local --every 16

  One process that computes on four GPUs:
    sirtaki train -n 1 --devices 4

  Two copies of a network in two stages, with the same bits:
    sirtaki train -n 4 --mesh data=2,pipe=2 --reproducible

  Every worker keeps a quarter of the weights and borrows the rest by layers:
    sirtaki train -n 4 --model transformer --shard-parameters

  A transformer in two stages whose layers are split over two workers each:
    sirtaki train -n 4 --model transformer --mesh pipe=2,tensor=2

  On two hosts over ssh, and inside a Slurm allocation:
    sirtaki train -H a:4,b:4
    sbatch --nodes 2 --ntasks-per-node 4 --wrap 'sirtaki train'";

/// The heading of options of parameter servers.
const SERVER: &str = "With --strategy server";

/// `sirtaki train`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, override_usage = "sirtaki train [OPTIONS]")]
pub struct Train {
    /// A network by its name.
    #[arg(long, help = networks(), value_enum, hide_possible_values = true, ignore_case = true)]
    pub model: Option<ModelName>,

    /// Where the data set is.
    #[arg(long, value_name = "PATH", help = data_sets())]
    pub data: Option<PathBuf>,

    /// Height and width to which the images of a folder are stretched [default: their own, if all have the same and at
    /// most 224 pixels; otherwise 64]
    #[arg(long, value_name = "PIXELS", value_parser = at_least_one)]
    pub image_size: Option<NonZeroUsize>,

    /// Characters per sequence of text, for transformer [default: 64]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub context: Option<NonZeroUsize>,

    /// Voxels per axis of a patch, for msd [default: 96 of planes, 48 of volumes]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub patch: Option<NonZeroUsize>,

    /// Layers of the network, for msd [default: 100]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub depth: Option<NonZeroUsize>,

    /// Maps per layer, for msd [default: 1]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub width: Option<NonZeroUsize>,

    /// Passes over the training samples
    #[arg(long, value_name = "N", default_value = "4", value_parser = at_least_one)]
    pub epochs: NonZeroUsize,

    /// Stop after this many steps and write a checkpoint
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub max_steps: Option<NonZeroUsize>,

    /// Images, rows, sequences or patches per worker and step [default: 64 images or rows, but at most 128 on all workers
    /// together; 16 sequences, but at most 32; 4 patches, but at most 8]
    #[arg(long, value_name = "N", value_parser = at_least_one, conflicts_with = "global_batch")]
    pub batch_size: Option<NonZeroUsize>,

    /// Images, rows, sequences or patches per step on all workers together [default with --reproducible or --elastic:
    /// 128 images or rows, 32 sequences or 8 patches]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub global_batch: Option<NonZeroUsize>,

    /// Learning rate of one worker, multiplied by the number of workers; with --global-batch, used as it is [default:
    /// 0.01 for sgd, 0.001 for adam and adamw (0.003 for text), 0.1 for lars, per 64 images, 16 sequences or 4 patches]
    #[arg(long, value_name = "RATE", value_parser = positive)]
    pub lr: Option<f64>,

    /// Epochs over which the learning rate grows from that of one worker to that of all
    #[arg(long, value_name = "EPOCHS", default_value = "0.1", value_parser = not_negative)]
    pub warmup_epochs: f64,

    /// Optimizer: sgd (with momentum 0.9), adam, adamw, or lars, for very large batches [default: sgd; adamw for
    /// transformer, adam for msd]
    #[arg(long, value_enum, hide_possible_values = true, ignore_case = true)]
    pub optimizer: Option<Optimizer>,

    /// Split the optimizer's state over the workers instead of keeping all of it on each; not for lars
    #[arg(long)]
    pub shard_optimizer: bool,

    /// Split parameters, gradients and the optimizer's state over the copies of the network, and gather the parameters of a
    /// layer only while they are needed; not for lars
    #[arg(long)]
    pub shard_parameters: bool,

    /// How workers learn together: data (the mean of all gradients in every step), sharded (the same as
    /// --shard-optimizer), central (sharded, with weights in memory once per host), server (weights and state on parameter
    /// servers), or local (every worker by itself, with weights averaged now and then)
    #[arg(long, value_enum, default_value_t, hide_possible_values = true, ignore_case = true)]
    pub strategy: StrategyName,

    /// Devices per worker process, each a worker with a thread of its own: GPUs where there are several, otherwise cores
    #[arg(long, value_name = "N", default_value = "1", value_parser = at_least_one)]
    pub devices: NonZeroUsize,

    /// Go on when workers are lost, and with more when others come; the same as --min-ranks 1
    #[arg(long)]
    pub elastic: bool,

    /// How many steps the fastest worker may be ahead of the slowest: 0 (all in step), a number, or none (no limit)
    /// [default: 0]
    #[arg(long, value_name = "STEPS", help_heading = SERVER)]
    pub delay: Option<Delay>,

    /// Servers that have each weight [default: 1]
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = SERVER)]
    pub copies: Option<NonZeroUsize>,

    /// Steps between two averages [default: 8]
    #[arg(long, value_name = "STEPS", value_parser = at_least_one, help_heading = "With --strategy local")]
    pub every: Option<NonZeroUsize>,

    /// Steps with the mean of all gradients before the first of these [default: 0]
    #[arg(long, value_name = "STEPS", help_heading = "With --strategy local")]
    pub after: Option<u64>,

    /// Use what changed between two averages as the gradient of an outer optimizer: nesterov
    #[arg(long, value_enum, hide_possible_values = true, ignore_case = true, help_heading = "With --strategy local")]
    pub outer: Option<OuterOptimizer>,

    /// Workers as a product of axes: data (copies of the network), pipe (stages of a copy) and tensor (parts of each
    /// layer, for transformer)
    #[arg(long, value_name = "AXES", value_parser = stages::sizes, help_heading = "Stages")]
    pub mesh: Option<MeshSizes>,

    /// Micro-batches per step of each pipeline [default: 4 per stage, 1 without stages, or --shards divided by the copies]
    #[arg(long, value_name = "N", value_parser = at_least_one, help_heading = "Stages")]
    pub micro_batches: Option<NonZeroUsize>,

    /// Order of forward and backward passes: gpipe, 1f1b, or interleaved, with two stages per worker
    #[arg(long, value_name = "NAME", default_value = "1f1b", help_heading = "Stages")]
    pub schedule: String,

    /// Precision of the computation: f32, or bf16 or f16 with weights kept in f32
    #[arg(long, value_enum, default_value_t, hide_possible_values = true, ignore_case = true)]
    pub precision: Precision,

    /// Target accuracy on the test samples, between 0 and 1; the time to reach it is reported [default: 0.985; 0.85 for
    /// transformer, 0.95 of the voxels for msd]
    #[arg(long, value_name = "ACCURACY", value_parser = share)]
    pub target_accuracy: Option<f64>,

    /// Seed of all random numbers: initial weights, order of the samples and so on
    #[arg(long, value_name = "N", default_value = "42")]
    pub seed: u64,

    /// Folder for checkpoints [default: a new one in runs/]
    #[arg(long, value_name = "DIR", help_heading = "Checkpoints")]
    pub checkpoint_dir: Option<PathBuf>,

    /// Continue from the newest checkpoint in --checkpoint-dir, or of the newest run of this model in runs/
    #[arg(long, help_heading = "Checkpoints")]
    pub resume: bool,

    /// Also write a checkpoint every so many steps, not only after each epoch
    #[arg(long, value_name = "STEPS", value_parser = at_least_one, help_heading = "Checkpoints")]
    pub checkpoint_every: Option<NonZeroUsize>,

    /// Number of checkpoints to keep; 0 keeps all
    #[arg(long, value_name = "N", default_value = "3", help_heading = "Checkpoints")]
    pub keep: usize,

    /// Continue when the loss becomes NaN or infinite, instead of stopping with an error
    #[arg(long)]
    pub allow_nan: bool,

    /// Produce bit-identical results on any number of workers up to --shards
    #[arg(long, help_heading = "Result")]
    pub reproducible: bool,

    /// Number of pieces into which --reproducible cuts a batch
    #[arg(long, value_name = "K", default_value = "8", value_parser = at_least_one, help_heading = "Result")]
    pub shards: NonZeroUsize,

    /// Write the final report to a JSON file on rank 0's host
    #[arg(long, value_name = "FILE", help_heading = "Result")]
    pub json: Option<PathBuf>,

    /// Write the trained network to an ONNX file on rank 0's host, for msd
    #[arg(long, value_name = "FILE", help_heading = "Result")]
    pub export: Option<PathBuf>,

    /// How the workers are started.
    #[command(flatten)]
    pub job: JobArguments,
}

/// What `sirtaki run` knows of a job, except the program.
#[derive(Debug)]
pub struct JobArguments(pub Run);

impl Args for JobArguments {
    fn augment_args(command: Command) -> Command {
        let workers = "Number of workers [default: all slots of the hosts or of the allocation; on this machine, one \
                       per core]";
        let tag = "What to put before each line: rank, host (and rank) or none [default: none]";
        let run = Run::augment_args(command)
            .mut_arg("ranks", |ranks| ranks.help(workers))
            .mut_arg("tag_output", |output| output.help(tag))
            .mut_arg("program", |program| program.hide(true))
            .mut_arg("horovod", |horovod| horovod.hide(true))
            .mut_arg("tf1", |tf1| tf1.hide(true))
            .mut_arg("mpi", |mpi| mpi.hide(true));
        let servers = "Parameter servers, processes beside the workers [default: 1]";
        let run = run
            .mut_arg("servers", |option| option.help(servers).help_heading(SERVER))
            .mut_arg("server_restarts", |option| option.help_heading(SERVER));
        let shown = ["servers", "server_restarts"];
        let hidden = RoleOptions::NAMES.into_iter().filter(|name| !shown.contains(name));
        hidden.fold(run, |run, name| run.mut_arg(name, |option| option.hide(true)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for JobArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Run::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// The sizes of the axes of a mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeshSizes {
    /// Copies of the network; as many as there are workers for, if not given.
    pub data: Option<usize>,
    /// Workers with stages of a copy, one after the other.
    pub pipe: usize,
    /// Workers that share each layer.
    pub tensor: usize,
}

fn networks() -> String {
    let of = |domain| {
        let names: Vec<&str> = Model::all().filter(|model| model.takes(domain)).map(Model::name).collect();
        names.join(", ")
    };
    let [images, tables, text, volumes] = [Domain::Images, Domain::Tables, Domain::Text, Domain::Volumes].map(of);
    format!(
        "Network to train: {images} for images, {tables} for tables, {text} for text, {volumes} for volumes [default: one \
         that suits the data]"
    )
}

fn data_sets() -> String {
    let forms: Vec<&str> = layouts().collect();
    format!("Data set [default: data/mnist; for transformer, a made-up text]: {}", forms.join("; "))
}

/// A network by its name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelName(pub Model);

impl ValueEnum for ModelName {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<ModelName>> = LazyLock::new(|| Model::all().map(ModelName).collect());
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()).help(self.0.about()))
    }
}

/// The optimizers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum Optimizer {
    Sgd,
    Adam,
    Adamw,
    Lars,
}

/// What may follow the steps of workers by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum OuterOptimizer {
    Nesterov,
}

/// The precisions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum Precision {
    #[default]
    #[value(alias = "fp32", alias = "float32", alias = "32")]
    F32,
    #[value(alias = "bfloat16")]
    Bf16,
    #[value(alias = "fp16", alias = "float16", alias = "half", alias = "16")]
    F16,
}

fn positive(text: &str) -> Result<f64, String> {
    number(text, |number| number > 0.0, "a number greater than zero")
}

fn not_negative(text: &str) -> Result<f64, String> {
    number(text, |number| number >= 0.0, "zero or greater")
}
