//! The thread that ends a communicator of NCCL's which was stopped.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{driver::Handle, gpu::Gpu, nccl::Nccl};
use crate::{CommError, Stopper};

/// How often to look whether it was stopped.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// Aborts a communicator once it is stopped, from a thread of its own.
pub(super) struct Guard {
    /// Whether the communicator is gone.
    gone: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Guard {
    pub(super) fn new(nccl: Arc<Nccl>, gpu: Arc<Gpu>, comm: Handle, stopper: Stopper) -> Result<Self, CommError> {
        let gone = Arc::new((Mutex::new(false), Condvar::new()));
        let seen = gone.clone();
        let watch = move || {
            let mut state = seen.0.lock().unwrap_or_else(PoisonError::into_inner);
            while !*state {
                if stopper.check().is_err() {
                    *state = true;
                    drop(state);
                    return abort(&nccl, &gpu, comm);
                }
                state = seen.1.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
            }
        };
        let thread = thread::Builder::new().name("sirtaki-nccl".into()).spawn(watch);
        let thread = thread.map_err(|error| CommError::io("cannot start a thread", error))?;
        Ok(Self { gone, thread: Some(thread) })
    }

    pub(super) fn is_gone(&self) -> bool {
        *self.gone.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the communicator was still there, which is nobody's from now on.
    pub(super) fn take(&mut self) -> bool {
        let gone = std::mem::replace(&mut *self.gone.0.lock().unwrap_or_else(PoisonError::into_inner), true);
        self.gone.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        !gone
    }
}

/// Ends what a device does for a communicator.
pub(super) fn abort(nccl: &Nccl, gpu: &Gpu, comm: Handle) {
    if gpu.enter().is_ok() {
        // SAFETY: it lives, and nobody uses it afterwards; a call that waits in it returns.
        unsafe { (nccl.functions.abort)(comm) };
    }
}
