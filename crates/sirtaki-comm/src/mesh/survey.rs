//! Looking round while waiting: whether any rank died, raised an alarm, calls something else, or is to blame for the
//! silence.
//!
//! A rank that has waited for a while tells all others in which call and for whom. So ranks that wait for each other in
//! different calls find out soon, and when the time limit is reached every rank can follow the chain of waits to its
//! end: all name the rank that really is silent instead of their neighbour.

use std::time::{Duration, Instant};

use crate::{CommError, Rank, communicator::Blame, link::LinkError};

use super::{
    Call, Mesh,
    frame::{Data, Farewell, Frame, Waiting},
    peer::{Peer, Trouble},
    wait::{Awaited, Wait},
};

/// A process may leave without a word right after its last call; ranks that do not need it finish within this time.
const GRACE: Duration = Duration::from_millis(100);

/// How long a wait lasts before it is worth a message. From half the limit on, notices are repeated.
const FIRST_NOTICE: Duration = Duration::from_millis(200);

/// What went wrong, and with which peer.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) rank: Rank,
    pub(super) trouble: Trouble,
}

/// The rank at the end of the chain of waits that starts with `awaited`: `told` says whom a rank waits for, and `None`
/// for a silent one. If there are several, the lowest; in a circle, the first of `awaited`.
fn culprit(me: Rank, awaited: &[Rank], size: usize, told: impl Fn(Rank) -> Option<[Option<Rank>; 2]>) -> Rank {
    let mut reached = vec![false; size];
    let mut open = awaited.to_vec();
    let mut silent = None;
    while let Some(rank) = open.pop() {
        if rank >= size || rank == me || std::mem::replace(&mut reached[rank], true) {
            continue;
        }
        match told(rank) {
            Some(next) => open.extend(next.into_iter().flatten()),
            None => silent = Some(silent.map_or(rank, |other: Rank| other.min(rank))),
        }
    }
    silent.or(awaited.iter().copied().min()).unwrap_or(me)
}

/// Whether a call's number comes after another's; numbers wrap round to zero.
pub(super) fn is_later(sequence: u32, than: u32) -> bool {
    let ahead = sequence.wrapping_sub(than) & !Call::POINT;
    ahead != 0 && ahead < Call::POINT / 2
}

impl Mesh {
    /// Looks at the links of `ranks`, or at all, and at the clock.
    pub(super) fn survey(
        &mut self,
        wait: &mut Wait,
        awaited: Awaited,
        call: &Call,
        now: Instant,
        ranks: Option<&[Rank]>,
    ) -> Result<(), Failure> {
        let me = self.group.rank();
        self.stopper.check().map_err(|error| Failure { rank: me, trouble: Trouble::Error(error) })?;
        for rank in 0..self.peers.len() {
            if ranks.is_none_or(|ranks| ranks.contains(&rank)) {
                self.look_at(rank, wait, awaited, call, now).map_err(|trouble| Failure { rank, trouble })?;
            }
        }
        if ranks.is_none() {
            wait.surveyed = Some(now);
        }
        self.look_at_clock(wait, awaited, call, now);
        Ok(())
    }

    fn look_at(
        &mut self,
        rank: Rank,
        wait: &mut Wait,
        awaited: Awaited,
        call: &Call,
        now: Instant,
    ) -> Result<(), Trouble> {
        let sequence = self.sequence;
        let Some(peer) = self.peers[rank].as_mut() else { return Ok(()) };
        // It may wait for us while we wait for it, because its call is another one.
        if let Some((notice, _)) = peer.inbox.waiting
            && call.differs(notice.sequence, notice.signature)
        {
            let Waiting { sequence, signature, .. } = notice;
            return Err(Trouble::Differs { theirs: Data { sequence, signature, step: 0, length: 0 }, expected: None });
        }
        if awaited.receive == Some(rank) {
            // What it sent before it died still counts, so the next try decides.
            if let Err(error) = peer.link.check() {
                wait.doom = Some(Failure { rank, trouble: error.into() });
            }
            return Ok(());
        }
        if peer.left {
            return if awaited.includes(rank) { Err(Trouble::Farewell(Farewell::Leave)) } else { Ok(()) };
        }
        let looked = match peer.look() {
            Ok(()) => peer.link.check().map_err(Trouble::from),
            trouble => trouble,
        };
        match looked {
            Err(Trouble::Farewell(Farewell::Leave)) if !awaited.includes(rank) => {
                peer.left = true;
                Ok(())
            }
            // It is about a call we have not reached. Our present one can still be completed, and then we join.
            Err(Trouble::Farewell(
                Farewell::Dispute { sequence: theirs, .. } | Farewell::Alarm { sequence: theirs, .. },
            )) if call.sequence & Call::POINT == 0 && is_later(theirs, sequence) && !awaited.includes(rank) => {
                peer.hung.get_or_insert(now);
                Ok(())
            }
            Err(Trouble::Link(error)) => {
                let since = *peer.hung.get_or_insert(now);
                // With a payload still unread it may have done its part and left; ranks that need more will find out.
                let over = peer.inbox.pending.is_none() && now - since >= GRACE;
                if over || awaited.includes(rank) { Err(error.into()) } else { Ok(()) }
            }
            Err(trouble) => Err(trouble),
            Ok(()) => match peer.inbox.pending {
                Some(data) if call.differs(data.sequence, data.signature) => {
                    Err(Trouble::Differs { theirs: data, expected: None })
                }
                _ => Ok(()),
            },
        }
    }

