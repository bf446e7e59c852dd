//! What the owner thread does when there is nothing to do: it polls, sleeps, and notices when nothing moves on.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::atomic::Ordering,
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::runtime::{owner::Owner, shared::now};

/// How long the thread polls for new work after a result before it sleeps.
pub(crate) const LOOKING: Duration = Duration::from_micros(60);

/// The same once tensors of a GPU have been processed. Their results are there before the GPU has computed them, so a
/// program that waits for it submits the next one later; and a core of such a machine that has slept for long takes
/// 0.1 ms to wake.
const LOOKING_FOR_DEVICE: Duration = Duration::from_millis(2);

/// How long the thread polls for what other ranks say about a request, once tensors of a GPU have been processed:
/// while the GPU works for long, all of these threads sleep, and each wake-up on the way to an agreement would take as
/// long as above.
const ANSWERING: Duration = Duration::from_micros(300);

/// How often it looks for requests between two looks at its sockets, each of which is a system call.
const LOOKS: u32 = 64;

/// How often the thread checks whether a GPU has finished.
const DEVICE_LOOK: Duration = Duration::from_millis(200);

/// How long a caller waits, in an adopted order, for something it may have to submit itself.
const BRIEF: Duration = Duration::from_millis(1);

impl Owner {
    /// Nothing to do: polls for a moment if something was done and that may be worth it, then sleeps.
    pub(crate) fn rest(&mut self) {
        if self.report_blocked() {
            return;
        }
        let began = now();
        if std::mem::take(&mut self.performed) {
            self.idle_since = Some(began);
        }
        if self.sees_news() {
            return;
        }
        // A GPU may wait for that of a rank that has stopped.
        let busy = self.runner.is_device_busy();
        self.shared.activity.waiting.store(busy || self.leaving || !self.submissions.is_empty(), Ordering::Release);
        // In an adopted order some rank has to notice that it does not go on: soon if a caller waits, since that caller
        // cannot submit what is missing.
        let stuck = self.member.is_following() && self.member.oldest().is_some();
        let (patience, since) = (self.shared.settings.patience, self.stirred);
        let limit = stuck.then(|| (now() - since).max(BRIEF).min(patience));
        let limit = if busy { Some(limit.unwrap_or(DEVICE_LOOK).min(DEVICE_LOOK)) } else { limit };
        self.watch_links();
        self.shared.inbox.sleep(&self.sockets, limit);
        if stuck && now() - since >= if self.is_awaited() { BRIEF.min(patience) } else { patience } {
            self.member.deviate();
        }
    }

    /// Polls for requests, and with a GPU for what other ranks say, as long as that may be worth it; says whether there
    /// is something.
    fn sees_news(&self) -> bool {
        let has_device = self.runner.device_way().is_some();
        let until = match self.idle_since {
            Some(since) if self.hurried => since + self.looking(),
            None if has_device && !self.submissions.is_empty() => self.stirred + ANSWERING,
            _ => return false,
        };
        while now() < until {
            if has_device && has_news(&self.sockets) {
                return true;
            }
            for _ in 0..if has_device { LOOKS } else { 1 } {
                if self.shared.inbox.is_filled() {
                    return true;
                }
                std::hint::spin_loop();
            }
            std::thread::yield_now();
        }
        false
    }

    /// How long polling for new work after a result may be worth it.
    pub(crate) fn looking(&self) -> Duration {
        if self.runner.device_way().is_some() { LOOKING_FOR_DEVICE } else { LOOKING }
    }

    /// Tells the table that this rank will submit nothing more until something is done, where that is so; says whether
    /// it did.
    fn report_blocked(&mut self) -> bool {
        self.blocked = self.blocked && self.shared.callers.report();
        // What a thread submitted before it waited is in the inbox before the thread counts as waiting.
        if self.blocked && !self.shared.inbox.is_filled() {
            // Both at once: no caller did anything while the channel was looked at.
            let callers = self.shared.callers.blocked();
            let messages = self.shared.message_state().filter(|_| callers == self.shared.callers.blocked());
            if let Some(messages) = messages.filter(|_| callers.is_some()) {
                // A repeated order has to end before ranks can compare what they wait for.
                if self.member.is_following() && !messages.waits.is_empty() {
                    self.member.deviate();
                }
                self.member.report_blocked(messages);
            }
        }
        self.member.has_words()
    }

    /// Whether a caller waits for anything that is not done.
    fn is_awaited(&self) -> bool {
        self.submissions.values().flatten().any(|submission| submission.promise.is_awaited())
    }

    pub(crate) fn rest_in_failure(&mut self) {
        if self.closing && self.failure.is_some() {
            self.finished = true;
        } else {
            self.shared.inbox.sleep(&[], None);
        }
    }

    /// Sends what did not fit before, and makes sleep end when a link has something, except for links that are gone.
    fn watch_links(&mut self) {
        let mut star = self.shared.star();
        let clear = star.flush();
        if star.count() != self.sockets.len()
            && let Ok(sockets) = star.sockets()
        {
            self.sockets = sockets;
        }
        self.sockets.iter_mut().for_each(|(_, writes)| *writes = !clear);
        if star.has_news() {
            self.shared.alert();
        }
    }
}

/// Whether one of the sockets has something, without waiting for it.
fn has_news(sockets: &[(OwnedFd, bool)]) -> bool {
    let mut fds: Vec<PollFd<'_>> =
        sockets.iter().map(|(socket, _)| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)).collect();
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}
