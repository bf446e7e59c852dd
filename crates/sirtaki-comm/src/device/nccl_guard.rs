//! The thread that aborts an NCCL communicator once it is stopped.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{driver::Handle, gpu::Gpu, nccl::Nccl};
use crate::{CommError, Stopper};

/// How often to check whether it was stopped.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// How long a call in progress may take to return by itself before it is aborted.
const RETURNING: Duration = Duration::from_millis(200);

#[derive(Default)]
struct State {
    /// Nobody may use the communicator any more.
    gone: bool,
    /// A call is in progress.
    inside: bool,
}

/// Aborts a communicator once it is stopped, from a thread of its own.
pub(super) struct Guard {
    state: Arc<(Mutex<State>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Guard {
    pub(super) fn new(nccl: Arc<Nccl>, gpu: Arc<Gpu>, comm: Handle, stopper: Stopper) -> Result<Self, CommError> {
        let shared = Arc::new((Mutex::new(State::default()), Condvar::new()));
        let state = shared.clone();
        let watch = move || {
            if until_stopped(&state, &stopper) {
                abort(&nccl, &gpu, comm);
            }
        };
        let thread = thread::Builder::new().name("sirtaki-nccl".into()).spawn(watch);
        let thread = thread.map_err(|error| CommError::io("cannot start a thread", error))?;
        Ok(Self { state: shared, thread: Some(thread) })
    }

    /// The entrance through which calls are made.
    pub(super) fn entrance(&self) -> Entrance {
        Entrance(self.state.clone())
    }

    /// Whether the communicator was still there; nobody may use it from now on.
    pub(super) fn take(&mut self) -> bool {
        let gone = std::mem::replace(&mut lock(&self.state.0).gone, true);
        self.state.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        !gone
    }
}

/// Lets calls through while the communicator is there.
pub(super) struct Entrance(Arc<(Mutex<State>, Condvar)>);

impl Entrance {
    /// Makes a call.
    pub(super) fn pass<T>(&self, call: impl FnOnce() -> Result<T, CommError>) -> Result<T, CommError> {
        let (state, changed) = &*self.0;
        let mut before = lock(state);
        if before.gone {
            return Err(CommError::Stopped { reason: "NCCL was stopped".into() });
        }
        before.inside = true;
        drop(before);
        let result = call();
        let mut after = lock(state);
        after.inside = false;
        if after.gone {
            changed.notify_all();
        }
        result
    }
}

/// Waits until the communicator is stopped and then, briefly, until no call is in progress; false if it is gone before.
fn until_stopped((state, changed): &(Mutex<State>, Condvar), stopper: &Stopper) -> bool {
    let mut state = lock(state);
    while stopper.check().is_ok() {
        if state.gone {
            return false;
        }
        state = changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
    }
    if std::mem::replace(&mut state.gone, true) {
        return false;
    }
    // A call that waits for a dead rank returns only when it is aborted.
    drop(changed.wait_timeout_while(state, RETURNING, |state| state.inside).unwrap_or_else(PoisonError::into_inner));
    true
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends what a device does for a communicator.
pub(super) fn abort(nccl: &Nccl, gpu: &Gpu, comm: Handle) {
    if gpu.enter().is_ok() {
        // SAFETY: it lives, and nobody uses it afterwards; a call that waits in it returns.
        unsafe { (nccl.functions.abort)(comm) };
    }
}
