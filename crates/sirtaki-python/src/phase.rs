//! A part of a training step, as Python marks it.

use std::sync::{Mutex, PoisonError};

use pyo3::{pyclass, pymethods};
use sirtaki_engine::InPhase;

/// Lasts until `end` is called or nothing refers to it any more.
#[pyclass(module = "sirtaki._native", frozen)]
pub(crate) struct Phase {
    inside: Mutex<Option<InPhase>>,
    /// The process whose phase it is.
    process: u32,
}

impl Phase {
    pub(crate) fn new(inside: InPhase) -> Self {
        Self { inside: Mutex::new(Some(inside)), process: std::process::id() }
    }
}

#[pymethods]
impl Phase {
    /// Ends it; does nothing if it has ended.
    fn end(&self) {
        let inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner).take();
        if self.process == std::process::id() {
            drop(inside);
        } else {
            // What a forked process does is not done by the rank.
            std::mem::forget(inside);
        }
    }
}

impl Drop for Phase {
    fn drop(&mut self) {
        self.end();
    }
}
