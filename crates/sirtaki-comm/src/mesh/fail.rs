//! Failing together: the first error is reported to all ranks, so that all give the same one.
//!
//! Where calls differ, no single rank knows which one is wrong. So every rank states its own call, waits a moment for
//! the statements of the others, and judges by the same rule: the minority is to blame.

use std::{
    io::IoSlice,
    thread,
    time::{Duration, Instant},
};

use crate::{CommError, Group, Rank, link::LinkError, signature::Signature};

use super::{
    Call, Mesh,
    exchange::{Departure, Incoming},
    frame::{Data, FAREWELL_LIMIT, Farewell},
    peer::{End, Peer, Trouble},
    survey::Failure,
};

/// How long to try to send a farewell.
const SPEECH: Duration = Duration::from_millis(200);
/// How long to wait for the statements of others.
const HEARING: Duration = Duration::from_secs(1);
/// How much of a payload a link may have on its way without having said so (a TLS link encrypts ahead).
const AHEAD: usize = 64 << 10;
/// The pause between two tries of either.
const PAUSE: Duration = Duration::from_millis(1);

enum Verdict {
    Error(CommError),
    /// Calls differ; the error in case the others' statements settle nothing.
    Dispute(CommError),
}

/// The `parts` without their first `done` bytes.
fn after<'a>(parts: [&'a [u8]; 3], mut done: usize) -> [IoSlice<'a>; 3] {
    parts.map(|part| {
        let skipped = done.min(part.len());
        done -= skipped;
        IoSlice::new(&part[skipped..])
    })
}

impl Mesh {
    /// Ends the use of this mesh: finds the true reason, tells all ranks, and returns it.
    pub(super) fn fail(
        &mut self,
        call: &Call,
        failure: Failure,
        departure: Option<&Departure<'_>>,
        incoming: Option<&Incoming<'_>>,
    ) -> CommError {
        if let Some(incoming) = incoming.filter(|incoming| incoming.started) {
            let inbox = &mut self.peer(incoming.rank).inbox;
            inbox.ending = true;
            inbox.keep(incoming.arrival.recent(FAREWELL_LIMIT));
        }
        let unsent = departure.map(|departure| (departure.rank, departure.rest()));
        let error = match self.judge(call, failure) {
            Verdict::Error(error) => {
                let open = if call.sequence & Call::POINT == 0 { call.sequence } else { self.next() };
                self.say(&Farewell::Alarm { sequence: open, alarm: error.to_alarm() }, unsent);
                error
            }
            Verdict::Dispute(error) => {
                self.say(&Farewell::Dispute { sequence: call.sequence, signature: call.signature }, unsent);
                self.hear(call, error)
            }
        };
        self.poison = Some(error.clone());
        error
    }

    /// Ends the use of this mesh between two calls, for a reason that lies elsewhere.
    pub fn abort(&mut self, error: &CommError) {
        if self.poison.is_none() {
            self.say(&Farewell::Alarm { sequence: self.next(), alarm: error.to_alarm() }, None);
            self.poison = Some(error.clone());
        }
    }

    fn judge(&mut self, call: &Call, failure: Failure) -> Verdict {
        let Failure { rank, trouble } = failure;
        match trouble {
            Trouble::Error(error @ CommError::Timeout { .. }) => self.rumour(call).unwrap_or(Verdict::Error(error)),
            Trouble::Error(error) => Verdict::Error(error),
            Trouble::Garbage(error) => Verdict::Error(self.lost(rank, &LinkError::Closed(error.to_string()))),
            Trouble::Farewell(words) => self.heed(call, rank, words),
            Trouble::Link(error) => match self.peer(rank).last_words() {
                End::Words(words) => self.heed(call, rank, words),
                End::Cut | End::Open => self.rumour(call).unwrap_or_else(|| Verdict::Error(self.lost(rank, &error))),
            },
            Trouble::Differs { theirs, expected } => {
                let error = self.difference(call, rank, theirs, expected);
                if call.differs(theirs.sequence, theirs.signature) {
                    Verdict::Dispute(error)
                } else {
                    Verdict::Error(error)
                }
            }
        }
    }

    /// What others have already reported: all should give the same reason.
    fn rumour(&mut self, call: &Call) -> Option<Verdict> {
        let heard = (0..self.peers.len()).find_map(|rank| match self.peers[rank].as_mut()?.look() {
            Err(Trouble::Farewell(words)) if words != Farewell::Leave => Some((rank, words)),
            _ => None,
        });
        heard.map(|(rank, words)| self.heed(call, rank, words))
    }

