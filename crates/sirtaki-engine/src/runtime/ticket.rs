//! What a caller holds while the engine works: a promise seen from both ends.

use std::{
    ops::Deref,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use sirtaki_comm::{CommError, Rank};

use crate::{
    Engine, EngineError,
    runtime::{
        callers::{Blocking, Callers, HandIn},
        memory::Tensor,
        shared::Shared,
    },
    telemetry::Stream,
};

/// How often a waiting caller polls before it sleeps.
const LOOKS: u32 = 200;

/// What came of one request.
#[derive(Debug)]
pub enum Output {
    /// A tensor and its shape: the one handed in, or a new one where sizes were not known in advance.
    Tensor(Tensor, Vec<usize>),
    /// Rows of other ranks.
    Received {
        /// All of them, in rank order.
        tensor: Tensor,
        /// Their shape.
        shape: Vec<usize>,
        /// How many came from each rank.
        rows: Vec<usize>,
    },
    /// A message.
    Message {
        /// The rank that sent it.
        from: Rank,
        /// Its elements.
        tensor: Tensor,
        /// Their shape.
        shape: Vec<usize>,
    },
    /// All ranks have joined; this one was the last.
    Joined(Rank),
    /// The engine of a process set, for its members.
    Set(Option<Box<Engine>>),
}

impl Output {
    /// The tensor, if it is one.
    pub fn into_tensor(self) -> Option<Tensor> {
        match self {
            Output::Tensor(tensor, _) | Output::Received { tensor, .. } | Output::Message { tensor, .. } => {
                Some(tensor)
            }
            _ => None,
        }
    }

    /// The same, to change.
    pub(crate) fn tensor_mut(&mut self) -> Option<&mut Tensor> {
        match self {
            Output::Tensor(tensor, _) | Output::Received { tensor, .. } => Some(tensor),
            _ => None,
        }
    }

    /// The elements, if it is a tensor of that type.
    pub fn into_vec<T: sirtaki_comm::Element + Send>(self) -> Option<Vec<T>> {
        self.into_tensor()?.into_vec().ok()
    }

    /// The shape, if it is a tensor.
    pub fn shape(&self) -> Option<&[usize]> {
        match self {
            Output::Tensor(_, shape) | Output::Received { shape, .. } | Output::Message { shape, .. } => Some(shape),
            _ => None,
        }
    }
}

/// What came of all requests of a ticket, in the order in which they were handed in.
pub type Outcome = Result<Vec<Output>, EngineError>;

struct State {
    outputs: Vec<Option<Output>>,
    left: usize,
    outcome: Option<Outcome>,
    /// Why the engine ended, if that is why this failed.
    over: Option<EngineError>,
    callbacks: Vec<Callback>,
}

/// Called once the promise is settled, with the reason if the engine has ended.
type Callback = Box<dyn FnOnce(Option<EngineError>) + Send>;

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("left", &self.left).field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

/// The engine's side. Kept until all parts are there, so that they complete together or not at all.
#[derive(Debug)]
pub(crate) struct Promise {
    state: Mutex<State>,
    changed: Condvar,
    done: AtomicBool,
    awaited: AtomicBool,
    /// Observers of waits for this promise.
    observers: Option<Observers>,
}

/// What is told when a thread waits: the telemetry of the process, and the engine.
#[derive(Debug, Clone)]
pub(crate) struct Observers {
    pub(crate) stream: Arc<Stream>,
    pub(crate) callers: Arc<Callers>,
    /// Where a caller that waits can look for messages.
    pub(crate) helper: Option<Weak<Shared>>,
}

impl Promise {
    pub(crate) fn new(parts: usize, observers: Option<Observers>) -> Arc<Self> {
        let outputs = (0..parts).map(|_| None).collect();
        let outcome = (parts == 0).then(|| Ok(Vec::new()));
        let done = AtomicBool::new(outcome.is_some());
        let state = Mutex::new(State { outputs, left: parts, outcome, over: None, callbacks: Vec::new() });
        let awaited = AtomicBool::new(false);
        Arc::new(Self { state, changed: Condvar::new(), done, awaited, observers })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it was kept, or cannot be.
    pub(crate) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Whether a caller has gone to sleep until it is kept.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed)
    }

    /// One part is done.
    pub(crate) fn keep(&self, part: usize, output: Output) {
        let mut state = self.state();
        if self.is_done() || state.outputs[part].replace(output).is_some() {
            return;
        }
        state.left -= 1;
        if state.left == 0 {
            let outputs = state.outputs.drain(..).flatten().collect();
            self.settle(state, Ok(outputs));
        }
    }

    /// One part failed, and so the whole promise does.
    pub(crate) fn fail(&self, error: EngineError) {
        let state = self.state();
        if !self.is_done() {
            self.settle(state, Err(error));
        }
    }

    fn settle(&self, mut state: MutexGuard<'_, State>, outcome: Outcome) {
        let over = outcome.as_ref().err().filter(|error| !error.is_recoverable()).cloned();
        state.over.clone_from(&over);
        state.outcome = Some(outcome);
        let callbacks = std::mem::take(&mut state.callbacks);
        self.done.store(true, Ordering::Release);
        drop(state);
        self.changed.notify_all();
        callbacks.into_iter().for_each(|callback| callback(over.clone()));
    }

    /// Calls back once it is settled: at once, or in the thread that settles it, so this must not take long.
    pub(crate) fn when_settled(&self, callback: Callback) {
        let mut state = self.state();
        if self.is_done() {
            let over = state.over.clone();
            drop(state);
            callback(over);
        } else {
            state.callbacks.push(callback);
        }
    }
}

