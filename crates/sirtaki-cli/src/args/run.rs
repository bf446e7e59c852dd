//! What can be typed after `sirtaki run`. Everything is optional here, because a file or a variable may say it instead;
//! [`crate::launch::options`] puts them together.

use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use clap::{
    Args, ValueEnum,
    builder::{PossibleValuesParser, Resettable::Reset, TypedValueParser},
};
use sirtaki_launch::{
    Via,
    environment::Wish,
    hosts::{self, HostSlots},
};

use super::{at_least_one, elastic::ElasticOptions, roles::RoleOptions};
use crate::{env, launch::output::Tag};

const EXAMPLES: &str = "\
Examples:
  On this machine, 4 processes:
    sirtaki run -n 4 -- python train.py --lr 0.1
    sirtaki run -n 4 -- ./my-rust-program

  A PyTorch DDP script, unchanged; RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR
  and so on are set:
    sirtaki run -n 2 -- python ddp.py

  A script written for Horovod, unchanged:
    sirtaki run -n 4 --horovod -- python train.py
    sirtaki run -n 4 --horovod --tf1 -- python train.py     (for TensorFlow 1)

  A TensorFlow script with MultiWorkerMirroredStrategy, unchanged; TF_CONFIG
  is set:
    sirtaki run -n 2 -- python train.py

  On two hosts with 4 processes each, over ssh:
    sirtaki run -H a:4,b:4 -- python train.py
    sirtaki run --hostfile hosts.txt -n 6 --env WANDB_MODE=offline -- ./train

  In a Slurm batch script: hosts and slots come from the allocation, and
  processes are started through srun:
    #SBATCH --nodes=2 --ntasks-per-node=4
    sirtaki run -- python train.py

  With workers that come and go, from 2 to 8 (docs/elastic.md):
    sirtaki run --min-ranks 2 --max-ranks 8 -- python train.py

  With 2 servers beside 4 ranks; SIRTAKI_ROLE tells them apart, and TF_CONFIG
  is set for TensorFlow's ParameterServerStrategy:
    sirtaki run -n 4 --servers 2 --coordinator -- python train.py

  From a file that holds any option by its long name; what is typed wins:
    sirtaki run --config job.toml -n 2
      ranks = 8                              # job.toml
      hosts = [\"a:4\", \"b:4\"]
      program = [\"python\", \"train.py\"]
      env = { WANDB_MODE = \"offline\" }

  Without starting anything, what would happen:
    sirtaki run -H a:4,b:4 --dry-run -- python train.py

Options on the command line override environment variables
(docs/environment.md), which override the file. An option with a value in
brackets takes it after `=`, such as --tls=no. Common options of torchrun,
horovodrun and mpirun, such as -np and --nproc-per-node, are understood.
The exit code is that of the first rank that failed.";

/// `sirtaki run`.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(
    after_help = EXAMPLES,
    next_help_heading = "Where to run",
    override_usage = "sirtaki run [OPTIONS] -- PROGRAM [ARGUMENTS]..."
)]
pub struct Run {
    /// Number of processes [default: all slots of the hosts or of the allocation; 1 on this machine]
    #[arg(short = 'n', long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pub ranks: Option<NonZeroUsize>,

    /// Hosts with their slots (processes), such as `a:4,user@b:4,[fd00::1]:2`; without a number, a host has one slot
    #[arg(short = 'H', long, value_name = "LIST", value_parser = host_list, conflicts_with = "hostfile")]
    pub hosts: Option<HostList>,

    /// The same from a file with one host per line, such as `a slots=4` or `a:4`
    #[arg(long, value_name = "FILE")]
    pub hostfile: Option<PathBuf>,

    /// How to start processes: auto, local, ssh, slurm, pbs or lsf [default: auto: the scheduler's way inside an
    /// allocation, ssh for other hosts]
    #[arg(long, value_name = "WAY", value_parser = via(), hide_possible_values = true)]
    pub via: Option<Via>,

    /// Allow more processes than slots
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "yes", value_parser = yes_or_no, hide_possible_values = true
    )]
    pub oversubscribe: Option<bool>,

    /// Working directory on every host [default: the current one]
    #[arg(long, value_name = "DIR", help_heading = "Processes")]
    pub workdir: Option<PathBuf>,

    /// Set a variable for all processes; without a value, pass on the one set here. May be repeated
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = wish, help_heading = "Processes")]
    pub env: Vec<Wish>,

    /// Divide the cores of a host among its processes: auto or none [default: auto]
    #[arg(long, value_name = "HOW", hide_possible_values = true, help_heading = "Processes")]
    pub cores: Option<Cores>,

    /// Which GPUs a process sees: own, none (do not restrict it) or auto [default: auto: its own, except that scripts
    /// (Python, shell) see all and choose by LOCAL_RANK]
    #[arg(long, value_name = "HOW", hide_possible_values = true, help_heading = "Processes")]
    pub gpus: Option<Gpus>,

    /// Make `import horovod` load Sirtaki, so that scripts written for Horovod run unchanged
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "yes", value_parser = yes_or_no, hide_possible_values = true,
        help_heading = "Processes"
    )]
    pub horovod: Option<bool>,

    /// Make `import tensorflow` in the program's own files mean TensorFlow 1 (tensorflow.compat.v1, v2 behaviour off)
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "yes", value_parser = yes_or_no, hide_possible_values = true,
        help_heading = "Processes"
    )]
    pub tf1: Option<bool>,

    /// Connect the processes through Open MPI's mpirun; programs that use MPICH never need it [default: if the program
    /// is seen to use Open MPI]
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "yes", value_parser = yes_or_no, hide_possible_values = true,
        help_heading = "Processes"
    )]
    pub mpi: Option<bool>,

    /// Start all processes again when one has failed, at most N times; SIRTAKI_RESTART and torchrun's variables say how
    /// often that was [default: 0]
    #[arg(long, value_name = "N", help_heading = "Processes")]
    pub restarts: Option<u32>,

    /// Whether and how processes may come and go.
    #[command(flatten)]
    pub elastic: ElasticOptions,

    /// Whether there are processes that are no ranks.
    #[command(flatten)]
    pub roles: RoleOptions,

    /// Read options from a TOML file
    #[arg(long, value_name = "FILE", help_heading = Reset)]
    pub config: Option<PathBuf>,

    /// Show what would be started, and start nothing
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "yes", value_parser = yes_or_no, hide_possible_values = true, help_heading = Reset
    )]
    pub dry_run: Option<bool>,

    /// Also write the output of each process to a file in this folder
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub output: Option<PathBuf>,

    /// What to put before each line: rank, host (and rank) or none [default: rank]
    #[arg(long, value_name = "TAG", hide_possible_values = true, help_heading = "Output")]
    pub tag_output: Option<Tag>,

    /// Hide the standard output of processes; still show their standard error and why the job failed
    #[arg(
        short, long, conflicts_with = "verbose", value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "yes", value_parser = yes_or_no, hide_possible_values = true, help_heading = "Output"
    )]
    pub quiet: Option<bool>,

    /// Also show where each process runs, how it ends, and how long the job took
    #[arg(
        short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "yes", value_parser = yes_or_no, hide_possible_values = true, help_heading = "Output"
    )]
    pub verbose: Option<bool>,

    /// Record a timeline of all ranks in this file on rank 0's host, for ui.perfetto.dev
    #[arg(long, value_name = "FILE", help_heading = "Monitoring")]
    pub timeline: Option<PathBuf>,

    /// Print at the end where each rank's time went; with a file, also write it there as JSON
    #[arg(
        long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "yes",
        help_heading = "Monitoring"
    )]
    pub profile: Option<String>,

    /// Record the run in a folder on rank 0's host, for `sirtaki report` [default folder: a new one in runs/]
    #[arg(
        long, value_name = "FOLDER", num_args = 0..=1, require_equals = true, default_missing_value = "yes",
        help_heading = "Monitoring"
    )]
    pub record: Option<String>,

    /// Write the progress that a program reports to a file in this folder on rank 0's host, for TensorBoard
    #[arg(long, value_name = "DIR", help_heading = "Monitoring")]
    pub tensorboard: Option<PathBuf>,

    /// How to show the progress that a program reports: auto, lines, json (for programs) or off [default: auto: live on a
    /// terminal, otherwise a line every 10 seconds; off with --quiet]
    #[arg(long, value_name = "HOW", hide_possible_values = true, help_heading = "Monitoring")]
    pub progress: Option<Progress>,

    /// Plot the progress on a local web page while the job runs; its address is printed at the start [default port:
    /// any free one]
    #[arg(
        long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "yes",
        value_parser = dashboard, help_heading = "Monitoring"
    )]
    pub dashboard: Option<Page>,

    /// Time between asking processes to end and killing them [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = env::seconds, help_heading = "Time limits")]
    pub grace: Option<Duration>,

    /// How long a process may wait for another that makes no progress [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = env::seconds, help_heading = "Time limits")]
    pub timeout: Option<Duration>,

    /// How long a tensor may wait for a late process before that is an error, or off [default: 1800]
    #[arg(long, value_name = "SECONDS", value_parser = env::seconds_or_never, help_heading = "Time limits")]
    pub hang_timeout: Option<String>,

    /// How long to wait for all hosts and processes to start [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = env::seconds, help_heading = "Time limits")]
    pub start_timeout: Option<Duration>,

    /// Network between hosts: an interface, an address or a subnet, such as eth0 or 10.0.0.0/24 [default: the fastest
    /// one that reaches all hosts]
    #[arg(long, value_name = "NETWORK", help_heading = "Network")]
    pub interface: Option<String>,

    /// Encrypt tensors between hosts, too; control connections between hosts always are (SECURITY.md)
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "yes", value_parser = yes_or_no, hide_possible_values = true, help_heading = "Network"
    )]
    pub tls: Option<bool>,

    /// Port of the ssh servers [default: as ssh is configured]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), help_heading = "Network")]
    pub ssh_port: Option<u16>,

    /// Configuration file for ssh, as with `ssh -F`
    #[arg(long, value_name = "FILE", help_heading = "Network")]
    pub ssh_config: Option<PathBuf>,

    /// Private key for ssh [default: as ssh is configured]
    #[arg(long, value_name = "FILE", help_heading = "Network")]
    pub ssh_identity: Option<PathBuf>,

    /// Option for ssh, as in its configuration file, such as `ProxyJump=gate`; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = ssh_option, help_heading = "Network")]
    pub ssh_option: Vec<String>,

    /// Path of `sirtaki` on the other hosts [default: the same as here]
    #[arg(long, value_name = "PATH", help_heading = "Network")]
    pub remote_sirtaki: Option<String>,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM", help_heading = Reset)]
    pub program: Vec<String>,
}

