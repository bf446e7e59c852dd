//! Ending a wait from another thread.

use std::sync::{Arc, OnceLock};

use crate::CommError;

/// A clonable handle that ends the calls of one communicator, now and later, with [`CommError::Stopped`].
#[derive(Debug, Clone, Default)]
pub struct Stopper {
    reason: Arc<OnceLock<String>>,
    /// Handles that are stopped along with this one.
    others: Vec<Stopper>,
}

impl Stopper {
    /// A fresh handle, not stopped.
    pub fn new() -> Self {
        Self::default()
    }

    /// A handle that stops all of these.
    pub fn all(others: impl IntoIterator<Item = Stopper>) -> Self {
        Self { reason: Arc::default(), others: others.into_iter().collect() }
    }

    /// Ends the communicator's calls within a tenth of a second. The first reason stays.
    pub fn stop(&self, reason: impl Into<String>) {
        let reason = reason.into();
        self.others.iter().for_each(|other| other.stop(reason.clone()));
        let _ = self.reason.set(reason);
    }

    /// An error once stopped.
    pub fn check(&self) -> Result<(), CommError> {
        match self.reason.get() {
            None => Ok(()),
            Some(reason) => Err(CommError::Stopped { reason: reason.clone() }),
        }
    }
}
