//! Who uses the engine: the threads that have submitted tensors, and what they wait for.
//!
//! This is how a rank knows that it will submit nothing more: every caller waits for a tensor that is not done. Only
//! waits without a time limit count, because the others end by themselves. A thread that has ended counts as busy,
//! because the thread that started it may start another. A thread that has submitted nothing yet is unknown; a program
//! whose threads start to submit while all others wait announces that with [`HandIn`], which is a caller of its own. A
//! hand-in that follows a tensor waits for that tensor; the thread that carries it out acts for it and not for itself.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, ThreadId},
};

use crate::runtime::{
    inbox::{Command, Inbox},
    ticket::Promise,
};

/// How many callers are told apart; beyond that, none is ever known to be blocked.
const CALLERS: usize = 4096;

/// The callers of this process that use one engine.
#[derive(Debug)]
pub(crate) struct Callers {
    state: Mutex<State>,
    inbox: Arc<Inbox>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Caller {
    Thread(ThreadId),
    HandIn(u64),
}

#[derive(Debug, Default)]
struct State {
    /// Every caller, with what it waits for.
    callers: HashMap<Caller, Option<Arc<Promise>>>,
    /// Threads that act for another caller.
    deputies: HashMap<ThreadId, Caller>,
    /// Hand-ins so far.
    hand_ins: u64,
    /// Changes whenever anything here does.
    version: u64,
    /// The other ranks were told that all callers are blocked.
    reported: bool,
}

impl State {
    fn is_blocked(&self) -> bool {
        let waits = |promise: &Option<Arc<Promise>>| promise.as_ref().is_some_and(|promise| !promise.is_done());
        (1..=CALLERS).contains(&self.callers.len()) && self.callers.values().all(waits)
    }

    /// The caller this thread acts for.
    fn caller(&self) -> Caller {
        self.caller_of(thread::current().id())
    }

    /// The caller a thread acts for.
    fn caller_of(&self, thread: ThreadId) -> Caller {
        self.deputies.get(&thread).copied().unwrap_or(Caller::Thread(thread))
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
        let state = self.state();
        let caller = state.caller();
        self.add(state, caller);
    }

    fn add(&self, mut state: MutexGuard<'_, State>, caller: Caller) {
        if !state.callers.contains_key(&caller) && state.callers.len() <= CALLERS {
            state.callers.insert(caller, None);
            self.change(state);
        }
    }

    /// A number that stays the same as long as every caller is blocked; `None` if one is not.
    pub(crate) fn blocked(&self) -> Option<u64> {
        let state = self.state();
        state.is_blocked().then_some(state.version)
    }

    /// Whether every caller is blocked; if so, the other ranks are told now.
    pub(crate) fn report(&self) -> bool {
        let mut state = self.state();
        state.reported = state.is_blocked();
        state.reported
    }

    /// This thread waits for `promise` until the result is dropped.
    pub(crate) fn block(self: &Arc<Self>, promise: &Arc<Promise>) -> Blocking {
        let mut state = self.state();
        let caller = state.caller();
        let before = state.callers.get_mut(&caller).and_then(|waits| waits.replace(promise.clone()));
        self.change(state);
        Blocking { callers: self.clone(), caller, before }
    }
}

/// A thread waits, and does nothing else, until this is dropped.
#[derive(Debug)]
#[must_use = "the thread counts as blocked until this is dropped"]
pub struct Blocking {
    callers: Arc<Callers>,
    caller: Caller,
    /// What it waited for before: a signal handler may wait while its thread does.
    before: Option<Arc<Promise>>,
}

impl Drop for Blocking {
    fn drop(&mut self) {
        let mut state = self.callers.state();
        if let Some(waits) = state.callers.get_mut(&self.caller) {
            *waits = self.before.take();
        }
        self.callers.change(state);
    }
}

/// Something that will be submitted later, and perhaps by another thread: a copy from a device that is not finished, a
/// callback. As long as one exists, the other ranks know that this one may still submit something, unless the hand-in
/// waits for a tensor.
#[derive(Debug)]
#[must_use = "the rank counts as busy until this is dropped"]
pub struct HandIn {
    callers: Arc<Callers>,
    number: u64,
}

impl HandIn {
    /// Something will be submitted for `thread`: now, or when `after` is done.
    pub(crate) fn new(callers: &Arc<Callers>, thread: ThreadId, after: Option<Arc<Promise>>) -> Self {
        let state = callers.state();
        let creator = state.caller_of(thread);
        callers.add(state, creator);
        let mut state = callers.state();
        let number = state.hand_ins;
        state.hand_ins += 1;
        state.callers.insert(Caller::HandIn(number), after);
        callers.change(state);
        Self { callers: callers.clone(), number }
    }