/// The hosts of `-H`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostList(pub Vec<HostSlots>);

/// Whether cores are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Cores {
    /// Every rank of a host gets its own.
    #[default]
    Auto,
    /// Ranks run where there is room.
    None,
}

/// Which GPUs a rank sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Gpus {
    /// Its own, unless the program is a script, which chooses itself.
    #[default]
    Auto,
    /// Its own.
    Own,
    /// Whatever there is.
    None,
}

/// How it is shown how far a program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Progress {
    /// Live where there is a terminal, in lines elsewhere, and not at all for those who want quiet.
    #[default]
    Auto,
    /// A line now and then.
    Lines,
    /// A line of JSON whenever there is news.
    Json,
    /// Not at all.
    Off,
}

/// Whether and where there is a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// There is none.
    None,
    /// On any port.
    Anywhere,
    /// On this one.
    Port(u16),
}

impl Page {
    /// The port, or any, if there is a page.
    pub fn port(self) -> Option<Option<u16>> {
        match self {
            Page::None => None,
            Page::Anywhere => Some(None),
            Page::Port(port) => Some(Some(port)),
        }
    }
}

pub(super) fn via() -> impl TypedValueParser<Value = Via> {
    PossibleValuesParser::new(Via::ALL.map(|(name, _)| name)).map(|name| Via::named(&name).unwrap_or_default())
}