/// The engine's hold on a promise. Dropping it tells all who wait for a promise that was not kept.
#[derive(Debug)]
pub(crate) struct Pledge(pub(crate) Arc<Promise>);

impl Deref for Pledge {
    type Target = Promise;

    fn deref(&self) -> &Promise {
        &self.0
    }
}

impl Drop for Pledge {
    fn drop(&mut self) {
        if !self.0.is_done() {
            let reason = "the engine ended before it was done; what was said on standard error may tell why".into();
            self.0.fail(EngineError::Comm(CommError::Stopped { reason }));
        }
    }
}

/// The caller's side. Dropping it gives up the result, not the request.
#[derive(Debug)]
#[must_use = "a request is done some time later; wait for its ticket"]
pub struct Ticket(pub(crate) Arc<Promise>);

impl Ticket {
    /// Whether it is done, successfully or not.
    pub fn poll(&self) -> bool {
        self.0.is_done()
    }

    /// Marks this thread as waiting for the ticket and doing nothing else until the result is dropped. [`Ticket::wait`]
    /// does so by itself; this is for endless waits made of short ones, so that signals are noticed. A rank whose
    /// threads all wait like this will submit nothing more, and if all ranks are in that state, they get an error.
    pub fn blocking(&self) -> Option<Blocking> {
        let observers = self.0.observers.as_ref().filter(|_| !self.poll())?;
        Some(observers.callers.block(&self.0))
    }

    /// Something may be submitted once this is done, for example by a callback; see [`Engine::hand_in`].
    pub fn hand_in(&self) -> Option<HandIn> {
        let (here, after) = (thread::current().id(), Some(self.0.clone()));
        self.0.observers.as_ref().map(|observers| HandIn::new(&observers.callers, here, after))
    }

    /// Waits as long as it takes.
    pub fn wait(self) -> Outcome {
        self.wait_until(None);
        self.take().unwrap_or_else(|| Ok(Vec::new()))
    }

    /// Waits for the only output of a ticket.
    pub fn wait_one(self) -> Result<Output, EngineError> {
        let mut outputs = self.wait()?;
        outputs.pop().ok_or_else(|| EngineError::Invalid { tensor: String::new(), problem: "an empty group".into() })
    }

