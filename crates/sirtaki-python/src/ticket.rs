//! Waiting from Python: the interpreter is free meanwhile, and Ctrl-C is noticed.

use std::{
    mem::ManuallyDrop,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use pyo3::{
    Py, PyAny, PyErr, PyResult, Python,
    conversion::IntoPyObjectExt,
    exceptions::PyRuntimeError,
    pyclass, pymethods,
    types::{PyList, PyListMethods},
};
use sirtaki_comm::{
    CommError,
    device::{Event, Stream},
};
use sirtaki_engine::{Outcome, Output as Done};

use crate::{
    completions::Completions,
    engine::Engine,
    error,
    hand_in::HandIn,
    memory::{self, RawStream},
    output::Output,
};

/// How long a signal may go unnoticed.
pub(crate) const SLICE: Duration = Duration::from_millis(100);

/// What was handed in. Any number of threads may wait for it; one of them gets the result.
#[pyclass(module = "sirtaki._native", frozen)]
pub(crate) struct Ticket {
    ticket: ManuallyDrop<Arc<sirtaki_engine::Ticket>>,
    /// The process that may wait.
    process: u32,
    /// Whether results replace the inputs, so that there is nothing to return.
    in_place: bool,
}

impl Ticket {
    pub(crate) fn new(ticket: Arc<sirtaki_engine::Ticket>, in_place: bool) -> Self {
        Self { ticket: ManuallyDrop::new(ticket), process: std::process::id(), in_place }
    }

    fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if self.process == std::process::id() { Ok(()) } else { Err(error::forked(py)) }
    }

    /// The outcome; an interrupted wait can be repeated.
    fn outcome(&self, py: Python<'_>) -> PyResult<Outcome> {
        self.check_process(py)?;
        let _blocking = self.ticket.blocking();
        while !py.detach(|| self.ticket.wait_for(SLICE)) {
            py.check_signals()?;
        }
        self.ticket.take().ok_or_else(|| PyRuntimeError::new_err("the result was taken by another thread"))
    }
}

#[pymethods]
impl Ticket {
    /// Whether it is done, successfully or not.
    fn poll(&self, py: Python<'_>) -> PyResult<bool> {
        self.check_process(py)?;
        Ok(self.ticket.poll())
    }

    /// Waits and returns the result: nothing where results are in place, otherwise a list of outputs, the last rank to
    /// join, the rank that sent a message, or the engine of a process set. For results on a GPU, later work on `streams`
    /// waits for them, not the caller.
    #[pyo3(signature = (streams = Vec::new()))]
    fn wait(&self, py: Python<'_>, streams: Vec<RawStream>) -> PyResult<Option<Py<PyAny>>> {
        let mut outputs = self.outcome(py)?.map_err(|error| error::of_engine(py, &error))?;
        await_on(&mut outputs, &streams).map_err(|error| error::of_engine(py, &error.into()))?;
        if let [Done::Message { from, .. }] = outputs.as_slice() {
            return from.into_py_any(py).map(Some);
        }
        if self.in_place {
            return Ok(None);
        }
        let list = PyList::empty(py);
        for output in outputs {
            match output {
                Done::Tensor(tensor, shape) => list.append(Output::new(tensor, shape, None))?,
                Done::Received { tensor, shape, rows } => list.append(Output::new(tensor, shape, Some(rows)))?,
                Done::Message { tensor, shape, .. } => list.append(Output::new(tensor, shape, None))?,
                Done::Joined(last) => return last.into_py_any(py).map(Some),
                Done::Set(engine) => {
                    return engine.map(|engine| Engine::of_set(*engine).into_py_any(py)).transpose();
                }
            }
        }
        Ok(Some(list.into_any().unbind()))
    }

    /// Puts `number` into `completions` once it is done. The thread that takes it out may submit something.
    fn notify(&self, py: Python<'_>, completions: &Completions, number: u64) -> PyResult<()> {
        self.check_process(py)?;
        let hand_in = self.ticket.hand_in().map(HandIn::new);
        self.ticket.when_done(completions.callback(number, hand_in));
        Ok(())
    }
}

/// Has streams wait for what their GPUs produce.
fn await_on(outputs: &mut [Done], streams: &[RawStream]) -> Result<(), CommError> {
    // Results of one collective have an event in common.
    let mut awaited: Option<(Arc<Event>, Stream)> = None;
    for output in outputs {
        let (Done::Tensor(tensor, _) | Done::Received { tensor, .. }) = output else { continue };
        let Some(ready) = tensor.ready().cloned() else { continue };
        let Some(raw) = streams.iter().find(|(device, _)| *device == ready.gpu().number()) else { continue };
        match &awaited {
            Some((event, stream)) if Arc::ptr_eq(event, &ready) => tensor.is_awaited_on(stream),
            _ => {
                let stream = memory::stream(*raw)?;
                stream.refuse_capture()?;
                tensor.await_on(&stream)?;
                awaited = Some((ready, stream));
            }
        }
    }
    Ok(())
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // Threads that a forked process does not have may hold the locks inside for ever.
        if self.process == std::process::id() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.ticket) }
        }
    }
}
/// Runs something that may take long in a thread of its own, so that an interrupt need not wait for it.
pub(crate) fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let worker = thread::Builder::new().name("sirtaki-wait".into()).spawn(work)?;
    while !py.detach(|| finished(&worker)) {
        py.check_signals()?;
    }
    worker.join().map_err(|_| PyRuntimeError::new_err("a thread of Sirtaki's has panicked"))
}

/// Whether a thread has finished; waits for as long as a signal may go unnoticed.
fn finished<T>(worker: &thread::JoinHandle<T>) -> bool {
    let begin = Instant::now();
    while !worker.is_finished() && begin.elapsed() < SLICE {
        thread::sleep(Duration::from_millis(1));
    }
    worker.is_finished()
}

/// An error that cannot happen unless `_native` is called by hand.
pub(crate) fn misuse(text: impl Into<String>) -> PyErr {
    pyo3::exceptions::PyValueError::new_err(text.into())
}
