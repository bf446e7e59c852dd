//! What can be typed. Meaning is given to it in [`crate::commands`].

#[cfg(feature = "train")]
pub mod bench_train;
mod brief;
pub mod elastic;
pub mod fabric;
pub mod habits;
pub mod infer;
pub mod predict;
pub mod predict_options;
pub mod quantities;
pub mod reference;
pub mod report;
pub mod roles;
pub mod run;
pub mod scaling;
pub mod search;
pub mod strategy;
#[cfg(feature = "train")]
pub mod train;
#[cfg(feature = "train")]
pub mod train_worker;

use std::{ffi::OsString, num::NonZeroUsize, str::FromStr, time::Duration};

use clap::{
    Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum,
    error::{ContextKind, ContextValue},
};
use sirtaki_comm::{DType, collective::Algorithm};

use self::run::Run;
use crate::{commands::bench::sizes::Sizes, env};

const EXAMPLES: &str = "\
Examples:
  sirtaki train                                  handwritten digits, all cores
  sirtaki run -n 4 -- python train.py            a job of 4 processes
  sirtaki search study.toml -n 4                 try settings, 4 at a time
  sirtaki infer net.onnx in.zarr out.zarr -n 4   a network on a large volume
  sirtaki report runs                            compare all runs in a folder
  sirtaki doctor                                 what this machine offers
  sirtaki bench allreduce -n 4                   how fast 4 processes all-reduce
  sirtaki bench allreduce -n 2 --algorithm all   compare the algorithms

Environment variables are listed in docs/environment.md.";

/// Distributed deep learning: fast, and clear about what went wrong.
#[derive(Debug, Parser)]
#[command(name = "sirtaki", version, after_help = EXAMPLES, max_term_width = 80, arg_required_else_help = true)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Arguments {
    /// Reads words, the first of which names this program. `-h` is answered with the most important options, `--help`
    /// with all.
    pub fn read(words: Vec<OsString>) -> Result<Self, clap::Error> {
        let summary = words.iter().skip(1).take_while(|word| *word != "--").any(|word| word == "-h");
        let command = if summary { brief::command() } else { Self::command() };
        let matches = command.try_get_matches_from(words).map_err(without_hidden)?;
        Self::from_arg_matches(&matches)
    }
}

/// Commands that are not for people are not suggested to them either.
fn without_hidden(mut error: clap::Error) -> clap::Error {
    let command = Arguments::command();
    let hidden = |name: &String| command.find_subcommand(name).is_some_and(clap::Command::is_hide_set);
    if let Some(ContextValue::Strings(names)) = error.remove(ContextKind::SuggestedSubcommand) {
        let names: Vec<_> = names.into_iter().filter(|name| !hidden(name)).collect();
        if !names.is_empty() {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
        }
    }
    error
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program as several processes, on this machine or on many
    Run(Box<Run>),
    /// Train a network on all cores, or on many machines
    #[cfg(feature = "train")]
    Train(Box<train::Train>),
    /// Search for the best settings of a program
    Search(Box<search::Search>),
    /// Apply a network to a volume larger than memory, exactly
    Infer(Box<infer::Infer>),
    /// Report on recorded runs: speed, accuracy and scaling
    Report(report::Report),
    /// Check this machine: cores, memory, network, MPI, GPUs, Slurm
    Doctor(Doctor),
    /// Measure communication, and how a job scales
    #[command(subcommand)]
    Bench(Bench),
    /// Predict how fast a job would be on more workers
    Predict(Box<predict::Predict>),
    /// Print a completion script for a shell
    Completions(Completions),
    /// Print a manual page, or write all of them
    Man(Man),
    /// What `run` starts on every host
    #[command(hide = true)]
    Agent,
    /// One worker of a training, started by `train`
    #[cfg(feature = "train")]
    #[command(hide = true)]
    TrainWorker(train_worker::TrainWorker),
    /// One worker of an inference, started by `infer`
    #[command(hide = true)]
    InferWorker(infer::InferWorker),
    /// Stands for a rank below Open MPI's launcher, started by `run`
    #[command(hide = true)]
    MpiRelay(RelayArguments),
    /// One rank of a benchmark, started by `bench`
    #[command(hide = true)]
    BenchWorker(BenchWorker),
}

const DOCTOR_EXAMPLES: &str = "\
Examples:
  sirtaki doctor
  sirtaki doctor --json | jq '.[] | select(.state != \"ok\")'";

/// `sirtaki doctor`.
#[derive(Debug, Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub struct Doctor {
    /// Print one JSON array of `name`, `state` (ok, missing, warning), `value` and `hint`
    #[arg(long)]
    pub json: bool,
}

/// `sirtaki bench …`.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Time all-reduce among processes of this machine
    Allreduce(Allreduce),
    /// Run a job on different numbers of workers, and report how it scales
    Scaling(scaling::Scaling),
    /// Measure how many images per second training takes in
    #[cfg(feature = "train")]
    Train(Box<bench_train::BenchTrain>),
}

const ALLREDUCE_EXAMPLES: &str = "\
Examples:
  sirtaki bench allreduce -n 2
  sirtaki bench allreduce -n 4 --algorithm all --sizes 4..64M
  sirtaki bench allreduce -n 2 --algorithm ring,halving --transport tcp
  sirtaki bench allreduce -n 8 --sizes 16M --dtype bf16 --json

Times are those of the slowest rank. Bus bandwidth is
bytes / time * 2 (n-1) / n: the least that every rank has to send and receive,
so that figures for different n can be compared.";