pub(super) fn yes_or_no(text: &str) -> Result<bool, String> {
    sirtaki_engine::job::parse::switch(text).ok_or_else(|| "must be yes or no".into())
}

pub(super) fn dashboard(text: &str) -> Result<Page, String> {
    match (text.parse(), sirtaki_engine::job::parse::switch(text)) {
        (Ok(port), _) if port > 1 => Ok(Page::Port(port)),
        (_, Some(true)) => Ok(Page::Anywhere),
        (_, Some(false)) => Ok(Page::None),
        _ => Err("must be a port from 2 to 65535, yes or no".into()),
    }
}

pub(super) fn host_list(text: &str) -> Result<HostList, String> {
    hosts::parse_list(text).map(HostList).map_err(|advice| format!("{}; {}", advice.message, advice.hint))
}

fn wish(text: &str) -> Result<Wish, String> {
    let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
    let mut bytes = name.bytes();
    let begins = bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_');
    if !begins || !bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err("must be NAME or NAME=VALUE".into());
    }
    if value.is_some_and(|value| value.contains('\0')) {
        return Err("a value cannot contain a zero byte".into());
    }
    Ok(Wish { name: name.into(), value: value.map(Into::into) })
}

pub(super) fn ssh_option(text: &str) -> Result<String, String> {
    let name = text.split(['=', ' ']).next().unwrap_or_default();
    let fine = name.len() < text.len() && name.bytes().all(|byte| byte.is_ascii_alphabetic()) && !name.is_empty();
    if fine { Ok(text.into()) } else { Err("must be NAME=VALUE, such as ProxyJump=gate".into()) }
}