    /// What the last words of `rank` mean for us.
    fn heed(&self, call: &Call, rank: Rank, words: Farewell) -> Verdict {
        match words {
            Farewell::Alarm { alarm, .. } => Verdict::Error(alarm.into()),
            Farewell::Leave => Verdict::Error(self.lost(rank, &LinkError::Closed("it left the group".into()))),
            Farewell::Dispute { sequence, signature } => {
                let theirs = Data { sequence, signature, step: 0, length: 0 };
                Verdict::Dispute(self.difference(call, rank, theirs, None))
            }
        }
    }

    /// The error for a payload of `rank` that is not the one our call needs.
    fn difference(&self, call: &Call, rank: Rank, theirs: Data, expected: Option<u64>) -> CommError {
        let me = self.group.rank();
        if let Err(error) = Signature::compare(&self.group, (me, call.signature), (rank, theirs.signature)) {
            return error;
        }
        let (they, we) = (self.group.describe(rank), self.group.describe(me));
        let operation = call.signature.describe();
        let differences = match expected {
            Some(expected) if expected != theirs.length => {
                format!("in {operation}, {they} sends {} bytes where {we} expects {expected}", theirs.length)
            }
            _ => format!(
                "{they} is in its call number {} and {we} in its call number {}, both {operation}",
                theirs.sequence & !Call::POINT,
                call.sequence & !Call::POINT
            ),
        };
        CommError::Mismatch { rank: self.group.world_rank(rank), differences }
    }

    /// Sends a farewell where possible and closes all links for sending. `unsent` is the rest of a payload: if a
    /// farewell could be taken for it, the true rest goes first.
    pub(super) fn say(&mut self, words: &Farewell, unsent: Option<(Rank, &[u8])>) {
        let words = words.encode(&self.marker);
        let deadline = Instant::now() + SPEECH;
        let mut progress = vec![0; self.peers.len()];
        let mut open: Vec<Rank> = (0..self.peers.len()).filter(|&rank| self.peers[rank].is_some()).collect();
        loop {
            open.retain(|&rank| {
                let Some(peer) = &mut self.peers[rank] else { return false };
                let rest = match unsent {
                    Some((to, rest)) if to == rank && rest.len() <= words.len() + AHEAD => rest,
                    _ => &[],
                };
                let Peer { link, head, .. } = peer;
                let parts = [head.rest(), rest, words.as_slice()];
                let total: usize = parts.iter().map(|part| part.len()).sum();
                match link.push(&after(parts, progress[rank])) {
                    Ok(count) => progress[rank] += count,
                    Err(_) => return false,
                }
                progress[rank] < total
            });
            if open.is_empty() || Instant::now() >= deadline {
                break;
            }
            thread::sleep(PAUSE);
        }
        self.peers.iter_mut().flatten().for_each(|peer| peer.link.close());
    }

    /// Waits for the statements of the others and judges.
    fn hear(&mut self, call: &Call, otherwise: CommError) -> CommError {
        let deadline = Instant::now() + HEARING;
        let mut calls: Vec<(Rank, u32, Signature)> = vec![(self.group.rank(), call.sequence, call.signature)];
        let mut open: Vec<Rank> = (0..self.peers.len()).filter(|&rank| self.peers[rank].is_some()).collect();
        let mut alarm = None;
        loop {
            open.retain(|&rank| match self.peers[rank].as_mut().map(Peer::last_words) {
                Some(End::Words(Farewell::Dispute { sequence, signature })) => {
                    calls.push((rank, sequence, signature));
                    false
                }
                Some(End::Words(Farewell::Alarm { alarm: raised, .. })) => {
                    alarm.get_or_insert(raised);
                    false
                }
                Some(End::Open) => true,
                _ => false,
            });
            if open.is_empty() || alarm.is_some() || Instant::now() >= deadline {
                break;
            }
            thread::sleep(PAUSE);
        }
        match alarm {
            Some(alarm) => alarm.into(),
            None => sentence(&self.group, calls).unwrap_or(otherwise),
        }
    }
}

/// The error that follows from the calls made, if calls with the same number differ.
fn sentence(group: &Group, mut calls: Vec<(Rank, u32, Signature)>) -> Option<CommError> {
    calls.sort_by_key(|&(rank, ..)| rank);
    let votes = |sequence: u32| calls.iter().filter(|&&(_, other, _)| other == sequence).count();
    let common = calls.iter().map(|&(_, sequence, _)| sequence).max_by_key(|&sequence| (votes(sequence), !sequence))?;
    calls.retain(|&(_, sequence, _)| sequence == common);
    let members = calls.iter().map(|&(rank, ..)| group.members()[rank].clone()).collect();
    let signatures: Vec<Signature> = calls.iter().map(|&(.., signature)| signature).collect();
    Signature::compare_all(&Group::new(0, members), &signatures).err()
}
