//! Arguments of the processes that `sirtaki train` starts, which nobody types.

use std::{num::NonZeroUsize, path::PathBuf};

use clap::Args;

/// What a worker of `sirtaki train` is told; who it is comes from the environment.
#[derive(Debug, Args)]
pub struct TrainWorker {
    /// Everything that was decided, as JSON
    #[arg(long)]
    pub settings: String,
    /// As typed by the user
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// The command that goes on with this run
    #[arg(long)]
    pub again: String,
    /// Devices of this process
    #[arg(long, default_value = "1")]
    pub devices: NonZeroUsize,
    /// Workers come and go
    #[arg(long)]
    pub elastic: bool,
    /// What a benchmark measures, as JSON
    #[arg(long)]
    pub bench: Option<String>,
    /// Hide progress
    #[arg(long)]
    pub quiet: bool,
}
