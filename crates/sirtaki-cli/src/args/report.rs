//! What can be typed after `sirtaki report`.

use std::path::PathBuf;

use clap::Args;

const EXAMPLES: &str = "\
Examples:
  One run, or all in a folder, as report.html:
    sirtaki report runs/lenet-20261115-095204
    sirtaki report runs

  Two runs compared, for a merge request:
    sirtaki report runs/before runs/after --markdown

  Speed-up of every scaling, as data:
    sirtaki report runs --json | jq '.scaling[].points[].speedup.mean'

`sirtaki train` records its runs by itself; `sirtaki run --record=FOLDER` does for other programs.
Runs that differ in nothing but their seed are one group; groups that differ in nothing but the
number of workers are a scaling. Runs that failed or cannot be read are counted and listed.";

/// `sirtaki report`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Report {
    /// Folders of runs, or folders with such in them
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,

    /// Where to write [default: report.html; Markdown and JSON to standard output]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Words and tables as Markdown instead of a page
    #[arg(long)]
    pub markdown: bool,

    /// All figures as JSON instead of a page
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,

    /// Share of test samples to recognise, whose time is compared [default: as each run was told]
    #[arg(long, value_name = "SHARE", value_parser = super::share)]
    pub target_accuracy: Option<f64>,

    /// Title of the report
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
}
