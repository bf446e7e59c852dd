//! Submissions still to come: a rank that has some is not taken for one that will submit nothing more.

use std::{
    mem::ManuallyDrop,
    sync::{Mutex, MutexGuard, PoisonError},
    thread::{self, ThreadId},
};

use pyo3::{Bound, pyclass, pymethods, types::PyTuple};
use sirtaki_engine::Doing;

/// A thread, as the engine knows it.
#[pyclass(module = "sirtaki._native", frozen)]
pub(crate) struct Thread(pub(crate) ThreadId);

#[pymethods]
impl Thread {
    /// The thread that runs this.
    #[new]
    fn new() -> Self {
        Self(thread::current().id())
    }
}

/// A hand-in, and the thread that carries it out.
type Announced = (sirtaki_engine::HandIn, Option<Doing>);

/// Something that may be submitted later, by whichever thread enters this. It ends when that thread leaves, or when
/// nothing refers to it any more.
#[pyclass(module = "sirtaki._native", frozen)]
pub(crate) struct HandIn {
    announced: Mutex<Option<ManuallyDrop<Announced>>>,
    /// The process it belongs to: a forked one does not speak for the rank.
    process: u32,
}

impl HandIn {
    pub(crate) fn new(hand_in: sirtaki_engine::HandIn) -> Self {
        Self { announced: Mutex::new(Some(ManuallyDrop::new((hand_in, None)))), process: std::process::id() }
    }

    fn announced(&self) -> MutexGuard<'_, Option<ManuallyDrop<Announced>>> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl HandIn {
    fn __enter__(&self) {
        if let Some(announced) = &mut *self.announced()
            && self.process == std::process::id()
        {
            announced.1 = Some(announced.0.begin());
        }
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyTuple>) {
        self.end();
    }

    /// Nothing will be submitted, or nothing more.
    fn end(&self) {
        let announced = self.announced().take();
        if let Some(announced) = announced
            && self.process == std::process::id()
        {
            let (hand_in, doing) = ManuallyDrop::into_inner(announced);
            drop(doing);
            drop(hand_in);
        }
    }
}

impl Drop for HandIn {
    fn drop(&mut self) {
        self.end();
    }
}
