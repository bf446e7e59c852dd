//! The engine's errors as Python exceptions. There is one class, `sirtaki.Error`, defined in Python.

use pyo3::{PyErr, Python, import_exception, types::PyAnyMethods};
use sirtaki_comm::{CommError, Rank};
use sirtaki_engine::{EngineError, job::JobError};

import_exception!(sirtaki._errors, Dismissed);
import_exception!(sirtaki._errors, Error);
import_exception!(sirtaki._errors, JobOver);

/// The engine belongs to the process that this one was forked from.
pub(crate) const FORKED: &str = "this process was forked from one that had joined a job, and it is not a rank itself\n\
     hint: start processes with multiprocessing's `spawn` or call `init` after the fork; workers that only load data \
     need neither";

/// Something went wrong in or between ranks; `rank` is the one to blame, where there is one.
pub(crate) fn raised(py: Python<'_>, text: String, rank: Option<Rank>) -> PyErr {
    let error = Error::new_err(text);
    match error.value(py).setattr("rank", rank) {
        Ok(()) => error,
        Err(other) => other,
    }
}

/// A collective went wrong.
pub(crate) fn of_engine(py: Python<'_>, error: &EngineError) -> PyErr {
    let raised = raised(py, text(error), error.rank());
    match raised.value(py).setattr("refused", matches!(error, EngineError::Mismatch(_))) {
        Ok(()) => raised,
        Err(other) => other,
    }
}

/// What went wrong in a collective, in words.
pub(crate) fn text(error: &EngineError) -> String {
    let reason = match error {
        EngineError::Failed { reason, .. } | EngineError::Comm(reason) => Some(reason),
        _ => None,
    };
    with_timeout(reason, error.to_string())
}

/// The text of an error. Programs for PyTorch look for " timeout " where a time limit has passed.
fn with_timeout(reason: Option<&CommError>, text: String) -> String {
    match reason {
        Some(CommError::Timeout { .. }) => format!("the timeout has passed: {text}"),
        _ => text,
    }
}

/// The job could not be joined.
pub(crate) fn of_job(py: Python<'_>, error: &JobError) -> PyErr {
    let hint = error.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
    match error {
        JobError::Dismissed => return Dismissed::new_err(0),
        JobError::Over { .. } => return JobOver::new_err(format!("{error}{hint}")),
        _ => {}
    }
    let (reason, rank) = match error {
        JobError::Comm(reason) => (Some(reason), reason.rank()),
        JobError::Engine(EngineError::Comm(reason)) => (Some(reason), reason.rank()),
        _ => (None, None),
    };
    raised(py, with_timeout(reason, format!("{error}{hint}")), rank)
}

/// The engine belongs to the process that this one was forked from.
pub(crate) fn forked(py: Python<'_>) -> PyErr {
    raised(py, FORKED.into(), None)
}

/// `shutdown` was called before.
pub(crate) fn closed(py: Python<'_>) -> PyErr {
    raised(py, "this engine was shut down\nhint: call `init` again, on all ranks".into(), None)
}
