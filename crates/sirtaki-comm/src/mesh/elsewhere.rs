//! Waits in other communicators over the same ranks, reported and judged over the links of this one; see
//! [`crate::communicator::WaitObserver`].

use std::time::Instant;

use crate::{DType, Rank, communicator::Blame, signature::Kind, signature::Signature};

use super::{
    Call, Mesh,
    frame::{Farewell, Waiting},
    peer::Trouble,
    wait::Awaited,
};

/// The wait that was last reported.
#[derive(Debug)]
pub(super) struct Told {
    /// When it began.
    since: Instant,
    /// When others were last told of it.
    told: Option<Instant>,
    /// When it was last considered.
    looked: Instant,
}

impl Mesh {
    /// Tells all others, now and then, that this rank has waited for these ranks since then, in another communicator.
    pub fn tell_wait(&mut self, awaited: &[Rank], since: Instant) {
        let now = Instant::now();
        let mut wait = self.elsewhere.take().filter(|wait| wait.since == since);
        if self.poison.is_none() && wait.as_ref().is_none_or(|wait| now - wait.looked >= self.timeout / 32) {
            let told = wait.and_then(|wait| wait.told);
            self.listen();
            let due = self.is_due(now - since, told, now);
            if due {
                // No call has this number, so nobody takes it for one that differs.
                let signature = Signature::new(Kind::Barrier, DType::U8, 0);
                self.notify_all(Waiting { sequence: Call::POINT, ranks: pair(awaited), signature }, None);
            }
            wait = Some(Told { since, told: if due { Some(now) } else { told }, looked: now });
        }
        self.elsewhere = wait;
    }

    /// Whom to blame for a wait for these ranks in another communicator.
    pub fn blame(&mut self, awaited: &[Rank]) -> Blame {
        if let Some(error) = &self.poison {
            return Blame::Told(error.clone());
        }
        if let Some(told) = self.listen() {
            return told;
        }
        let [receive, send] = pair(awaited);
        let rank = self.silent_rank(Awaited { send, receive }, Instant::now());
        Blame::Silent { rank: self.group.world_rank(rank), who: self.group.describe(rank) }
    }

    /// Reads what others have said; returns an alarm if there is one.
    fn listen(&mut self) -> Option<Blame> {
        self.peers.iter_mut().flatten().fold(None, |first, peer| match peer.look() {
            Err(Trouble::Farewell(Farewell::Alarm { alarm, .. })) => first.or(Some(Blame::Told(alarm.into()))),
            _ => first,
        })
    }
}

fn pair(awaited: &[Rank]) -> [Option<Rank>; 2] {
    [awaited.first().copied(), awaited.get(1).copied()]
}
