//! What the owner thread, the watcher and the callers share.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, Thread},
    time::Duration,
};

use sirtaki_comm::{Alarm, Group, Rank, Stopper};

use crate::{
    Settings,
    decide::agree::Table,
    runtime::{callers::Callers, channel::Channel, control::Star, ending::Watched, explain::Answer, inbox::Inbox},
    telemetry::{Telemetry, recorder::Recorder},
};

/// The shared parts. Locks are held for moments and never during a collective; where both are needed, the table's comes
/// first.
pub(crate) struct Shared {
    pub(crate) group: Group,
    pub(crate) inbox: Arc<Inbox>,
    /// The threads that use the engine.
    pub(crate) callers: Arc<Callers>,
    /// Kept by rank 0.
    pub(crate) table: Option<Mutex<Table>>,
    pub(crate) star: Mutex<Star>,
    pub(crate) recorder: Arc<Recorder>,
    /// The records of all ranks on this host, by rank.
    pub(crate) records: Vec<Option<Recorder>>,
    /// The processes of all other ranks on this host, by rank.
    pub(crate) processes: Vec<Option<Watched>>,
    pub(crate) settings: Settings,
    /// What links between ranks use.
    pub(crate) comm: sirtaki_comm::Settings,
    /// Messages between two ranks.
    pub(crate) channel: Channel,
    /// How long a rank may be silent.
    pub(crate) silence: Duration,
    pub(crate) activity: Activity,
    /// Ends the owner's collective from outside.
    pub(crate) stopper: Stopper,
    /// What went wrong here that the watcher has not seen yet.
    pub(crate) complaints: Mutex<Vec<Alarm>>,
    /// Whether rank 0 wants to know what this process is doing, and whether the answer is being prepared.
    pub(crate) asked: AtomicBool,
    pub(crate) answering: AtomicBool,
    /// What this process is doing, on rank 0.
    pub(crate) answers: Mutex<Vec<(Rank, Answer)>>,
    /// The watcher's thread.
    pub(crate) watcher: OnceLock<Thread>,
    /// The owner thread has ended.
    pub(crate) ended: AtomicBool,
    /// How tensors of GPUs travel and why, in words, once there have been any.
    pub(crate) device: OnceLock<String>,
    /// Timeline and profile.
    pub(crate) telemetry: Telemetry,
}

/// What the owner thread is doing, for the watcher.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Since when it has been in a vote, in nanoseconds; 0 when it is not.
    pub(crate) voting_since: AtomicU64,
    /// The epoch of that vote.
    pub(crate) epoch: AtomicU64,
    /// Since when it has been in a collective, in nanoseconds; 0 when it is not.
    pub(crate) running_since: AtomicU64,
    /// Whether any request is not done.
    pub(crate) waiting: AtomicBool,
    /// Collectives finished.
    pub(crate) sequence: AtomicU64,
}

impl Activity {
    /// How long something that began at `since` has lasted; zero if it is not under way.
    pub(crate) fn lasting(since: &AtomicU64, now: Duration) -> Duration {
        match since.load(Ordering::Acquire) {
            0 => Duration::ZERO,
            began => now.saturating_sub(Duration::from_nanos(began)),
        }
    }
}

impl Shared {
    pub(crate) fn star(&self) -> MutexGuard<'_, Star> {
        self.star.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the watcher that something went wrong.
    pub(crate) fn complain(&self, alarm: Alarm) {
        self.complaints.lock().unwrap_or_else(PoisonError::into_inner).push(alarm);
        self.alert();
    }

    /// Has the watcher look now.
    pub(crate) fn alert(&self) {
        if let Some(watcher) = self.watcher.get() {
            watcher.unpark();
        }
    }

    /// Sends out what was said, taking at most this long.
    pub(crate) fn flush(&self, limit: Duration) {
        let deadline = now() + limit;
        while !self.star().flush() && now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Reads the letters that have arrived.
    pub(crate) fn read_posts(self: &Arc<Self>) {
        let posts = self.star().take_posts();
        posts.iter().for_each(|(from, bytes)| self.read_post(*from, bytes));
    }

    /// Whether a rank is on this host.
    pub(crate) fn is_here(&self, rank: Rank) -> bool {
        let members = self.group.members();
        members[rank].host_id == members[self.group.rank()].host_id
    }

    pub(crate) fn table(&self) -> Option<MutexGuard<'_, Table>> {
        self.table.as_ref().map(|table| table.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The host's monotonic clock, which all its processes share.
pub(crate) fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
