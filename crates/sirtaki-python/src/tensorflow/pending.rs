//! What was submitted and not waited for, by the numbers that travel through a graph, and waiting for it.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    thread::{self, ThreadId},
    time::Duration,
};

use pyo3::{Python, ffi};
use sirtaki_engine::{Doing, Engine, Output, Request, Tensor, Ticket};

use crate::{
    registry,
    tensorflow::{call::Call, context::Failure},
};

/// How long a signal may go unnoticed.
const SLICE: Duration = Duration::from_millis(100);

/// The program's main thread, if Python has told which it is.
pub(super) static MAIN: OnceLock<ThreadId> = OnceLock::new();

/// Something submitted.
pub(super) struct Pending {
    ticket: Arc<Ticket>,
    set: u64,
    for_main: bool,
}

static PENDING: Mutex<Option<HashMap<i64, Pending>>> = Mutex::new(None);
static NUMBER: AtomicI64 = AtomicI64::new(NOTHING + 1);

/// The number of what needs no waiting.
pub(super) const NOTHING: i64 = 0;

/// Whether there are no other ranks, and nobody wants to see what this one submits.
pub(super) fn is_alone(call: &Call) -> Result<bool, Failure> {
    let live = registry::find(call.set).map_err(Failure::precondition)?;
    Ok(live.engine().group().size() == 1 && !live.engine().is_traced())
}

/// Acts for the main thread where that waits while a thread of TensorFlow's works for it.
fn act(engine: &Engine, for_main: bool) -> Option<Doing> {
    let main = MAIN.get().filter(|main| for_main && **main != thread::current().id())?;
    Some(engine.act_for(*main))
}

/// Submits requests and returns the number to wait for.
pub(super) fn submit(call: &Call, requests: Vec<(Request, Tensor)>) -> Result<i64, Failure> {
    let live = registry::find(call.set).map_err(Failure::precondition)?;
    let doing = act(live.engine(), call.for_main);
    let ticket = live.submit(&call.name, requests);
    drop(doing);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let pending = Pending { ticket, set: call.set, for_main: call.for_main };
    PENDING.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(number, pending);
    Ok(number)
}

/// Waits for what has this number.
pub(super) fn wait(number: i64) -> Result<Vec<Output>, Failure> {
    if number == NOTHING {
        return Ok(Vec::new());
    }
    let pending = PENDING.lock().unwrap_or_else(PoisonError::into_inner).as_mut().and_then(|all| all.remove(&number));
    let pending = pending.ok_or_else(|| Failure::invalid(format!("nothing was submitted as {number}")))?;
    pending.wait()?;
    let outcome = pending.ticket.take().unwrap_or_else(|| Ok(Vec::new()));
    Ok(outcome?)
}

/// The tickets with these numbers, where there are any.
pub(super) fn tickets(numbers: &[i64]) -> Vec<Option<Arc<Ticket>>> {
    let pending = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    let ticket = |number| Some(pending.as_ref()?.get(number)?.ticket.clone());
    numbers.iter().map(ticket).collect()
}

/// Whether nothing with these numbers is still to be done.
pub(super) fn all_done(numbers: &[i64]) -> bool {
    tickets(numbers).iter().flatten().all(|ticket| ticket.poll())
}

impl Pending {
    fn wait(&self) -> Result<(), Failure> {
        if self.ticket.poll() {
            return Ok(());
        }
        // Holding the engine itself would keep it from being closed while this waits.
        let doing = registry::find(self.set).ok().and_then(|live| act(live.engine(), self.for_main));
        let blocking = self.ticket.blocking();
        while !self.ticket.wait_for(SLICE) {
            check_signals()?;
        }
        drop(blocking);
        drop(doing);
        Ok(())
    }
}

/// Whether the program wants to be interrupted; only its main thread is ever told so.
fn check_signals() -> Result<(), Failure> {
    if MAIN.get() != Some(&thread::current().id()) {
        return Ok(());
    }
    let interrupted = Python::try_attach(|py| py.check_signals().is_err()).unwrap_or(false);
    if interrupted {
        // The exception cannot pass through TensorFlow, so Python is told again when it has returned.
        // SAFETY: this only sets a flag.
        unsafe { ffi::PyErr_SetInterrupt() };
        return Err(Failure::interrupted());
    }
    Ok(())
}
