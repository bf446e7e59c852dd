//! What this rank's messages wait for: for the deadlock proof, and for rank 0, which explains long waits.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use sirtaki_comm::Rank;

use super::{
    Post, Transfer,
    state::{Peer, State},
};
use crate::{
    decide::{
        message::encode,
        waits::{MessageState, MessageWait},
    },
    runtime::shared::{Shared, now},
};

/// How many waits a report names.
const WAITS: usize = 3;
/// How often a long wait is reported again, so that what is no longer reported is over.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a report counts.
const COUNTS: Duration = Duration::from_secs(3);

/// What ranks wait for, on rank 0.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    of: BTreeMap<Rank, (MessageWait, Duration)>,
    /// When this rank last reported, and whether it reported a wait.
    reported: (Duration, bool),
}

impl Reports {
    pub(super) fn note(&mut self, rank: Rank, wait: Option<MessageWait>) {
        match wait {
            Some(wait) => drop(self.of.insert(rank, (wait, now()))),
            None => drop(self.of.remove(&rank)),
        }
    }

    /// What a rank waits for.
    pub(crate) fn wait(&self, rank: Rank) -> Option<MessageWait> {
        let (wait, since) = self.of.get(&rank)?;
        (now().saturating_sub(*since) < COUNTS).then(|| wait.clone())
    }

    /// The rank that has waited longest, if that is at least `limit`.
    pub(crate) fn longest(&self, limit: Duration) -> Option<Rank> {
        let waits = self.of.keys().filter_map(|&rank| Some((rank, self.wait(rank)?)));
        let longest = waits.max_by_key(|(rank, wait)| (wait.waited, std::cmp::Reverse(*rank)));
        longest.filter(|(_, wait)| wait.waited >= limit).map(|(rank, _)| rank)
    }
}

fn wait(job: &Transfer, now: Duration) -> MessageWait {
    let Transfer { label, tag, sends, peer, submitted, .. } = job;
    let waited = now.saturating_sub(*submitted);
    MessageWait { sends: *sends, peer: *peer, label: label.clone(), tag: *tag, waited }
}

/// The messages that are not done and that count, oldest first.
fn waits(state: &State, count: impl Fn(&Transfer) -> bool) -> Vec<MessageWait> {
    let now = now();
    let receives = state.incoming.open().map(|(_, receiving)| &receiving.job);
    let sends = state.peers.values().flat_map(|peer| peer.outgoing.held().map(|parcel| &parcel.job));
    let moving = state.peers.values().flat_map(|peer| peer.pipe.jobs());
    let mut jobs: Vec<&Transfer> = receives.chain(sends).chain(moving).filter(|job| count(job)).collect();
    jobs.sort_by_key(|job| job.submitted);
    jobs.into_iter().take(WAITS).map(|job| wait(job, now)).collect()
}

impl Shared {
    /// What the deadlock proof needs to know; `None` while results are on their way to callers.
    pub(crate) fn message_state(&self) -> Option<MessageState> {
        let state = self.channel.state();
        if self.channel.settling.load(Ordering::SeqCst) > 0 {
            return None;
        }
        let numbers = |(&rank, peer): (&Rank, &Peer)| (rank, peer.pipe.handed_in, peer.pipe.dealt_with);
        Some(MessageState { frames: state.peers.iter().map(numbers).collect(), waits: waits(&state, |_| true) })
    }

    /// Whether any message is not done.
    pub(crate) fn has_messages(&self) -> bool {
        !waits(&self.channel.state(), |_| true).is_empty()
    }

    /// Tells rank 0 about a message that a caller has waited for long.
    pub(crate) fn report_waits(self: &Arc<Self>) {
        let settings = &self.settings;
        let Some(limit) = settings.warn_after.into_iter().chain(settings.hang_timeout).min() else { return };
        let time = now();
        let mut reports = self.channel.reports.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, waited) = reports.reported;
        if self.channel.bell.get().is_none() || time.saturating_sub(at) < AGAIN.min(limit / 2) {
            return;
        }
        drop(reports);
        let long = |job: &Transfer| job.pledge.is_awaited() && time.saturating_sub(job.submitted) >= limit / 2;
        let wait = waits(&self.channel.state(), long).into_iter().next();
        reports = self.channel.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports.reported = (time, wait.is_some());
        if self.group.rank() == 0 {
            reports.note(0, wait);
        } else if wait.is_some() || waited {
            drop(reports);
            self.star().post(0, encode(&Post::Waits(wait)));
        }
    }
}
