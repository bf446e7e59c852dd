//! What reaches the owner thread from other threads, and how it sleeps until something does.

#[cfg(not(loom))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};
use std::{
    os::fd::OwnedFd,
    sync::{Arc, PoisonError},
    time::Duration,
};

#[cfg(loom)]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering},
};
use sirtaki_comm::{Alarm, CommError};

use crate::{
    decide::{message::Verdict, request::Request},
    runtime::{bell::Bell, memory::Tensor, ticket::Pledge},
};

/// A message to the owner thread.
#[derive(Debug)]
pub(crate) enum Command {
    /// Do these, together if there are several; handed in at this time.
    Submit(Vec<(Request, Tensor)>, Arc<Pledge>, Duration),
    /// The watcher had the table decide this while the owner was busy.
    Heard(Verdict),
    /// Words have arrived and were taken off their socket.
    Listen,
    /// Every thread that submits has been waiting for a while.
    Blocked,
    /// The other ranks were told that, and it is no longer true.
    Unblocked,
    /// Everything ends, and this is why.
    Over(Alarm),
    /// Nobody will ask for anything any more.
    Close,
}

/// A queue with a bell that rings only when the owner sleeps.
#[derive(Debug)]
pub(crate) struct Inbox {
    queue: Mutex<Queue>,
    filled: AtomicBool,
    bell: Bell,
}

#[derive(Debug, Default)]
struct Queue {
    commands: Vec<Command>,
    /// The owner sleeps, or is about to, and nobody has rung yet.
    asleep: bool,
}

impl Inbox {
    pub(crate) fn new() -> Result<Self, CommError> {
        Ok(Self { queue: Mutex::new(Queue::default()), filled: AtomicBool::new(false), bell: Bell::new()? })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends from any thread.
    pub(crate) fn send(&self, command: Command) {
        let mut queue = self.queue();
        queue.commands.push(command);
        self.filled.store(true, Ordering::Release);
        let asleep = std::mem::take(&mut queue.asleep);
        drop(queue);
        if asleep {
            self.bell.ring();
        }
    }

    /// Whether there is something, without taking a lock.
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
        std::mem::take(&mut queue.commands)
    }

    /// Sleeps until there is something here or one of the sockets is ready, at most `limit`. The flags say whether a
    /// socket also has something to write.
    pub(crate) fn sleep(&self, sockets: &[(OwnedFd, bool)], limit: Option<Duration>) {
        let mut queue = self.queue();
        if !queue.commands.is_empty() {
            return;
        }
        queue.asleep = true;
        drop(queue);
        self.bell.sleep(sockets, limit);
        self.queue().asleep = false;
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::thread;

    use super::*;

    /// Two threads send while the owner sleeps. A wake-up that is lost is a deadlock, because the model's sleep has no
    /// time limit.
    #[test]
    fn the_owner_hears_everything_and_does_not_sleep_for_ever() {
        loom::model(|| {
            let inbox = Arc::new(Inbox::new().expect("a model's bell"));
            let sender = |command: fn() -> Command| {
                let inbox = inbox.clone();
                thread::spawn(move || inbox.send(command()))
            };
            let senders = [sender(|| Command::Listen), sender(|| Command::Close)];
            let mut heard = 0;
            while heard < senders.len() {
                match inbox.take().len() {
                    0 => inbox.sleep(&[], None),
                    count => heard += count,
                }
            }
            senders.into_iter().for_each(|sender| sender.join().expect("no sender panics"));
        });
    }
}
