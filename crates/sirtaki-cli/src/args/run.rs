//! What can be typed after `sirtaki run`. Everything is optional here, because a file or a variable may say it instead;
//! [`crate::launch::options`] puts them together.

use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use clap::{
    Args, ValueEnum,
    builder::{BoolishValueParser, Resettable::Reset},
};

use super::at_least_one;
use crate::{
    env,
    launch::{
        environment::Wish,
        hosts::{self, HostSlots},
        output::Tag,
    },
};

const EXAMPLES: &str = "\
Examples:
  On this machine, 4 processes:
    sirtaki run -n 4 -- python train.py --lr 0.1
    sirtaki run -n 4 -- ./my-rust-program

  A PyTorch DDP script, unchanged: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and the like are set:
    sirtaki run -n 2 -- python ddp.py

  A script written for Horovod, unchanged:
    sirtaki run -n 4 --horovod -- python train.py

  On two hosts with 4 processes each, over ssh:
    sirtaki run -H a:4,b:4 -- python train.py
    sirtaki run --hostfile hosts.txt -n 6 --env WANDB_MODE=offline -- python train.py

  In a Slurm batch script; hosts and slots come from the allocation, processes start through srun:
    #SBATCH --nodes=2 --ntasks-per-node=4
    sirtaki run -- python train.py

  From a file that holds any option by its long name; what is typed beside it wins:
    sirtaki run --config job.toml -n 2
      ranks = 8                              # job.toml
      hosts = [\"a:4\", \"b:4\"]
      program = [\"python\", \"train.py\"]
      env = { WANDB_MODE = \"offline\" }

  What would happen:
    sirtaki run -H a:4,b:4 --dry-run -- python train.py

Options typed win over environment variables (docs/environment.md), these over the file. A switch is
turned off again with `=no`, such as --tls=no. The exit code is that of the first rank that failed.";

/// `sirtaki run`.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(
    after_help = EXAMPLES,
    next_help_heading = "Where to run",
    override_usage = "sirtaki run [OPTIONS] -- PROGRAM [ARGUMENTS]..."
)]
pub struct Run {
    /// Number of processes [default: all slots of the hosts or of the allocation; 1 on this machine]
    #[arg(short = 'n', long, value_name = "N", value_parser = at_least_one)]
    pub ranks: Option<NonZeroUsize>,

    /// Hosts and their slots, such as `a:4,user@b:4,[fd00::1]:2`; one slot without a number
    #[arg(short = 'H', long, value_name = "LIST", value_parser = host_list, conflicts_with = "hostfile")]
    pub hosts: Option<HostList>,

    /// The same from a file with a host per line, such as `a slots=4` or `a:4`
    #[arg(long, value_name = "FILE")]
    pub hostfile: Option<PathBuf>,

    /// How processes are started: auto, local, ssh, slurm, pbs or lsf [default: auto: the scheduler's way inside an
    /// allocation, ssh for other hosts]
    #[arg(long, value_name = "WAY", hide_possible_values = true)]
    pub via: Option<Via>,

    /// Allow more processes than slots
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "yes", value_parser = BoolishValueParser::new(), hide_possible_values = true
    )]
    pub oversubscribe: Option<bool>,

    /// Folder to run in, on every host [default: the current one]
    #[arg(long, value_name = "DIR", help_heading = "Processes")]
    pub workdir: Option<PathBuf>,

    /// Set a variable for all processes, or pass on the one that is set here; may be repeated
    #[arg(long, value_name = "NAME[=VALUE]", value_parser = wish, help_heading = "Processes")]
    pub env: Vec<Wish>,

    /// Divide the cores among the processes of a host: auto or none [default: auto]
    #[arg(long, value_name = "HOW", hide_possible_values = true, help_heading = "Processes")]
    pub cores: Option<Cores>,

    /// Which GPUs a process sees: auto, own or none [default: auto: its own, but scripts (Python, shell) see all and
    /// choose by LOCAL_RANK; none: whatever there is]
    #[arg(long, value_name = "HOW", hide_possible_values = true, help_heading = "Processes")]
    pub gpus: Option<Gpus>,

    /// Let `import horovod` mean Sirtaki's Python package, so that scripts written for Horovod run as they are
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "yes", value_parser = BoolishValueParser::new(), hide_possible_values = true,
        help_heading = "Processes"
    )]
    pub horovod: Option<bool>,

    /// A file with options, in TOML
    #[arg(long, value_name = "FILE", help_heading = Reset)]
    pub config: Option<PathBuf>,

    /// Print what would be started, and start nothing
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "yes", value_parser = BoolishValueParser::new(), hide_possible_values = true, help_heading = Reset
    )]
    pub dry_run: Option<bool>,

    /// Write the output of every process to a file in this folder as well
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub output: Option<PathBuf>,

    /// What stands before every line: rank, host (and rank) or none [default: rank]
    #[arg(long, value_name = "TAG", hide_possible_values = true, help_heading = "Output")]
    pub tag_output: Option<Tag>,

    /// Hide what processes write to standard output; show their standard error, and why the job failed
    #[arg(
        short, long, conflicts_with = "verbose", value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "yes", value_parser = BoolishValueParser::new(), hide_possible_values = true, help_heading = "Output"
    )]
    pub quiet: Option<bool>,

    /// Also tell which process runs where, how each of them ends, and how long it took
    #[arg(
        short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "yes", value_parser = BoolishValueParser::new(), hide_possible_values = true, help_heading = "Output"
    )]
    pub verbose: Option<bool>,

    /// Keep a timeline of all ranks in this file on rank 0's host, for ui.perfetto.dev
    #[arg(long, value_name = "FILE", help_heading = "Monitoring")]
    pub timeline: Option<PathBuf>,

    /// Print a profile of all ranks at the end; with a file, also write it there as JSON
    #[arg(
        long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "yes",
        help_heading = "Monitoring"
    )]
    pub profile: Option<String>,

    /// Record the run in a folder on rank 0's host, for `sirtaki report` [default: a new one in runs]
    #[arg(
        long, value_name = "FOLDER", num_args = 0..=1, require_equals = true, default_missing_value = "yes",
        help_heading = "Monitoring"
    )]
    pub record: Option<String>,

    /// How far a program is, if it says so: auto, lines or off [default: auto: live on a terminal, else a line every 10
    /// seconds; nothing with --quiet]
    #[arg(long, value_name = "HOW", hide_possible_values = true, help_heading = "Monitoring")]
    pub progress: Option<Progress>,

    /// Show the same in plots on a page of this machine while the job runs; its address is printed at the start
    /// [default: on a free port]
    #[arg(
        long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "yes",
        value_parser = dashboard, help_heading = "Monitoring"
    )]
    pub dashboard: Option<Page>,

    /// Seconds between asking processes to end and killing them [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = env::seconds, help_heading = "Time limits")]
    pub grace: Option<Duration>,

    /// Seconds a process may wait for another without any progress [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = env::seconds, help_heading = "Time limits")]
    pub timeout: Option<Duration>,

    /// Seconds to wait for all hosts and processes to appear [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = env::seconds, help_heading = "Time limits")]
    pub start_timeout: Option<Duration>,

    /// Network between hosts: an interface, an address or a network, such as eth0 or 10.0.0.0/24 [default: the fastest
    /// one that reaches all hosts]
    #[arg(long, value_name = "NETWORK", help_heading = "Network")]
    pub interface: Option<String>,

    /// Encrypt connections between processes
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "yes", value_parser = BoolishValueParser::new(), hide_possible_values = true, help_heading = "Network"
    )]
    pub tls: Option<bool>,

    /// Port of the ssh servers [default: what ssh's own configuration says]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), help_heading = "Network")]
    pub ssh_port: Option<u16>,

    /// Configuration of ssh instead of the user's own, as `ssh -F`
    #[arg(long, value_name = "FILE", help_heading = "Network")]
    pub ssh_config: Option<PathBuf>,

    /// Key to log in with [default: what ssh's own configuration says]
    #[arg(long, value_name = "FILE", help_heading = "Network")]
    pub ssh_identity: Option<PathBuf>,

    /// An option for ssh as in its configuration, such as `ProxyJump=gate`; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = ssh_option, help_heading = "Network")]
    pub ssh_option: Vec<String>,

    /// Where `sirtaki` is on the other hosts [default: where it is here]
    #[arg(long, value_name = "PATH", help_heading = "Network")]
    pub remote_sirtaki: Option<String>,

    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM", help_heading = Reset)]
    pub program: Vec<String>,
}

/// The hosts of `-H`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostList(pub Vec<HostSlots>);

/// How processes are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Via {
    /// By what is found.
    #[default]
    Auto,
    /// On this machine.
    Local,
    /// Over ssh.
    Ssh,
    /// Through `srun`.
    Slurm,
    /// Through `pbs_tmrsh`.
    Pbs,
    /// Through `blaunch`.
    Lsf,
}

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

fn dashboard(text: &str) -> Result<Page, String> {
    match (text.parse(), sirtaki_engine::job::parse::switch(text)) {
        (Ok(port), _) if port > 1 => Ok(Page::Port(port)),
        (_, Some(true)) => Ok(Page::Anywhere),
        (_, Some(false)) => Ok(Page::None),
        _ => Err("must be a port, yes or no".into()),
    }
}

fn host_list(text: &str) -> Result<HostList, String> {
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

fn ssh_option(text: &str) -> Result<String, String> {
    let name = text.split(['=', ' ']).next().unwrap_or_default();
    let fine = name.len() < text.len() && name.bytes().all(|byte| byte.is_ascii_alphabetic()) && !name.is_empty();
    if fine { Ok(text.into()) } else { Err("must be NAME=VALUE, such as ProxyJump=gate".into()) }
}
