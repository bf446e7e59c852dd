//! What is decided about members, from what, and within which limits.

use std::{fmt, time::Duration};

use crate::words::duration_in_words;

/// A process that never has the number of another.
pub type MemberId = u64;

/// What an elastic job may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Fewest members of a round.
    pub min: usize,
    /// Most members of a round.
    pub max: usize,
    /// How long there may be fewer than the fewest, and how long a member may take to come to the next round.
    pub wait: Duration,
    /// How long a member may take to come to the next round if others have waited for it in vain already.
    pub patience: Duration,
    /// How long the first round waits for processes that have been started.
    pub start: Duration,
    /// How often members may change, if that is limited.
    pub resets: Option<u32>,
    /// For how long a host is avoided after its first failure, and at most, after many.
    pub cooldown: (Duration, Duration),
}

/// What has to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Start a process on this seat.
    Start {
        /// Its number.
        member: MemberId,
        /// Where it sits.
        seat: usize,
    },
    /// These members work together now, in the order of their ranks.
    Publish {
        /// The number of the round, from one.
        round: u64,
        /// Who takes part.
        members: Vec<MemberId>,
    },
    /// Not all members will come to this round.
    Void {
        /// Which one.
        round: u64,
    },
    /// The members of this round are wanted in another one, at their next commit.
    Interrupt {
        /// Which one.
        round: u64,
    },
    /// This member may leave: it has handed over.
    Dismiss {
        /// Which one.
        member: MemberId,
    },
    /// This member has not come back, and is ended.
    Kill {
        /// Which one.
        member: MemberId,
    },
    /// The job is over.
    End(Reason),
}

/// Why a job cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Too few members for too long.
    TooFew {
        /// How many there are.
        left: usize,
        /// How many there must be.
        min: usize,
        /// For how long.
        waited: Duration,
    },
    /// Members changed more often than allowed.
    Resets(u32),
    /// Rounds do not come about.
    Unmet(u32),
    /// Nobody is left who has the state of the training.
    StateLost,
    /// All that have the state of the training were told to leave.
    AllLeave,
    /// Nobody is left.
    Nobody,
}

/// What a member says when it asks for the next round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ask {
    /// The round that it was in; 0 for none.
    pub after: u64,
    /// Whether it has the state of the training.
    pub holds: bool,
    /// Whether it wants to leave.
    pub leaving: bool,
    /// The rank that it waited for in vain.
    pub blames: Option<usize>,
}

/// Follows "the job ends: ".
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::TooFew { left, min, waited } => {
                let (waited, are) = (duration_in_words(*waited), if *left == 1 { "is" } else { "are" });
                write!(f, "there {are} {left} of at least {min} workers, and no more have come for {waited}")
            }
            Reason::Resets(limit) => write!(f, "workers have changed more than {limit} times, the limit"),
            Reason::Unmet(count) => write!(f, "in {count} rounds in a row the workers did not meet"),
            Reason::StateLost => f.write_str("all workers that had the state of the training are lost"),
            Reason::AllLeave => f.write_str("all workers that have the state of the training were told to leave"),
            Reason::Nobody => f.write_str("no worker is left"),
        }
    }
}