    /// From now on this thread does what was announced, until the result is dropped.
    pub fn begin(&self) -> Doing {
        let doing = Doing::new(&self.callers, Caller::HandIn(self.number));
        let mut state = self.callers.state();
        if let Some(waits) = state.callers.get_mut(&Caller::HandIn(self.number)) {
            *waits = None;
        }
        self.callers.change(state);
        doing
    }

    /// Submits it: what `submit` hands in counts as handed in by the thread that began this.
    pub fn finish<R>(self, submit: impl FnOnce() -> R) -> R {
        let doing = self.begin();
        let result = submit();
        drop(doing);
        result
    }
}

impl Drop for HandIn {
    fn drop(&mut self) {
        let mut state = self.callers.state();
        state.callers.remove(&Caller::HandIn(self.number));
        self.callers.change(state);
    }
}

/// A thread does what a [`HandIn`] has announced, or acts for another thread, until this is dropped.
#[derive(Debug)]
#[must_use = "the thread acts for another caller until this is dropped"]
pub struct Doing {
    callers: Arc<Callers>,
    thread: ThreadId,
    /// The caller it acted for before.
    before: Option<Caller>,
}

impl Doing {
    fn new(callers: &Arc<Callers>, caller: Caller) -> Self {
        let thread = thread::current().id();
        let before = callers.state().deputies.insert(thread, caller);
        Self { callers: callers.clone(), thread, before }
    }

    /// This thread acts for another one, which waits for it.
    pub(crate) fn for_thread(callers: &Arc<Callers>, thread: ThreadId) -> Self {
        Self::new(callers, Caller::Thread(thread))
    }
}

impl Drop for Doing {
    fn drop(&mut self) {
        let mut state = self.callers.state();
        match self.before {
            Some(before) => state.deputies.insert(self.thread, before),
            None => state.deputies.remove(&self.thread),
        };
        self.callers.change(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callers() -> Arc<Callers> {
        Callers::new(Arc::new(Inbox::new().unwrap()))
    }

    fn announce(callers: &Arc<Callers>, after: Option<Arc<Promise>>) -> HandIn {
        HandIn::new(callers, thread::current().id(), after)
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
    fn a_submission_on_its_way_is_not_a_deadlock() {
        let (callers, promise) = (callers(), Promise::new(1, None));
        let hand_in = announce(&callers, None);
        let _waiting = callers.block(&promise);
        assert_eq!(callers.blocked(), None);
        elsewhere(|| hand_in.finish(|| callers.submit()));
        assert!(callers.blocked().is_some(), "it was handed in for this thread");
    }

    #[test]
    fn what_follows_a_tensor_waits_for_it() {
        let (callers, promise) = (callers(), Promise::new(1, None));
        let hand_in = announce(&callers, Some(Promise::new(1, None)));
        let _waiting = callers.block(&promise);
        assert!(callers.blocked().is_some(), "nothing follows before that is done");
        let done = announce(&callers, Some(Promise::new(0, None)));
        assert_eq!(callers.blocked(), None);
        drop(done);
        elsewhere(|| {
            let doing = hand_in.begin();
            callers.submit();
            assert_eq!(callers.blocked(), None);
            let inner = callers.block(&promise);
            assert!(callers.blocked().is_some(), "it waits itself");
            drop(inner);
            assert_eq!(callers.blocked(), None);
            drop(doing);
        });
        drop(hand_in);
        assert!(callers.blocked().is_some(), "the other thread has submitted nothing for itself");
    }

    #[test]
    fn a_thread_may_submit_and_wait_for_one_that_does_nothing_else() {
        let (callers, promise) = (callers(), Promise::new(1, None));
        let here = thread::current().id();
        elsewhere(|| {
            let _doing = Doing::for_thread(&callers, here);
            callers.submit();
            assert_eq!(callers.blocked(), None);
            let _waiting = callers.block(&promise);
            assert!(callers.blocked().is_some(), "the only caller waits");
        });
        assert_eq!(callers.blocked(), None);
        let _waiting = callers.block(&promise);
        assert!(callers.blocked().is_some(), "the other thread was never a caller itself");
    }

    #[test]
    fn one_thread_may_submit_for_another() {
        let (callers, promise) = (callers(), Promise::new(1, None));
        let here = thread::current().id();
        elsewhere(|| HandIn::new(&callers, here, None).finish(|| callers.submit()));
        let _waiting = callers.block(&promise);
        assert!(callers.blocked().is_some(), "it has ended and was never a caller itself");
    }
}
