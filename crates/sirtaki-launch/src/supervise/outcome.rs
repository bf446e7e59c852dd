//! How a job comes to its end, and what has to be done until then.

use crate::ended::Ended;

/// What has to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Send this signal to every process.
    Signal(i32),
    /// Kill everything.
    Kill,
    /// Ask what every process is doing.
    Look,
    /// Report that the end of this rank is awaited.
    Await(usize),
    /// Report that only stopped ranks are left, of which this is one.
    Stands(usize),
    /// Start this process again in its place.
    Return(usize),
    /// End the agents that do not answer.
    GiveUp,
}

/// How the job came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All ranks succeeded.
    Success,
    /// This process failed first.
    Failed {
        /// Its number: a rank, or a process that is none ([`crate::roles::Cast`] names it).
        rank: usize,
        /// How.
        how: Ended,
    },
    /// It was ended by this signal.
    Interrupted(i32),
    /// It could not go on, for this reason.
    Stuck(String),
}

impl Outcome {
    /// The job's exit code.
    pub fn code(&self) -> u8 {
        match self {
            Outcome::Success => 0,
            Outcome::Failed { how, .. } => how.exit_code(),
            Outcome::Stuck(_) => 1,
            Outcome::Interrupted(signal) => 128 + (*signal as u8 & 0x7f),
        }
    }
}