/// `sirtaki bench allreduce`.
#[derive(Debug, Args)]
#[command(after_help = ALLREDUCE_EXAMPLES)]
pub struct Allreduce {
    /// Number of processes
    #[arg(short = 'n', long = "ranks", default_value = "2", value_parser = at_least_one)]
    pub ranks: NonZeroUsize,

    /// Algorithms: auto, all, or a list of flat, ring, doubling, halving, tree, direct and layered
    #[arg(long, default_value = "auto", env = env::ALGORITHM, hide_env_values = true)]
    pub algorithm: Choice,

    /// Bytes per rank: a list such as `4,1K,1M`, or a range such as `4..64M` (each size 4 times the last; `4..64M*2`: twice)
    #[arg(long, default_value = "4..64M")]
    pub sizes: Sizes,

    /// Element type: f16, bf16, f32, f64, i8, u8, i32, i64 or bool
    #[arg(long, default_value = "f32", value_parser = dtype)]
    pub dtype: DType,

    /// Transport: auto (as in a job), shm (shared memory), tcp (loopback) or tls (encrypted)
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub transport: Transport,

    /// Measurements per size and algorithm [default: 5 to 200, fewer for large sizes]
    #[arg(long, value_parser = at_least_one)]
    pub repeat: Option<NonZeroUsize>,

    /// Give up when a rank makes no progress for this many seconds [default: 60]
    #[arg(long, value_parser = env::seconds, env = env::TIMEOUT, hide_env_values = true)]
    pub timeout: Option<Duration>,

    /// Print one JSON object per line: algorithm, ranks, bytes, median_us, p99_us, bus_gb_s
    #[arg(long)]
    pub json: bool,
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  source <(sirtaki completions bash)
  sirtaki completions fish > ~/.config/fish/completions/sirtaki.fish
  sirtaki completions zsh > \"${fpath[1]}/_sirtaki\"";

/// `sirtaki completions`.
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub struct Completions {
    /// Shell to complete in
    pub shell: clap_complete::Shell,
}

const MAN_EXAMPLES: &str = "\
Examples:
  sirtaki man run | man -l -
  sirtaki man --all /usr/local/share/man/man1";

/// `sirtaki man`.
#[derive(Debug, Args)]
#[command(after_help = MAN_EXAMPLES)]
pub struct Man {
    /// Command, such as `run` or `bench allreduce` [default: sirtaki itself]
    pub command: Vec<String>,

    /// Write the pages of all commands into this folder
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub all: Option<std::path::PathBuf>,
}

/// What stands for a rank below Open MPI's launcher is told.
#[derive(Debug, Args)]
pub struct RelayArguments {
    /// Beginning of the names of the agents' sockets
    #[arg(long)]
    pub socket: String,
    /// Behind the last rank of each host
    #[arg(long, value_delimiter = ',')]
    pub ends: Vec<usize>,
}

/// What one rank of a benchmark is told; who it is comes from the environment.
#[derive(Debug, Args)]
pub struct BenchWorker {
    /// As typed by the user
    #[arg(long)]
    pub algorithm: Choice,
    /// As typed by the user
    #[arg(long)]
    pub sizes: Sizes,
    /// As typed by the user
    #[arg(long, value_parser = dtype)]
    pub dtype: DType,
    /// As typed by the user
    #[arg(long)]
    pub repeat: Option<NonZeroUsize>,
}

/// The algorithms to compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// The automatic choice, then every algorithm that the back end has.
    All,
    /// These; `None` is the automatic choice.
    These(Vec<Option<Algorithm>>),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = |name: &str| match name {
            "auto" => Ok(None),
            "all" => Err("`all` stands alone, without other names".to_owned()),
            name => name.parse().map(Some).map_err(|error| format!("{error}, or auto, or all")),
        };
        match text {
            "all" => Ok(Choice::All),
            list => list.split(',').map(|name| one(name.trim())).collect::<Result<_, _>>().map(Choice::These),
        }
    }
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Choice::All => f.write_str("all"),
            Choice::These(list) => {
                let names: Vec<_> = list.iter().map(|choice| choice.map_or("auto", Algorithm::name)).collect();
                f.write_str(&names.join(","))
            }
        }
    }
}

/// How the processes of a benchmark talk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Transport {
    /// As a job would.
    #[default]
    Auto,
    /// Shared memory.
    Shm,
    /// TCP over loopback.
    Tcp,
    /// TCP over loopback, encrypted.
    Tls,
}

fn at_least_one(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "must be a whole number greater than zero".into())
}

fn share(text: &str) -> Result<f64, String> {
    number(text, |number| number > 0.0 && number <= 1.0, "greater than 0 and at most 1, such as 0.985")
}

fn number(text: &str, good: impl Fn(f64) -> bool, wanted: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|&number: &f64| number.is_finite() && good(number));
    number.ok_or_else(|| format!("must be {wanted}"))
}

fn dtype(text: &str) -> Result<DType, String> {
    DType::ALL.into_iter().find(|dtype| dtype.name() == text).ok_or_else(|| {
        let names: Vec<_> = DType::ALL.iter().map(|dtype| dtype.name()).collect();
        format!("there is no element type `{text}`; choose one of {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }

    #[test]
    fn choices_survive_the_way_to_a_worker() {
        for text in ["all", "auto", "ring,halving", "auto,tree"] {
            assert_eq!(text.parse::<Choice>().unwrap().to_string(), text);
        }
        assert!("ring,all".parse::<Choice>().unwrap_err().contains("alone"));
        assert!("rnig".parse::<Choice>().unwrap_err().contains("`rnig`"));
    }
}