    /// Waits at most `limit`; returns the ticket if that was not enough.
    pub fn wait_timeout(self, limit: Duration) -> Result<Outcome, Ticket> {
        self.wait_for(limit);
        self.take().ok_or(self)
    }

    /// Waits at most `limit` and says whether it is done. Any number of threads may do so at the same time.
    pub fn wait_for(&self, limit: Duration) -> bool {
        self.wait_until(Instant::now().checked_add(limit))
    }

    /// The outcome, if it is done and nobody has taken it before.
    pub fn take(&self) -> Option<Outcome> {
        self.0.state().outcome.take()
    }

    /// Calls back once it is done: at once, or in the engine's thread, so this must not take long.
    pub fn when_done(&self, callback: impl FnOnce() + Send + 'static) {
        self.0.when_settled(Box::new(|_| callback()));
    }

    fn wait_until(&self, deadline: Option<Instant>) -> bool {
        let observers = self.0.observers.clone().filter(|_| !self.poll());
        observers.iter().for_each(|observers| observers.stream.waiting(true));
        let done = self.look_and_sleep(deadline);
        observers.iter().for_each(|observers| observers.stream.waiting(false));
        done
    }

    /// Looks for a moment whether it is done.
    fn look(&self) {
        let observers = self.0.observers.as_ref();
        if let Some(shared) = observers.and_then(|observers| observers.helper.as_ref()?.upgrade()) {
            return shared.look_for_messages(|| self.poll());
        }
        for _ in 0..LOOKS {
            if self.poll() {
                break;
            }
            std::thread::yield_now();
        }
    }

    fn look_and_sleep(&self, deadline: Option<Instant>) -> bool {
        self.look();
        self.0.awaited.store(true, Ordering::Relaxed);
        let _blocking = if deadline.is_none() { self.blocking() } else { None };
        let mut state = self.0.state();
        while !self.poll() {
            state = match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                None => self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => break,
                Some(left) => self.0.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        self.poll()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part() -> Output {
        Output::Tensor(Tensor::empty(), vec![0])
    }

    #[test]
    fn parts_complete_together_or_not_at_all() {
        let promise = Promise::new(2, None);
        let ticket = Ticket(promise.clone());
        promise.keep(1, part());
        assert!(!ticket.poll());
        let ticket = ticket.wait_timeout(Duration::from_millis(1)).unwrap_err();
        promise.keep(0, part());
        assert!(ticket.poll());
        assert_eq!(ticket.wait().unwrap().len(), 2);

        let promise = Promise::new(2, None);
        promise.keep(0, part());
        promise.fail(EngineError::Mismatch("no".into()));
        promise.keep(1, part());
        assert!(Ticket(promise).wait().is_err());
        assert!(Ticket(Promise::new(0, None)).wait().unwrap().is_empty());
    }

    #[test]
    fn all_who_wait_learn_that_it_is_done_and_one_gets_the_outcome() {
        let promise = Promise::new(1, None);
        let ticket = Ticket(promise.clone());
        std::thread::scope(|scope| {
            let waits = || scope.spawn(|| ticket.wait_for(Duration::from_secs(600)));
            let waiters = [waits(), waits()];
            promise.keep(0, part());
            assert!(waiters.into_iter().all(|waiter| waiter.join().unwrap()));
        });
        assert!(ticket.take().is_some_and(|outcome| outcome.is_ok()));
        assert!(ticket.take().is_none() && ticket.poll());
    }

    #[test]
    fn callbacks_come_once_whenever_they_are_asked_for() {
        let (sender, calls) = std::sync::mpsc::channel();
        let promise = Promise::new(1, None);
        let ask = |number| {
            let sender = sender.clone();
            promise.when_settled(Box::new(move |over| sender.send((number, over.is_some())).unwrap()));
        };
        ask(1);
        assert!(calls.try_recv().is_err());
        promise.fail(EngineError::Comm(sirtaki_comm::CommError::Stopped { reason: "closed".into() }));
        ask(2);
        assert_eq!(calls.try_iter().collect::<Vec<_>>(), [(1, true), (2, true)]);
    }
}
