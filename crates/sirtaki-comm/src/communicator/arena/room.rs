//! The room all ranks of a host are in: the mapped segment, waiting in it, and finding out why a wait does not end.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, OnceLock, atomic::Ordering},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, pidfd_open},
    time::Timespec,
};

use super::{
    layout::{Board, Lane},
    memory::Memory,
};
use crate::{
    Alarm, CommError, Group, Rank, STANDSTILL, Stopper,
    communicator::{Blame, WaitObserver},
    shm::Signal,
    signature::Signature,
};

/// How long a waiting rank sleeps before it looks round again.
const SLICE: Duration = Duration::from_millis(50);
/// How long a waiting rank polls before it yields to others: longer than yielding takes, or two ranks that could answer
/// each other at once keep each other waiting.
const SPINNING: Duration = Duration::from_micros(20);
/// Polls between two looks at the clock.
const LOOKS: u32 = 32;
/// How long a waiting rank yields to others before it sleeps.
const YIELDING: Duration = Duration::from_micros(200);

/// How long ranks that have come wait for the others before they compare their calls without them: the more have come,
/// the clearer it is which rank differs.
const HEARING: Duration = Duration::from_secs(1);

/// One rank's view of the shared segment.
pub(crate) struct Room {
    pub(crate) memory: Arc<Memory>,
    pub(super) group: Group,
    timeout: Duration,
    stopper: Stopper,
    /// Becomes readable when that rank's process ends; none for ranks that are threads of this process.
    processes: Vec<Option<OwnedFd>>,
    /// How long to poll before yielding; not at all when ranks outnumber cores, where polling only delays the rank that
    /// is waited for.
    spinning: Duration,
    /// Told of waits, where this is one layer of several.
    observer: OnceLock<Arc<dyn WaitObserver>>,
}

/// What ends a wait.
pub(super) struct WaitContext<'a> {
    /// The call that waits.
    pub(super) call: &'a Signature,
    /// Number of that call.
    pub(super) number: u32,
}

impl Room {
    pub(super) fn new(
        memory: Arc<Memory>,
        group: Group,
        timeout: Duration,
        stopper: Stopper,
    ) -> Result<Self, CommError> {
        let processes = (0..group.size()).map(|rank| watch(&group, rank)).collect::<Result<_, _>>()?;
        let spinning = if cfg!(loom) || group.is_crowded() { Duration::ZERO } else { SPINNING };
        Ok(Self { memory, group, timeout, stopper, processes, spinning, observer: OnceLock::new() })
    }

    /// From now on `observer` is told of waits; the first one set stays.
    pub(super) fn observe_waits(&self, observer: Arc<dyn WaitObserver>) {
        let _ = self.observer.set(observer);
    }

    pub(super) fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    fn board(&self) -> &Board {
        self.memory.board()
    }

    #[inline]
    pub(super) fn lane(&self, rank: Rank) -> &Lane {
        self.memory.lane(rank)
    }

    /// My rank in the room.
    pub(crate) fn rank(&self) -> Rank {
        self.group.rank()
    }

    /// Rung when something was written for `rank`, or when something it wrote was read.
    pub(crate) fn bell(&self, rank: Rank) -> &Signal {
        &self.lane(rank).bell.0
    }

    /// Whether `rank` has left in good order.
    pub(crate) fn has_left(&self, rank: Rank) -> bool {
        self.lane(rank).status.0.left.load(Ordering::Acquire) != 0
    }

