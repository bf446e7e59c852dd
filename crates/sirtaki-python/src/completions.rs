//! Numbers of finished tickets, in the order in which they finished, for Python threads that act on them.
//!
//! The engine's thread only puts a number into a queue: it must not wait for the interpreter. The thread that acts on
//! it may submit something, which is announced when the number is promised.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use pyo3::{Python, pyclass, pymethods};

use crate::hand_in::HandIn;

#[derive(Default)]
struct Queue {
    numbers: Mutex<(VecDeque<u64>, bool)>,
    changed: Condvar,
    announced: Mutex<HashMap<u64, HandIn>>,
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
    /// Puts in a number when it is called; `hand_in` announces what may follow.
    pub(crate) fn callback(&self, number: u64, hand_in: Option<HandIn>) -> impl FnOnce() + Send + 'static {
        if let Some(hand_in) = hand_in {
            self.queue.announced.lock().unwrap_or_else(PoisonError::into_inner).insert(number, hand_in);
        }
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

    /// Waits for the next number; `None` once it is closed and empty.
    fn next(&self, py: Python<'_>) -> Option<u64> {
        py.detach(|| self.queue.next())
    }

    /// What was announced for a number; entered while a thread acts on it.
    fn hand_in(&self, number: u64) -> Option<HandIn> {
        self.queue.announced.lock().unwrap_or_else(PoisonError::into_inner).remove(&number)
    }

    /// Ends the waits of all threads.
    fn close(&self) {
        self.queue.lock().1 = true;
        self.queue.changed.notify_all();
    }
}
