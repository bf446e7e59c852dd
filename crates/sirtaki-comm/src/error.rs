//! The crate's one error type. Every variant that blames a rank names it.

use std::{io, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::Rank;

/// Why a collective, a rendezvous or a connection failed. Ranks are ranks of the whole job.
///
/// All but [`CommError::Invalid`] leave the communicator unusable: every later call returns the same error.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommError {
    /// A process died, left the group or closed its connection.
    #[error("{who} is gone: {how}")]
    PeerLost {
        /// The rank that is gone.
        rank: Rank,
        /// The rank with host and process, for people.
        who: String,
        /// What was observed.
        how: String,
    },
    /// A process is there, but its part of the operation did not come.
    #[error("{who} made no progress in {operation} for {:.1} s", waited.as_secs_f64())]
    Timeout {
        /// The rank that is waited for.
        rank: Rank,
        /// The rank with host and process, for people.
        who: String,
        /// The operation of the rank that noticed.
        operation: String,
        /// How long nothing happened.
        waited: Duration,
    },
    /// Ranks called different things.
    #[error("ranks disagree: {differences}")]
    Mismatch {
        /// The rank that differs from the others, or the lower one of two.
        rank: Rank,
        /// Who called what.
        differences: String,
    },
    /// This process or another one asked for an end.
    #[error("stopped: {reason}")]
    Stopped {
        /// Why.
        reason: String,
    },
    /// A peer does not belong to this job, or we do not belong to its job.
    #[error("connection with {peer} refused: {reason}")]
    Refused {
        /// Address or rank of the peer.
        peer: String,
        /// What was wrong.
        reason: String,
    },
    /// The arguments of this call cannot be right. Nothing was sent; the communicator stays usable.
    #[error("invalid call: {problem}")]
    Invalid {
        /// What is wrong with them.
        problem: String,
    },
    /// Something this machine does not have.
    #[error("{what} is not available: {reason}")]
    Unavailable {
        /// What was asked for.
        what: String,
        /// Why it is not available.
        reason: String,
    },
    /// A GPU, its driver or its library failed.
    #[error("{problem}")]
    Device {
        /// What was tried and what the driver or library said.
        problem: String,
    },
    /// The operating system refused.
    #[error("{action}: {source}")]
    Io {
        /// What was being done, with the address, file or rank.
        action: String,
        /// The system's answer.
        source: Arc<io::Error>,
    },
}

impl CommError {
    /// A [`CommError::Io`] that says what was being done.
    pub fn io(action: impl Into<String>, source: impl Into<io::Error>) -> Self {
        CommError::Io { action: action.into(), source: Arc::new(source.into()) }
    }

    /// The rank to blame, where there is one.
    pub fn rank(&self) -> Option<Rank> {
        match self {
            CommError::PeerLost { rank, .. } | CommError::Timeout { rank, .. } | CommError::Mismatch { rank, .. } => {
                Some(*rank)
            }
            _ => None,
        }
    }

    /// What the user can do about it, where we know.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            CommError::PeerLost { .. } => Some("look at the output of that rank; the others only followed it"),
            CommError::Timeout { .. } => {
                Some("see what that rank is doing, or raise the limit with SIRTAKI_TIMEOUT (seconds)")
            }
            CommError::Mismatch { .. } => Some("all ranks must call the same operations in the same order"),
            CommError::Refused { .. } => {
                Some("all processes of a job need the same SIRTAKI_SECRET and the same version of sirtaki")
            }
            _ => None,
        }
    }

    /// The form in which a failure is reported to the other ranks.
    pub fn to_alarm(&self) -> Alarm {
        match self.clone() {
            CommError::PeerLost { rank, who, how } => Alarm::PeerLost { rank, who, how },
            CommError::Timeout { rank, who, operation, waited } => Alarm::Timeout { rank, who, operation, waited },
            CommError::Mismatch { rank, differences } => Alarm::Mismatch { rank, differences },
            CommError::Stopped { reason } => Alarm::Stopped { reason },
            other => Alarm::Stopped { reason: other.to_string() },
        }
    }
}

/// A failure on its way to the other ranks, so that all of them report the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Alarm {
    PeerLost { rank: Rank, who: String, how: String },
    Timeout { rank: Rank, who: String, operation: String, waited: Duration },
    Mismatch { rank: Rank, differences: String },
    Stopped { reason: String },
}

impl Alarm {
    /// Most bytes of an encoded alarm; the sender cuts longer texts.
    pub const LIMIT: usize = 2048;

    /// The alarm as bytes, never more than [`Alarm::LIMIT`].
    pub fn encode(&self) -> Vec<u8> {
        match postcard::to_stdvec(self) {
            Ok(bytes) if bytes.len() <= Self::LIMIT => bytes,
            _ => {
                let short = CommError::from(self.clone()).to_string().chars().take(400).collect();
                postcard::to_stdvec(&Alarm::Stopped { reason: short }).unwrap_or_default()
            }
        }
    }

    /// The alarm in `bytes`, if they are a valid one.
    pub fn decode(bytes: &[u8]) -> Option<Alarm> {
        (bytes.len() <= Self::LIMIT).then(|| postcard::from_bytes(bytes).ok()).flatten()
    }
}

impl From<Alarm> for CommError {
    fn from(alarm: Alarm) -> Self {
        match alarm {
            Alarm::PeerLost { rank, who, how } => CommError::PeerLost { rank, who, how },
            Alarm::Timeout { rank, who, operation, waited } => CommError::Timeout { rank, who, operation, waited },
            Alarm::Mismatch { rank, differences } => CommError::Mismatch { rank, differences },
            Alarm::Stopped { reason } => CommError::Stopped { reason },
        }
    }
}
