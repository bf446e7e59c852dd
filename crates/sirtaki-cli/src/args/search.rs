//! What can be typed after `sirtaki search`.

use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use clap::{Args, Subcommand};

use super::{
    at_least_one,
    run::{HostList, Page},
};

const EXAMPLES: &str = "\
Examples:
  A study described by a file, 4 trials at a time on this machine:
    sirtaki search study.toml -n 4
      command   = [\"python\", \"train.py\", \"--lr\", \"{lr}\", \"--layers\", \"{layers}\"]
      objective = \"minimize val_loss\"                            # study.toml
      trials    = 200
      stop      = { method = \"asha\", min = 1, max = 27 }
      [space]
      lr        = { log = [1e-5, 1.0] }
      layers    = { int = [1, 6] }

  A trial reports by lines of JSON on standard output, such as
  {\"val_loss\": 0.31} at its end, or {\"step\": 3, \"val_loss\": 0.31} on its way.

  Settings for `sirtaki train` itself; its own options follow after `--`:
    sirtaki search --train 'lr=log:1e-4..1,batch-size=32|64|128' -- --epochs 3

  On two hosts, 4 ranks each; with `ranks = 2` that is 4 trials at a time:
    sirtaki search study.toml -H a:4,b:4

  Continue after Ctrl-C, a crash or the end of an allocation:
    sirtaki search study.toml --resume

  What came of it:
    sirtaki search show runs/study
    sirtaki search best runs/study --json
    sirtaki search export runs/study --csv > trials.csv
    sirtaki search report runs/study                   (study.html)
    sirtaki search export runs/study --sqlite -o study.db
    sirtaki search import study.db                     (into runs/NAME)

The journal, runs/NAME/journal.log, is one of Optuna's: optuna and
optuna-dashboard open it, also while the study runs. docs/search.md has more.";

/// `sirtaki search`.
#[derive(Debug, Args)]
#[command(
    after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub struct Search {
    /// Look at a study
    #[command(subcommand)]
    pub look: Option<Look>,

    /// The file that describes the study
    #[arg(value_name = "FILE", required_unless_present = "train")]
    pub file: Option<PathBuf>,

    /// Search settings of `sirtaki train` instead, such as `lr=log:1e-4..1,batch-size=32|64|128`
    #[arg(long, value_name = "SPACE", conflicts_with = "file")]
    pub train: Option<String>,

    /// Trials at a time [default: as many as the cores, the hosts or the allocation have room for]
    #[arg(short = 'n', long, value_name = "N", value_parser = at_least_one, conflicts_with = "hosts")]
    pub slots: Option<NonZeroUsize>,

    /// Hosts with their slots (ranks), such as `a:4,b:4`
    #[arg(short = 'H', long, value_name = "LIST", value_parser = super::run::host_list)]
    pub hosts: Option<HostList>,

    /// Ranks of each trial [default: as the file says, or 1]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub ranks: Option<NonZeroUsize>,

    /// Continue the study where it ended; it begins where there is none yet
    #[arg(long)]
    pub resume: bool,

    /// Number of trials, instead of the file's
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub trials: Option<NonZeroUsize>,

    /// What all random choices depend on, instead of the file's
    #[arg(long, value_name = "SEED")]
    pub seed: Option<u64>,

    /// How to choose what to try: auto, random, grid, sobol, tpe, gaussian, cma-es or nsga2 [default: as the file says]
    #[arg(long, value_name = "NAME")]
    pub sampler: Option<String>,

    /// Which trials to give up, such as `asha:min=1,max=9`, instead of the file's
    #[arg(long, value_name = "RULE")]
    pub stop: Option<String>,

    /// End after this time, such as `90m` or `12h`, and start nothing that cannot finish before [default: the end of
    /// the allocation]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub time_limit: Option<Duration>,

    /// Folder of the study: journal, and a folder for each trial [default: runs/NAME]
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,

    /// Configuration file for ssh, as with `ssh -F`
    #[arg(long, value_name = "FILE")]
    pub ssh_config: Option<PathBuf>,

    /// Path of `sirtaki` on the other hosts [default: the same as here]
    #[arg(long, value_name = "PATH")]
    pub remote_sirtaki: Option<String>,

    /// Show the study on a local web page while it runs; its address is printed at the start [default port: any free one]
    #[arg(
        long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "yes",
        value_parser = super::run::dashboard
    )]
    pub dashboard: Option<Page>,

    /// Say nothing but the result
    #[arg(short, long)]
    pub quiet: bool,

    /// Further options of `sirtaki train`
    #[arg(last = true, value_name = "OPTIONS", requires = "train")]
    pub options: Vec<String>,
}

/// What to see of a study.
#[derive(Debug, Subcommand)]
pub enum Look {
    /// List all trials
    Show(Looked),
    /// Print the best trial, or all that no other beats
    Best(Looked),
    /// Write all trials as JSON or CSV, or as a database of Optuna
    Export(Export),
    /// Take a study over from a database of Optuna
    Import(Import),
    /// Write a page with plots and all trials
    Report(StudyPage),
}

/// Which study to look at.
#[derive(Debug, Args)]
pub struct Looked {
    /// Folder of a study, or a journal of Optuna
    pub study: PathBuf,

    /// The study's name, where the journal has several [default: the last]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `sirtaki search export`.
#[derive(Debug, Args)]
pub struct Export {
    /// Folder of a study, or a journal of Optuna
    pub study: PathBuf,

    /// The study's name, where the journal has several [default: the last]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Write CSV, one row per trial, instead of JSON
    #[arg(long)]
    pub csv: bool,

    /// Write a SQLite file that Optuna opens as `sqlite:///FILE`
    #[arg(long, conflicts_with = "csv", requires = "output")]
    pub sqlite: bool,

    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// `sirtaki search import`.
#[derive(Debug, Args)]
pub struct Import {
    /// SQLite file of Optuna, which stays as it is
    pub database: PathBuf,

    /// The study's name, where the database has several [default: the last]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Folder of the study, which must not have one yet [default: runs/NAME]
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

/// `sirtaki search report`.
#[derive(Debug, Args)]
pub struct StudyPage {
    /// Folder of a study, or a journal of Optuna
    pub study: PathBuf,

    /// The study's name, where the journal has several [default: the last]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// File to write [default: study.html]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

fn duration(text: &str) -> Result<Duration, String> {
    crate::study::parse_duration(text).ok_or_else(|| "must be a time such as 90s, 30m or 1h30m".into())
}
