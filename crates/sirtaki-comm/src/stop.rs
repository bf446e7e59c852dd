//! Ending somebody else's wait from another thread.

use std::sync::{Arc, OnceLock};

use crate::CommError;

/// A clonable handle that ends the calls of one communicator, now and later, with [`CommError::Stopped`].
#[derive(Debug, Clone, Default)]
pub struct Stopper {
    reason: Arc<OnceLock<String>>,
}

impl Stopper {
    /// A fresh handle, not stopped.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the communicator's calls within a tenth of a second. The first reason stays.
    pub fn stop(&self, reason: impl Into<String>) {
        let _ = self.reason.set(reason.into());
    }

    /// An error once stopped.
    pub fn check(&self) -> Result<(), CommError> {
        match self.reason.get() {
            None => Ok(()),
            Some(reason) => Err(CommError::Stopped { reason: reason.clone() }),
        }
    }
}
