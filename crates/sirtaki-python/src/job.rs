//! The job that a process was started for, as Python describes it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use pyo3::{PyResult, Python, types::PyAnyMethods};
use sirtaki_engine::job::Job;

use crate::error;

/// Variables for those that the environment does not set.
pub(crate) type Variables = HashMap<String, String>;

/// The job that this process was started for.
pub(crate) fn discover(py: Python<'_>, defaults: &Variables) -> PyResult<Job> {
    sirtaki_engine::heap::keep();
    let get = |name: &str| std::env::var(name).ok().or_else(|| defaults.get(name).cloned());
    let mut job = Job::discover(&get).map_err(|error| error::of_job(py, &error))?;
    job.engine.warn = Arc::new(warn);
    job.engine.current_work = Arc::new(current_work);
    Ok(job)
}

/// Where the program is, in words, unless the interpreter is shutting down.
fn current_work() -> Option<String> {
    let describe = |py: Python<'_>| {
        let describe = py.import("sirtaki._stack")?.getattr("describe")?;
        describe.call0()?.extract::<Option<String>>()
    };
    Python::try_attach(|py| describe(py).ok().flatten()).flatten()
}

/// Has a job wait this many seconds for other ranks to come.
pub(crate) fn set_timeout(job: &mut Job, seconds: Option<f64>) {
    if let Some(limit) = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
        job.communication.start_timeout = limit.min(LONGEST_WAIT);
    }
}

/// Far longer than any job, but still a duration that can be added to the present.
const LONGEST_WAIT: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

#[allow(clippy::print_stderr, reason = "warnings are for the people who started the program")]
fn warn(text: &str) {
    eprintln!("sirtaki: {text}");
}
