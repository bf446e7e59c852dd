//! The crate's one error type.

use std::path::PathBuf;

use sirtaki_comm::CommError;

/// Why a request was not done, or an engine could not start.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EngineError {
    /// Ranks asked for different things under one name. The text is the same on every rank; the engine stays usable.
    #[error("ranks disagree: {0}")]
    Mismatch(String),
    /// This rank's request cannot be right. No other rank was asked; the engine stays usable.
    #[error("\"{tensor}\": {problem}")]
    Invalid {
        /// The tensor's name.
        tensor: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The engine has ended, on all ranks, for this reason.
    #[error("\"{tensor}\" was not done: {reason}")]
    Failed {
        /// The tensor's name.
        tensor: String,
        /// What happened, the same text on every rank.
        reason: CommError,
    },
    /// A timeline could not be started. The engine stays usable.
    #[error("the timeline {} cannot be written: {problem}", path.display())]
    Timeline {
        /// The file.
        path: PathBuf,
        /// Why, and what to do.
        problem: String,
    },
    /// A communicator could not be made or used.
    #[error(transparent)]
    Comm(#[from] CommError),
}

impl EngineError {
    /// The rank to blame, where there is one.
    pub fn rank(&self) -> Option<sirtaki_comm::Rank> {
        match self {
            EngineError::Failed { reason, .. } | EngineError::Comm(reason) => reason.rank(),
            _ => None,
        }
    }

    /// Whether the engine that gave this error can still be used.
    pub fn is_recoverable(&self) -> bool {
        matches!(self, EngineError::Mismatch(_) | EngineError::Invalid { .. } | EngineError::Timeline { .. })
    }
}
