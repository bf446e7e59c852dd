//! Who waits for whom across the layers of a communicator.
//!
//! A communicator made of several others has ranks that wait in different ones: one in the shared memory of its host for a
//! second, which waits in a group over TCP for a third, which is silent. Each layer alone would name the second. So
//! layers tell their waits to an observer, which passes them on to all ranks, and ask it in the end.

use std::time::Instant;

use crate::{CommError, Rank};

/// What a rank is to report whose wait has reached its limit.
#[derive(Debug, Clone)]
pub enum Blame {
    /// This rank of the job is at the end of the chain of waits: nobody knows it to wait for another.
    Silent {
        /// The rank.
        rank: Rank,
        /// The rank with host and process, for people.
        who: String,
    },
    /// Another rank has failed and has said why.
    Told(CommError),
}

/// Hears of the waits of one rank in several communicators. Ranks are those of the job.
pub trait WaitObserver: Send + Sync {
    /// This rank waits for these, since then. Called again and again while it does.
    fn waits(&self, awaited: &[Rank], since: Instant);

    /// Whom to blame for a wait for these; nothing where the observer cannot know more than the layer itself.
    fn blame(&self, awaited: &[Rank]) -> Option<Blame>;
}
