//! MPI's life in this process: started at most once, ended when the last communicator that needs it is dropped.
//!
//! MPI belongs to the process, not to a value: it cannot be started twice, nor again after its end. The one static here
//! mirrors that, so that a second world finds the first one's session instead of ending it early.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, Weak,
    atomic::{AtomicBool, Ordering},
};

use super::{
    choice::Choice,
    library::{Found, load},
    raw::{Answer, Code, Comm, Mpi, Threads},
};
use crate::CommError;

static CURRENT: Mutex<Weak<Session>> = Mutex::new(Weak::new());

/// An initialised MPI.
pub(super) struct Session {
    pub(super) mpi: Arc<dyn Mpi>,
    pub(super) found: Found,
    pub(super) threads: Threads,
    started_here: bool,
    broken: AtomicBool,
}

impl Session {
    /// The process's session: the present one, or a new one with the library of this choice.
    pub(super) fn open(choice: &Choice) -> Result<Arc<Self>, CommError> {
        let mut current = lock();
        if let Some(session) = current.upgrade() {
            return Ok(session);
        }
        let session = Arc::new(Self::start(choice)?);
        *current = Arc::downgrade(&session);
        drop(current);
        session.check_size(choice)?;
        Ok(session)
    }

    fn start(choice: &Choice) -> Result<Self, CommError> {
        let loaded = load(choice)?;
        let (mpi, found) = (loaded.mpi, loaded.found);
        if mpi.is_finalized() {
            let what = format!("MPI ({})", found.path.display());
            let reason = "it was already finalised in this process and cannot be started again".into();
            return Err(CommError::Unavailable { what, reason });
        }
        let started_here = !mpi.is_initialized();
        let threads = if started_here { mpi.init(Threads::Multiple) } else { mpi.threads() };
        let threads = threads.map_err(|code| explain(&*mpi, "start MPI", code))?;
        let session = Self { mpi, found, threads, started_here, broken: AtomicBool::new(false) };
        if threads < Threads::Serialized {
            let reason = format!("it was started for the main thread only ({threads:?}), which is not enough");
            return Err(CommError::Unavailable { what: session.name(), reason });
        }
        Ok(session)
    }

    fn check_size(&self, choice: &Choice) -> Result<(), CommError> {
        let size = self.ask("ask for the size of the world", |mpi| mpi.size(mpi.world()))?;
        match choice.size {
            Some(expected) if expected != size => Err(CommError::Unavailable {
                what: self.name(),
                reason: format!(
                    "it sees {size} processes where the launcher started {expected}; use the launcher of this library, \
                     or name the launcher's library"
                ),
            }),
            _ => Ok(()),
        }
    }

    /// The library as messages name it.
    pub(super) fn name(&self) -> String {
        format!("{} ({})", self.found.family.name(), self.found.path.display())
    }

    /// One call, whose failure says what was being done.
    pub(super) fn ask<T>(&self, action: &str, call: impl FnOnce(&dyn Mpi) -> Answer<T>) -> Result<T, CommError> {
        call(&*self.mpi).map_err(|code| explain(&*self.mpi, action, code))
    }

    /// A call did not finish, so ending MPI would wait for ever and is skipped.
    pub(super) fn set_broken(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    /// Frees a communicator, unless that could wait for a rank that does not come.
    pub(super) fn release(&self, comm: Comm) {
        if !self.is_over() {
            let _ = self.mpi.free(comm);
        }
    }

    /// Whether MPI has ended, or calls into it might not return.
    pub(super) fn is_over(&self) -> bool {
        self.broken.load(Ordering::Relaxed) || std::thread::panicking() || self.mpi.is_finalized()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.started_here && !self.is_over() {
            let _ = self.mpi.finalize();
        }
    }
}

fn lock() -> MutexGuard<'static, Weak<Session>> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}

fn explain(mpi: &dyn Mpi, action: &str, code: Code) -> CommError {
    CommError::io(format!("cannot {action} with MPI"), std::io::Error::other(mpi.explain(code)))
}
