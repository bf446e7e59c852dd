//! What reaches the owner thread from other threads, and how it sleeps until something does.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use sirtaki_comm::{Alarm, CommError};

use crate::{
    decide::{message::Verdict, request::Request},
    runtime::{memory::Tensor, ticket::Pledge},
};

/// A message to the owner thread.
#[derive(Debug)]
pub(crate) enum Command {
    /// Do these, together if there are several; handed in at this time.
    Submit(Vec<(Request, Tensor)>, Arc<Pledge>, Duration),
    /// The watcher had the table say this while the owner was busy.
    Heard(Verdict),
    /// Words have arrived and were taken off their socket.
    Listen,
    /// Every thread that submits has been waiting for a while.
    Blocked,
    /// The other ranks were told so, and it is no longer true.
    Unblocked,
    /// It is over, and this is why.
    Over(Alarm),
    /// Nobody will ask for anything any more.
    Close,
}

/// A queue with a bell that rings only when the owner sleeps.
#[derive(Debug)]
pub(crate) struct Inbox {
    queue: Mutex<Vec<Command>>,
    filled: AtomicBool,
    asleep: AtomicBool,
    bell: OwnedFd,
}

impl Inbox {
    pub(crate) fn new() -> Result<Self, CommError> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| CommError::io("cannot make an event descriptor", error))?;
        Ok(Self { queue: Mutex::default(), filled: AtomicBool::new(false), asleep: AtomicBool::new(false), bell })
    }

    fn queue(&self) -> MutexGuard<'_, Vec<Command>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From any thread.
    pub(crate) fn send(&self, command: Command) {
        let mut queue = self.queue();
        queue.push(command);
        self.filled.store(true, Ordering::Release);
        drop(queue);
        // The owner announces its sleep before it looks into the queue for the last time, under the same lock.
        if self.asleep.swap(false, Ordering::SeqCst) {
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }

    /// Whether there is something, without a lock.
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    /// Everything there is.
    pub(crate) fn take(&self) -> Vec<Command> {
        if !self.is_filled() {
            return Vec::new();
        }
        let mut queue = self.queue();
        self.filled.store(false, Ordering::Release);
        std::mem::take(&mut *queue)
    }

    /// Sleeps until there is something here or on one of the sockets, at most `limit`. The flags say whether a socket
    /// also has something to write.
    pub(crate) fn sleep(&self, sockets: &[(OwnedFd, bool)], limit: Option<Duration>) {
        self.asleep.store(true, Ordering::SeqCst);
        if !self.queue().is_empty() {
            self.asleep.store(false, Ordering::SeqCst);
            return;
        }
        let flags = |writes: bool| if writes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut fds: Vec<PollFd<'_>> = vec![PollFd::new(&self.bell, PollFlags::IN)];
        fds.extend(sockets.iter().map(|(socket, writes)| PollFd::from_borrowed_fd(socket.as_fd(), flags(*writes))));
        let limit =
            limit.map(|limit| Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) });
        let _ = poll(&mut fds, limit.as_ref());
        let rang = !fds[0].revents().is_empty();
        self.asleep.store(false, Ordering::SeqCst);
        if rang {
            let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
        }
    }
}