    /// How `rank` went, if it is gone.
    pub(crate) fn presence(&self, rank: Rank) -> Result<(), &'static str> {
        if self.has_left(rank) {
            Err("it left the group")
        } else if self.has_ended(rank) {
            Err("its process ended")
        } else {
            Ok(())
        }
    }

    fn mine(&self) -> &Lane {
        self.lane(self.group.rank())
    }

    /// Waits until `signal`, which `who` sets, has reached `target` (both count upwards and may wrap round).
    #[inline]
    pub(super) fn wait(
        &self,
        wait: &WaitContext<'_>,
        who: Rank,
        signal: &Signal,
        target: u32,
    ) -> Result<(), CommError> {
        if reached(signal, target) {
            return Ok(());
        }
        self.wait_longer(wait, who, signal, target)
    }

    #[cold]
    fn wait_longer(&self, wait: &WaitContext<'_>, who: Rank, signal: &Signal, target: u32) -> Result<(), CommError> {
        let start = Instant::now();
        while start.elapsed() < self.spinning {
            for _ in 0..LOOKS {
                std::hint::spin_loop();
                if reached(signal, target) {
                    return Ok(());
                }
            }
        }
        // A model sleeps at once: it has no time to pass.
        while !cfg!(loom) && start.elapsed() < YIELDING {
            std::thread::yield_now();
            if reached(signal, target) {
                return Ok(());
            }
        }
        let waits_for = &self.mine().status.0.waits_for;
        waits_for.store(who as u32 + 1, Ordering::Relaxed);
        let outcome = self.sleep_until(wait, who, start, &|| {
            let seen = signal.get();
            if !passed(seen, target) {
                signal.sleep(seen, SLICE);
            }
            reached(signal, target)
        });
        // A rank that gives up says so a moment later. Until then others may give up, too, and have to find the same rank.
        if outcome.is_ok() {
            waits_for.store(0, Ordering::Relaxed);
        }
        outcome
    }

    fn sleep_until(
        &self,
        wait: &WaitContext<'_>,
        who: Rank,
        start: Instant,
        sleep: &dyn Fn() -> bool,
    ) -> Result<(), CommError> {
        let (mut start, mut looked) = (start, Instant::now());
        while !sleep() {
            let now = Instant::now();
            if now - looked > STANDSTILL {
                start += now - looked;
            }
            looked = now;
            self.look_round(wait, who)?;
            if start.elapsed() > HEARING.min(self.timeout / 2) {
                self.compare(wait.number)?;
            }
            if let Some(observer) = self.observer.get() {
                observer.waits(&[self.group.world_rank(who)], start);
            }
            if start.elapsed() > self.timeout {
                return Err(self.timed_out(wait, who, start.elapsed()));
            }
        }
        Ok(())
    }

    fn timed_out(&self, wait: &WaitContext<'_>, who: Rank, waited: Duration) -> CommError {
        let culprit = self.culprit(who);
        let (rank, who) = (self.group.world_rank(culprit), self.group.describe(culprit));
        let (rank, who) = match self.observer.get().and_then(|observer| observer.blame(&[rank])) {
            Some(Blame::Told(error)) => return error,
            Some(Blame::Silent { rank, who }) => (rank, who),
            None => (rank, who),
        };
        CommError::Timeout { rank, who, operation: wait.call.describe(), waited }
    }

    /// Reasons to give up a wait for `who`.
    fn look_round(&self, wait: &WaitContext<'_>, who: Rank) -> Result<(), CommError> {
        self.stopper.check()?;
        for rank in 0..self.group.size() {
            let status = &self.lane(rank).status.0;
            let left = status.left.load(Ordering::Acquire) != 0;
            let needed = !passed(status.finished.load(Ordering::Acquire), wait.number);
            // A rank that has finished this operation failed in a later one, and we hear of that when we come to it.
            if needed && status.failed.load(Ordering::Acquire) != 0 {
                self.alarm()?;
            }
            if rank == who && left && needed {
                return self.missed(rank, "it left the group");
            }
            if rank != self.group.rank() && !left && needed && self.has_ended(rank) {
                return self.missed(rank, "its process ended");
            }
        }
        Ok(())
    }

    /// A rank that is gone may have said why just before it went.
    fn missed(&self, rank: Rank, how: &str) -> Result<(), CommError> {
        self.alarm()?;
        Err(self.lost(rank, how))
    }

    /// Compares the calls of all ranks that have announced operation `number`, in which this rank is.
    #[cold]
    pub(super) fn compare(&self, number: u32) -> Result<(), CommError> {
        let post = |rank: Rank| &self.lane(rank).posts[(number % 2) as usize];
        let present: Vec<Rank> = (0..self.group.size()).filter(|&rank| post(rank).number.get() == number).collect();
        let calls: Vec<Signature> = present.iter().map(|&rank| post(rank).call()).collect();
        self.group.subset(&present).map_or(Ok(()), |group| Signature::compare_all(&group, &calls))
    }

    fn lost(&self, rank: Rank, how: &str) -> CommError {
        let (rank, who) = (self.group.world_rank(rank), self.group.describe(rank));
        CommError::PeerLost { rank, who, how: how.into() }
    }

    fn has_ended(&self, rank: Rank) -> bool {
        let Some(process) = &self.processes[rank] else { return false };
        let mut polled = [PollFd::new(process, PollFlags::IN)];
        matches!(poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(count) if count > 0)
    }

    /// The rank at the end of the chain of waits.
    pub(super) fn culprit(&self, first: Rank) -> Rank {
        let mut rank = first;
        for _ in 0..self.group.size() {
            match self.lane(rank).status.0.waits_for.load(Ordering::Relaxed) as usize {
                next if next == 0 || next > self.group.size() || next - 1 == self.group.rank() => break,
                next => rank = next - 1,
            }
        }
        rank
    }

    /// Whether some rank has reported an error.
    pub(crate) fn is_alarmed(&self) -> bool {
        self.board().state.load(Ordering::Acquire) == 2
    }

    /// The error that some rank has reported, if any.
    pub(crate) fn alarm(&self) -> Result<(), CommError> {
        if !self.is_alarmed() {
            return Ok(());
        }
        let board = self.board();
        let length = (board.length.load(Ordering::Relaxed) as usize).min(Alarm::LIMIT);
        let bytes: Vec<u8> = board.text[..length].iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
        let unreadable = || Alarm::Stopped { reason: "another rank failed".into() };
        Err(Alarm::decode(&bytes).unwrap_or_else(unreadable).into())
    }

    /// Tells all ranks about `error`, unless an error was reported before; returns the first one reported.
    pub(super) fn raise(&self, error: CommError) -> CommError {
        let told = self.publish(error);
        self.mine().status.0.failed.store(1, Ordering::Release);
        told
    }

    fn publish(&self, error: CommError) -> CommError {
        let board = self.board();
        if board.state.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return self.alarm().err().unwrap_or(error);
        }
        let text = error.to_alarm().encode();
        for (place, byte) in board.text.iter().zip(&text) {
            place.store(*byte, Ordering::Relaxed);
        }
        board.length.store(text.len() as u32, Ordering::Relaxed);
        board.state.store(2, Ordering::Release);
        error
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.raise(self.lost(self.rank(), "its thread panicked; see its output"));
        }
        self.mine().status.0.left.store(1, Ordering::Release);
    }
}

#[inline]
fn passed(value: u32, target: u32) -> bool {
    value.wrapping_sub(target) as i32 >= 0
}

#[inline]
fn reached(signal: &Signal, target: u32) -> bool {
    passed(signal.get(), target)
}

fn watch(group: &Group, rank: Rank) -> Result<Option<OwnedFd>, CommError> {
    let pid = group.members()[rank].pid;
    if pid == std::process::id() {
        return Ok(None);
    }
    let gone = |error: rustix::io::Errno| match error {
        rustix::io::Errno::SRCH => CommError::PeerLost {
            rank: group.world_rank(rank),
            who: group.describe(rank),
            how: "its process ended".into(),
        },
        other => CommError::io(format!("cannot watch the process of {}", group.describe(rank)), other),
    };
    let pid = Pid::from_raw(pid as i32).ok_or_else(|| gone(rustix::io::Errno::SRCH))?;
    pidfd_open(pid, PidfdFlags::empty()).map(Some).map_err(gone)
}
