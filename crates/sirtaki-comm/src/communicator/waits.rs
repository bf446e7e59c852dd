//! Who waits for whom across the layers of a communicator.
//!
//! Ranks of a communicator made of several others may wait in different ones: one in the shared memory of its host for
//! a second, which waits in a group over TCP for a third, which is silent. Each layer alone would name the second. So
//! layers report their waits to an observer, which passes them on to all ranks, and ask it in the end.

use std::time::Instant;

use crate::{CommError, Rank};

/// What a rank whose wait has reached its limit is to report.
#[derive(Debug, Clone)]
pub enum Blame {
    /// This rank of the job is at the end of the chain of waits: it is not known to wait for another.
    Silent {
        /// The rank.
        rank: Rank,
        /// The rank with host and process, for people.
        who: String,
    },
    /// Another rank has failed and has said why.
    Told(CommError),
}

/// Is told of the waits of one rank in several communicators. Ranks are those of the job.
pub trait WaitObserver: Send + Sync {
    /// This rank has been waiting for these since that time. Called again and again while it waits.
    fn waits(&self, awaited: &[Rank], since: Instant);

    /// Whom to blame for a wait for these ranks; `None` where the observer cannot know more than the layer itself.
    fn blame(&self, awaited: &[Rank]) -> Option<Blame>;
}
