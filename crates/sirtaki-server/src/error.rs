//! The crate's one error type.

use std::time::Duration;

use sirtaki_comm::CommError;

/// Why a request failed or a service ended.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ServerError {
    /// A connection failed.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// A server refused a request.
    #[error("a server refused {operation}: {problem}")]
    Refused {
        /// What was asked.
        operation: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The call cannot be right. Nothing was sent.
    #[error("{problem}")]
    Invalid {
        /// What is wrong with it.
        problem: String,
    },
    /// The service is over.
    #[error("the parameter servers have ended: {reason}")]
    Ended {
        /// Why.
        reason: String,
    },
    /// The thread of a server or of the head panicked, as a rule of the user's may.
    #[error("the thread {who} panicked: {message}")]
    Panicked {
        /// The thread's name.
        who: &'static str,
        /// What the panic said.
        message: String,
    },
    /// Somebody is there and does not answer.
    #[error("{who} made no progress in {operation} for {:.1} s", waited.as_secs_f64())]
    Timeout {
        /// Who is waited for.
        who: String,
        /// What was asked.
        operation: String,
        /// How long nothing happened.
        waited: Duration,
    },
}

impl ServerError {
    /// What the user can do about it, where we know.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            ServerError::Comm(error) => error.hint(),
            ServerError::Ended { .. } => {
                Some("look at what the servers and the head have printed; go on from a checkpoint")
            }
            ServerError::Timeout { .. } => Some(
                "see what the slowest worker is doing, allow a larger delay, or raise the limit with SIRTAKI_TIMEOUT (seconds)",
            ),
            ServerError::Panicked { .. } => Some("see whether a rule of your own panics; otherwise, report this"),
            ServerError::Refused { .. } | ServerError::Invalid { .. } => None,
        }
    }
}
