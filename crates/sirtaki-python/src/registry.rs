//! Engines by number, for code that runs without the interpreter: kernels of a framework that computes in threads of
//! its own and knows nothing but the attributes of a node in its graph.
//!
//! Python chooses the number: 0 for the engine over all ranks, otherwise that of the process set. So a graph that was
//! traced before a job was left and joined again finds the new engine. This has to be a static, because a framework
//! passes nothing else to a kernel; it holds no engine alive.

use std::{
    collections::HashMap,
    mem::ManuallyDrop,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
    },
};

use sirtaki_engine::{Engine, Request, Tensor, Ticket};

use crate::{error::FORKED, in_flight::InFlight};

/// An engine that forked processes leave alone: they have neither its threads nor the right to speak for the rank.
///
/// Whoever drops the last reference waits for the engine's threads, so none of those may hold one.
pub(crate) struct Live {
    engine: ManuallyDrop<Engine>,
    in_flight: InFlight,
    process: u32,
}

impl Live {
    pub(crate) fn new(engine: Engine) -> Arc<Self> {
        let (engine, in_flight) = (ManuallyDrop::new(engine), InFlight::default());
        Arc::new(Self { engine, in_flight, process: std::process::id() })
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Hands in requests under a name, after those that have it: a single one, or a group.
    pub(crate) fn submit(&self, name: &str, requests: Vec<(Request, Tensor)>) -> Arc<Ticket> {
        self.in_flight.submit(&self.engine, name, requests)
    }

    /// Hands in a request under each of these names; a name that is in use is the error.
    pub(crate) fn submit_each(
        &self,
        names: Vec<String>,
        requests: Vec<(Request, Tensor)>,
    ) -> Result<Arc<Ticket>, String> {
        self.in_flight.submit_each(&self.engine, names, requests)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.engine) }
        }
    }
}

static ENGINES: Mutex<Option<HashMap<u64, Weak<Live>>>> = Mutex::new(None);
/// The process that has published engines. In one forked from it, the lock may be held for ever.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// From now on, `number` means this engine.
pub(crate) fn publish(number: u64, engine: &Arc<Live>) {
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    let mut engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
    let engines = engines.get_or_insert_default();
    engines.retain(|_, engine| engine.strong_count() > 0);
    engines.insert(number, Arc::downgrade(engine));
}

/// The engine with this number, or why there is none and what to do.
pub(crate) fn find(number: u64) -> Result<Arc<Live>, String> {
    if ![0, std::process::id()].contains(&PROCESS.load(Ordering::Relaxed)) {
        return Err(FORKED.into());
    }
    let engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
    let engine = engines.as_ref().and_then(|engines| engines.get(&number)?.upgrade());
    engine.ok_or_else(|| match number {
        0 => "this process is in no job\nhint: call `init` first, on all ranks".into(),
        _ => format!(
            "this rank has no process set {number}\n\
             hint: call add_process_set on all ranks, and use the set only on those that are in it"
        ),
    })
}
