//! What is done, in the order in which it got done, for threads of Python that act on it.
//!
//! The engine's thread only puts a number into a queue: it must not wait for the interpreter.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use pyo3::{Python, pyclass, pymethods};

#[derive(Default)]
struct Queue {
    numbers: Mutex<(VecDeque<u64>, bool)>,
    changed: Condvar,
}

impl Queue {
    /// The numbers, and whether there will be no more.
    fn lock(&self) -> MutexGuard<'_, (VecDeque<u64>, bool)> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, number: u64) {
        self.lock().0.push_back(number);
        self.changed.notify_one();
    }

    fn next(&self) -> Option<u64> {
        let mut state = self.lock();
        loop {
            match (state.0.pop_front(), state.1) {
                (Some(number), _) => return Some(number),
                (None, true) => return None,
                (None, false) => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// A queue of numbers that stand for tickets.
#[pyclass(module = "sirtaki._native", frozen)]
#[derive(Default)]
pub(crate) struct Completions {
    queue: Arc<Queue>,
}

impl Completions {
    /// Puts in a number when it is called.
    pub(crate) fn callback(&self, number: u64) -> impl FnOnce() + Send + 'static {
        let queue = self.queue.clone();
        move || queue.put(number)
    }
}

#[pymethods]
impl Completions {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Puts in a number.
    fn put(&self, number: u64) {
        self.queue.put(number);
    }

    /// Waits for the next number; nothing once it is closed and empty.
    fn next(&self, py: Python<'_>) -> Option<u64> {
        py.detach(|| self.queue.next())
    }

    /// Ends the waits of all threads.
    fn close(&self) {
        self.queue.lock().1 = true;
        self.queue.changed.notify_all();
    }
}
