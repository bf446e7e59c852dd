//! What is known of a member and of a round.

use std::time::Instant;

use super::MemberId;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Its process runs, and it has not asked for anything.
    Starting,
    /// It takes part in the current round, whose other members it may have met.
    In { joined: bool },
    /// It waits for the next round; `knew` says whether it was in the current one.
    Asking { since: Instant, knew: bool },
    /// It may leave.
    Dismissed { since: Instant },
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: MemberId,
    pub(super) seat: usize,
    pub(super) state: State,
    /// Whether it has the state of the training.
    pub(super) holds: bool,
    /// Whether it takes part in no further round.
    pub(super) leaving: bool,
    /// Whether another member waited for it in vain.
    pub(super) blamed: bool,
    /// Whether it is being ended.
    pub(super) killed: bool,
}

impl Member {
    pub(super) fn new(id: MemberId, seat: usize) -> Self {
        Self { id, seat, state: State::Starting, holds: false, leaving: false, blamed: false, killed: false }
    }

    pub(super) fn is_asking(&self) -> bool {
        self.asking_since().is_some()
    }

    pub(super) fn asking_since(&self) -> Option<Instant> {
        match self.state {
            State::Asking { since, .. } => Some(since),
            _ => None,
        }
    }

    /// Whether it waits for another round than the one it was in last.
    pub(super) fn knew(&self) -> bool {
        matches!(self.state, State::Asking { knew: true, .. })
    }

    /// Whether it has come as far as to ask for a round.
    pub(super) fn is_present(&self) -> bool {
        matches!(self.state, State::In { .. } | State::Asking { .. })
    }
}

#[derive(Debug, Default)]
pub(super) struct Round {
    /// From one; zero before the first.
    pub(super) number: u64,
    /// In the order of their ranks.
    pub(super) members: Vec<MemberId>,
    /// How many of them have met the others.
    pub(super) met: usize,
    /// One of them was gone before all had met.
    pub(super) void: bool,
    /// One of them is gone, or has left it.
    pub(super) broken: bool,
    /// They know that they are wanted in another round.
    pub(super) interrupted: bool,
}

impl Round {
    /// Whether all members have met.
    pub(super) fn has_formed(&self) -> bool {
        self.met == self.members.len()
    }
}
