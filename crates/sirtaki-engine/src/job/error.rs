//! Why a process has no place in a job, or cannot take it. Every text names the variable or folder, and what it
//! contains.

use std::path::PathBuf;

use sirtaki_comm::CommError;

use super::variables;
use crate::EngineError;

/// A place or a setting that cannot be determined, or a job that cannot be joined.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JobError {
    /// A required variable is not set.
    #[error("{name} is not set; it must be {allowed}")]
    Missing {
        /// Which one.
        name: &'static str,
        /// What it may be.
        allowed: String,
    },
    /// A variable is set without one that belongs to it.
    #[error("{present} is `{value}`, but {name}, which belongs to it, is not set")]
    Partial {
        /// The one that is not set.
        name: &'static str,
        /// The one that is.
        present: &'static str,
        /// Its value.
        value: String,
    },
    /// A variable is set and wrong.
    #[error("{name} is `{value}`, but must be {allowed}")]
    Bad {
        /// Which one.
        name: &'static str,
        /// What it is; secrets are not shown.
        value: String,
        /// What it may be.
        allowed: String,
    },
    /// The folder in which the ranks are to meet is not suitable.
    #[error("the ranks cannot meet in {}: {problem}", path.display())]
    Folder {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What to do.
        hint: &'static str,
    },
    /// Encryption was asked for, but what carries the data between hosts has none.
    #[error(
        "{} is on, but MPI carries the data between the {hosts} hosts of this job, and does not encrypt it",
        variables::TLS
    )]
    TlsOverMpi {
        /// How many there are.
        hosts: usize,
    },
    /// The job ends, so that there is no further round.
    #[error("the job ends: {reason}")]
    Over {
        /// Why.
        reason: String,
    },
    /// This process belongs to the job and is no rank of it.
    #[error("this process is a {role} of its job and has no rank there")]
    NoRank {
        /// What it is.
        role: &'static str,
    },
    /// This process is not needed any more.
    #[error("this process has handed over its work and may leave")]
    Dismissed,
    /// The others could not be reached.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// The engine did not start.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl JobError {
    /// What the user can do about it, where we know.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            JobError::Missing { name, .. } | JobError::Partial { name, .. } | JobError::Bad { name, .. } => {
                Some(about(name))
            }
            JobError::Folder { hint, .. } => Some(hint),
            JobError::TlsOverMpi { .. } => Some(
                "start the job with `sirtaki run --tls` instead of mpirun, or unset SIRTAKI_TLS if you trust the network",
            ),
            JobError::Comm(error) | JobError::Engine(EngineError::Comm(error)) => error.hint(),
            JobError::NoRank { .. } => {
                Some("look at SIRTAKI_ROLE before joining the others, or leave out --servers and --coordinator")
            }
            JobError::Over { .. } => Some("save what is needed; `sirtaki run` says what happened"),
            JobError::Dismissed | JobError::Engine(_) => None,
        }
    }
}

/// What to do about a variable.
fn about(name: &str) -> &'static str {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    match () {
        () if variables::is_place(name) => {
            "start the program with `sirtaki run`, which sets all of these, or unset every SIRTAKI_ variable to run alone"
        }
        () if starts(&["SIRTAKI_"]) => "correct or unset it; docs/environment.md lists all variables",
        () if starts(&["OMPI_", "PMI_", "MPI_"]) => {
            "start the program with `mpirun`, which sets all of these, or unset them to run alone"
        }
        () if starts(&["SLURM_"]) => {
            "start the program with `srun`, which sets all of these, or unset them to run alone"
        }
        () if starts(&["XDG_", "HOME"]) => "set XDG_CACHE_HOME to a folder that all hosts of the job see",
        () => "start the program with `torchrun`, which sets all of these, or unset TORCHELASTIC_RUN_ID to run alone",
    }
}
