//! Who uses the engine: the threads that have submitted tensors, and what they wait for.
//!
//! This is how a rank knows that nothing more will come from it: every thread that has ever submitted a tensor waits for
//! one that is not done, and none is on its way. Only waits without a time limit count, because the others end by
//! themselves. A thread that has ended counts as one that does something else: whoever started it may start another one.
//! A thread that has submitted nothing yet is unknown; a program whose threads start to submit while all others wait
//! tells so with [`HandIn`].

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, ThreadId},
};

use crate::runtime::{
    inbox::{Command, Inbox},
    ticket::Promise,
};

/// Threads that are told apart; with more, nothing is ever known to be blocked.
const THREADS: usize = 4096;

/// The threads of this process that use one engine.
#[derive(Debug)]
pub(crate) struct Callers {
    state: Mutex<State>,
    inbox: Arc<Inbox>,
}

#[derive(Debug, Default)]
struct State {
    /// Every thread that has submitted something, with what it waits for.
    threads: HashMap<ThreadId, Option<Arc<Promise>>>,
    /// Threads whose submissions count as those of another one.
    deputies: HashSet<ThreadId>,
    /// What is on its way to be submitted.
    hand_ins: usize,
    /// Changes whenever anything here does.
    version: u64,
    /// The other ranks were told that all threads are blocked.
    reported: bool,
}

impl State {
    fn is_blocked(&self) -> bool {
        let waits = |promise: &Option<Arc<Promise>>| promise.as_ref().is_some_and(|promise| !promise.is_done());
        self.hand_ins == 0 && (1..=THREADS).contains(&self.threads.len()) && self.threads.values().all(waits)
    }
}

impl Callers {
    pub(crate) fn new(inbox: Arc<Inbox>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), inbox })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something has changed; if others were told that this rank is blocked, it no longer is.
    fn change(&self, mut state: MutexGuard<'_, State>) {
        state.version += 1;
        if state.reported && !state.is_blocked() {
            state.reported = false;
            drop(state);
            self.inbox.send(Command::Unblocked);
        }
    }

    /// This thread is about to submit something.
    pub(crate) fn submit(&self) {
        let thread = thread::current().id();
        let mut state = self.state();
        if !state.deputies.contains(&thread) && !state.threads.contains_key(&thread) && state.threads.len() <= THREADS {
            state.threads.insert(thread, None);
            self.change(state);
        }
    }

    /// A number that stays the same as long as every thread that has submitted something is blocked; nothing if one is not.
    pub(crate) fn blocked(&self) -> Option<u64> {
        let state = self.state();
        state.is_blocked().then_some(state.version)
    }

    /// Whether every thread that has submitted something is blocked; if so, others are told now.
    pub(crate) fn report(&self) -> bool {
        let mut state = self.state();
        state.reported = state.is_blocked();
        state.reported
    }

    /// This thread waits for `promise` until the result is dropped.
    pub(crate) fn block(self: &Arc<Self>, promise: &Arc<Promise>) -> Blocking {
        let thread = thread::current().id();
        let mut state = self.state();
        let before = state.threads.get_mut(&thread).and_then(|waits| waits.replace(promise.clone()));
        self.change(state);
        Blocking { callers: self.clone(), thread, before }
    }
}

/// A thread waits, and does nothing else, until this is dropped.
#[derive(Debug)]
#[must_use = "the thread counts as blocked until this is dropped"]
pub struct Blocking {
    callers: Arc<Callers>,
    thread: ThreadId,
    /// What it waited for before: a signal's handler may wait while its thread does.
    before: Option<Arc<Promise>>,
}

impl Drop for Blocking {
    fn drop(&mut self) {
        let mut state = self.callers.state();
        if let Some(waits) = state.threads.get_mut(&self.thread) {
            *waits = self.before.take();
        }
        self.callers.change(state);
    }
}

/// Something that will be submitted later, and perhaps by another thread: a copy from a device that is not finished, a
/// callback. As long as one exists, the other ranks know that something may still come from this one.
#[derive(Debug)]
#[must_use = "the rank counts as busy until this is dropped"]
pub struct HandIn(Arc<Callers>);

impl HandIn {
    pub(crate) fn new(callers: &Arc<Callers>) -> Self {
        callers.submit();
        let mut state = callers.state();
        state.hand_ins += 1;
        callers.change(state);
        Self(callers.clone())
    }

    /// Submits it: what `submit` hands in counts as handed in by the thread that began this.
    pub fn finish<R>(self, submit: impl FnOnce() -> R) -> R {
        let thread = thread::current().id();
        let deputy = self.0.state().deputies.insert(thread);
        let result = submit();
        if deputy {
            self.0.state().deputies.remove(&thread);
        }
        result
    }
}

impl Drop for HandIn {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.hand_ins -= 1;
        self.0.change(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callers() -> Arc<Callers> {
        Callers::new(Arc::new(Inbox::new().unwrap()))
    }

    fn elsewhere(work: impl FnOnce() + Send) {
        thread::scope(|scope| scope.spawn(work).join().unwrap());
    }

    #[test]
    fn every_thread_that_has_submitted_has_to_wait() {
        let (callers, promise) = (callers(), Promise::new(1, None));
        let waiting = callers.block(&promise);
        assert_eq!(callers.blocked(), None, "this thread has submitted nothing, and nobody else has");
        drop(waiting);
        callers.submit();
        assert_eq!(callers.blocked(), None);
        let waiting = callers.block(&promise);
        let version = callers.blocked();
        assert!(version.is_some() && callers.report());
        assert_eq!(callers.blocked(), version);
        elsewhere(|| callers.submit());
        assert_eq!(callers.blocked(), None, "one that has ended does not wait");
        assert!(matches!(callers.inbox.take().as_slice(), [Command::Unblocked]));
        drop(waiting);
        assert!(callers.inbox.take().is_empty(), "that was said");
    }

    #[test]
    fn a_wait_that_is_over_does_not_count() {
        let (callers, promise) = (callers(), Promise::new(0, None));
        callers.submit();
        let _waiting = callers.block(&promise);
        assert_eq!(callers.blocked(), None);
    }

    #[test]
    fn a_wait_inside_a_wait_ends_before_it() {
        let (callers, promise) = (callers(), Promise::new(1, None));
        callers.submit();
        let _waiting = callers.block(&promise);
        let done = Promise::new(0, None);
        let inner = callers.block(&done);
        assert_eq!(callers.blocked(), None);
        drop(inner);
        assert!(callers.blocked().is_some());
    }

    #[test]
    fn what_is_on_its_way_may_still_come() {
        let (callers, promise) = (callers(), Promise::new(1, None));
        let hand_in = HandIn::new(&callers);
        let _waiting = callers.block(&promise);
        assert_eq!(callers.blocked(), None);
        elsewhere(|| hand_in.finish(|| callers.submit()));
        assert!(callers.blocked().is_some(), "it was handed in for this thread");
    }
}
