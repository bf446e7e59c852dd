//! Ops and kernels for TensorFlow, through its C interface.
//!
//! A collective is two ops. One submits tensors and never waits; the other waits for any number of them. Kernels that
//! submit and wait in one would occupy all of TensorFlow's threads while other ranks wait for tensors that no thread is
//! left to submit. Both have side effects as far as TensorFlow knows: then functions run them in the order of the
//! program, and they are neither merged nor removed nor computed in advance. So while one of them waits, nothing else of
//! the same function will be submitted, which is what makes the engine's proof of deadlocks right.
//!
//! Kernels that TensorFlow calls asynchronous are used only where there is no such order; see `later`. The C interface has
//! them, but what they have to call in the end is gone when they return.
//!
//! # Layout
//!
//! - `interface`: TensorFlow's functions.
//! - `call`: what a node of a graph asks for.
//! - `tensor`, `context`: TensorFlow's objects.
//! - `pending`: what was submitted, and waiting for it.
//! - `kernels`: what the ops do.
//! - `later`: waiting without a thread, in graphs of sessions.
//! - `register`: the ops, as TensorFlow gets to know them.

mod call;
mod context;
mod interface;
mod kernels;
mod later;
mod pending;
mod register;
mod tensor;

use std::{path::PathBuf, sync::Mutex};

use pyo3::{PyResult, exceptions::PyImportError, pyfunction};

/// Why registration failed.
static FAILURE: Mutex<Option<String>> = Mutex::new(None);

/// Finds TensorFlow's functions in its library at `path` and returns the address of a function that registers the ops.
/// TensorFlow learns of ops that are registered while it loads a library, so that function is to be called then.
#[pyfunction]
pub(crate) fn tensorflow_ops(path: PathBuf) -> PyResult<usize> {
    let found = interface::load(&path);
    found.map_err(|error| {
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        PyImportError::new_err(format!(
            "this TensorFlow cannot be used: {error} {source}\nhint: install TensorFlow 2.12 or newer"
        ))
    })?;
    Ok(register::register as *const () as usize)
}

/// Raises an error if the ops could not be registered. `in_main` says that the program's main thread calls this.
#[pyfunction]
pub(crate) fn tensorflow_ready(in_main: bool) -> PyResult<()> {
    if in_main {
        let _ = pending::MAIN.set(std::thread::current().id());
    }
    let failure = FAILURE.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    failure.map_or(Ok(()), |text| Err(PyImportError::new_err(text)))
}
