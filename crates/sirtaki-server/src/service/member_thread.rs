//! The loop of a member in a thread of its own: stopped when its owner is dropped, and waited for.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{Builder, JoinHandle},
};

use sirtaki_comm::CommError;

use super::post::Ringer;
use crate::ServerError;

/// A thread that looks at a flag whenever it is rung.
#[derive(Debug)]
pub(super) struct MemberThread {
    name: &'static str,
    stop: Arc<AtomicBool>,
    ringer: Ringer,
    thread: Option<JoinHandle<Result<(), ServerError>>>,
}

impl MemberThread {
    pub(super) fn start(
        name: &'static str,
        ringer: Ringer,
        work: impl FnOnce(&AtomicBool) -> Result<(), ServerError> + Send + 'static,
    ) -> Result<Self, ServerError> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = Builder::new().name(name.into()).spawn(move || work(&stopped));
        let thread = thread.map_err(|error| CommError::io("cannot start a thread", error))?;
        Ok(Self { name, stop, ringer, thread: Some(thread) })
    }

    /// How it ended; a panic is an error.
    pub(super) fn join(mut self) -> Result<(), ServerError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let panicked = |panic: Box<dyn Any + Send>| ServerError::Panicked { who: self.name, message: message(&*panic) };
        thread.join().map_err(panicked)?
    }
}

impl Drop for MemberThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.ringer.ring();
        self.thread.take().map(JoinHandle::join);
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}
