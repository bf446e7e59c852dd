//! Ranks that meet in a store served by a framework, such as PyTorch's.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

use pyo3::{
    Bound, Py, PyAny, PyErr, PyResult, Python,
    types::{PyAnyMethods, PyBytes},
};
use sirtaki_comm::{CommError, rendezvous::Store};

/// A Python object with `set(key, bytes)`, `wait(key, seconds)`, which returns bytes or `None`, and `add(key, amount)`.
pub(crate) struct Foreign {
    store: Py<PyAny>,
    /// What went wrong in Python, as it was raised.
    raised: Mutex<Option<PyErr>>,
}

impl Foreign {
    pub(crate) fn new(store: Py<PyAny>) -> Self {
        Self { store, raised: Mutex::new(None) }
    }

    /// What a call has raised: for example an interrupt by Ctrl-C, which must not become another error.
    pub(crate) fn raised(&self) -> Option<PyErr> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn call<T>(
        &self,
        key: &str,
        ask: impl FnOnce(Python<'_>, &Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Result<T, CommError> {
        Python::attach(|py| ask(py, self.store.bind(py))).map_err(|error| {
            let reason = format!("the store failed at \"{key}\": {error}");
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            CommError::Stopped { reason }
        })
    }
}

impl Store for Foreign {
    fn set(&self, key: &str, value: &[u8]) -> Result<(), CommError> {
        self.call(key, |py, store| store.call_method1("set", (key, PyBytes::new(py, value))).map(drop))
    }

    fn wait(&self, key: &str, deadline: Instant) -> Result<Option<Vec<u8>>, CommError> {
        let seconds = deadline.saturating_duration_since(Instant::now()).as_secs_f64();
        self.call(key, |_, store| store.call_method1("wait", (key, seconds))?.extract())
    }

    fn add(&self, key: &str, amount: i64) -> Result<i64, CommError> {
        self.call(key, |_, store| store.call_method1("add", (key, amount))?.extract())
    }
}