    /// Tells others after some time, and prepares to give up when the limit is reached.
    fn look_at_clock(&mut self, wait: &mut Wait, awaited: Awaited, call: &Call, now: Instant) {
        let since = *wait.started.get_or_insert(now);
        let waited = now - since;
        if let Some(observer) = self.observer.as_ref().filter(|_| waited >= FIRST_NOTICE.min(self.timeout / 16)) {
            observer.waits(&self.in_job(awaited), since);
        }
        if waited >= self.timeout && wait.doom.is_none() {
            let error = self.timed_out(awaited, call, now);
            wait.doom = Some(Failure { rank: self.group.rank(), trouble: Trouble::Error(error) });
        }
        if self.is_due(waited, wait.told, now) {
            wait.told = Some(now);
            let ranks = [awaited.receive, awaited.send];
            let notice = Waiting { sequence: call.sequence, ranks, signature: call.signature };
            // A link with a payload half sent cannot take a notice.
            self.notify_all(notice, awaited.send);
        }
    }

    /// Whether others are to be told of a wait of this length, which was last reported at `told`.
    pub(super) fn is_due(&self, waited: Duration, told: Option<Instant>, now: Instant) -> bool {
        let asked = |peer: &Peer| peer.inbox.waiting.is_some_and(|(_, heard)| self.is_fresh(heard, now));
        let asked = waited >= self.timeout / 16 && self.peers.iter().flatten().any(asked);
        let again = waited >= self.timeout / 2 || asked;
        match told {
            None => again || waited >= FIRST_NOTICE,
            Some(then) => again && now - then >= self.timeout / 8,
        }
    }

    /// Tells all ranks but `except`.
    pub(super) fn notify_all(&mut self, notice: Waiting, except: Option<Rank>) {
        for (rank, peer) in self.peers.iter_mut().enumerate() {
            if let Some(peer) = peer.as_mut().filter(|_| except != Some(rank)) {
                peer.notify(&Frame::Waiting(notice));
            }
        }
    }

    /// Notices are repeated every eighth of the limit; one that is not repeated no longer holds.
    fn is_fresh(&self, heard: Instant, now: Instant) -> bool {
        now.saturating_duration_since(heard) < self.timeout / 4 + GRACE
    }

    /// The rank at the end of the chain of waits, as far as ranks have reported theirs.
    pub(super) fn silent_rank(&self, awaited: Awaited, now: Instant) -> Rank {
        let told = |rank: Rank| {
            let (notice, heard) = self.peers[rank].as_ref()?.inbox.waiting?;
            self.is_fresh(heard, now).then_some(notice.ranks)
        };
        let awaited: Vec<Rank> = [awaited.receive, awaited.send].into_iter().flatten().collect();
        culprit(self.group.rank(), &awaited, self.peers.len(), told)
    }

    /// The awaited ranks by their ranks in the job.
    fn in_job(&self, awaited: Awaited) -> Vec<Rank> {
        let awaited = [awaited.receive, awaited.send].into_iter().flatten();
        awaited.map(|rank| self.group.world_rank(rank)).collect()
    }

    fn timed_out(&self, awaited: Awaited, call: &Call, now: Instant) -> CommError {
        let blame = self.observer.as_ref().and_then(|observer| observer.blame(&self.in_job(awaited)));
        let (rank, who) = match blame {
            Some(Blame::Told(error)) => return error,
            Some(Blame::Silent { rank, who }) => (rank, who),
            None => {
                let rank = self.silent_rank(awaited, now);
                (self.group.world_rank(rank), self.group.describe(rank))
            }
        };
        // The limit rather than the measured time, so that all ranks say the same.
        CommError::Timeout { rank, who, operation: call.signature.describe(), waited: self.timeout }
    }

    /// The error for a peer whose link ended with `error` and without a word.
    pub(super) fn lost(&self, rank: Rank, error: &LinkError) -> CommError {
        CommError::PeerLost {
            rank: self.group.world_rank(rank),
            who: self.group.describe(rank),
            how: error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::culprit;

    #[test]
    fn the_end_of_the_chain_is_blamed() {
        // 0 waits for 1, 1 for 3, 3 is silent.
        let told = |rank| [Some([Some(1), None]), Some([Some(3), None]), Some([Some(1), None]), None][rank];
        assert_eq!(culprit(0, &[1], 4, told), 3);
        assert_eq!(culprit(2, &[1], 4, told), 3);
        assert_eq!(culprit(1, &[3], 4, told), 3);
    }

    #[test]
    fn circles_end_and_unknown_ranks_are_ignored() {
        let circle = |rank: usize| Some([Some((rank + 1) % 3), Some(77)]);
        assert_eq!(culprit(0, &[1], 3, circle), 1);
        assert_eq!(culprit(0, &[2, 1], 3, |_| None), 1);
    }
}
