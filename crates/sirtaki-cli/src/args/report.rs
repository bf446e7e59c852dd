//! What can be typed after `sirtaki report`.

use std::path::PathBuf;

use clap::Args;

const EXAMPLES: &str = "\
Examples:
  One run, or all runs in a folder, as report.html:
    sirtaki report runs/lenet-20261115-095204
    sirtaki report runs

  All runs of a folder, in a browser:
    sirtaki report runs --open

  Compare two runs, for a merge request:
    sirtaki report runs/before runs/after --markdown

  Speed-ups as data:
    sirtaki report runs --json | jq '.scaling[].points[].speedup.mean'

`sirtaki train` always records its runs; other programs are recorded with
`sirtaki run --record=FOLDER`. Runs that differ only in their seed form a group,
and groups that differ only in the number of workers form a scaling series. Runs
that failed or cannot be read are counted and listed.";

/// `sirtaki report`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Report {
    /// Run folders, or folders that contain some
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,

    /// File to write [default: report.html; standard output for Markdown and JSON]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Write text and tables as Markdown instead of a web page
    #[arg(long)]
    pub markdown: bool,

    /// Write all figures as JSON instead of a web page
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,

    /// Target accuracy, between 0 and 1; the time to reach it is compared [default: that of each run]
    #[arg(long, value_name = "ACCURACY", value_parser = super::share)]
    pub target_accuracy: Option<f64>,

    /// Open the page in a browser: that in BROWSER, or the desktop's own
    #[arg(long, conflicts_with_all = ["markdown", "json"])]
    pub open: bool,

    /// Title of the report
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
}
