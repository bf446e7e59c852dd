//! Threads that make batches before they are asked for.
//!
//! A thread takes the next number of the plan, as long as it is not too far ahead of the consumer, makes that batch and
//! puts it into the number's slot; the consumer empties slots in order. So the order is that of the plan whatever the
//! number of threads, and memory is bounded by the number of slots. A plan is a pure function, so threads need only be
//! given numbers. Rejected: a channel, which delivers what is ready first and not what comes next.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use super::{Plan, Samples};
use crate::{Error, Result, error::panic_message};

/// How much is done ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ahead {
    /// Threads that read; at least one is used.
    pub threads: usize,
    /// Batches that may be ready or being made; at least one.
    pub batches: usize,
}

impl Default for Ahead {
    /// One thread, two batches: enough if reading is faster than training.
    fn default() -> Self {
        Self { threads: 1, batches: 2 }
    }
}

/// Samples of one batch, one after the other. Its memory is reused once it is dropped.
#[derive(Debug)]
pub struct Batch {
    number: usize,
    shape: Arc<[usize]>,
    buffers: Buffers,
    pool: Arc<Pool>,
}

#[derive(Debug, Default)]
struct Buffers {
    values: Vec<f32>,
    labels: Vec<u32>,
    indices: Vec<u32>,
}

type Pool = Mutex<Vec<Buffers>>;

impl Batch {
    /// Its number in the plan.
    pub fn number(&self) -> usize {
        self.number
    }

    /// How many samples it holds; it may be none.
    pub fn count(&self) -> usize {
        self.buffers.labels.len()
    }

    /// The dimensions of one sample.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The values of all samples.
    pub fn values(&self) -> &[f32] {
        &self.buffers.values
    }

    /// The label of each sample.
    pub fn labels(&self) -> &[u32] {
        &self.buffers.labels
    }

    /// The number of each sample.
    pub fn indices(&self) -> &[u32] {
        &self.buffers.indices
    }

    /// The values, to keep; their memory is then not reused.
    pub fn take_values(&mut self) -> Vec<f32> {
        std::mem::take(&mut self.buffers.values)
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        lock(&self.pool).push(std::mem::take(&mut self.buffers));
    }
}

/// The batches of a plan, in its order. Ends after the first error.
///
/// Dropping it ends its threads, which takes as long as reading one sample.
pub struct Loader {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    pool: Arc<Pool>,
    shape: Arc<[usize]>,
    next: usize,
    total: usize,
}

struct Shared {
    samples: Arc<dyn Samples>,
    plan: Box<dyn Plan>,
    pool: Arc<Pool>,
    total: usize,
    state: Mutex<State>,
    room: Condvar,
    ready: Condvar,
}

struct State {
    /// The next number to be made.
    claimed: usize,
    /// The next number to be given to the consumer.
    wanted: usize,
    /// Batch `n` goes into slot `n % slots`.
    slots: Vec<Option<Result<Buffers>>>,
    stop: bool,
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Loader({} of {} batches, {} threads)", self.next, self.total, self.threads.len())
    }
}

impl Loader {
    /// Starts to read the batches of a plan.
    pub fn new(samples: Arc<dyn Samples>, plan: impl Plan + 'static, ahead: Ahead) -> Result<Self> {
        let (total, pool, shape) = (plan.batches(), Arc::<Pool>::default(), samples.shape().into());
        let slots = (0..ahead.batches.max(1)).map(|_| None).collect();
        let state = Mutex::new(State { claimed: 0, wanted: 0, slots, stop: false });
        let (room, ready) = (Condvar::new(), Condvar::new());
        let shared = Shared { samples, plan: Box::new(plan), pool: Arc::clone(&pool), total, state, room, ready };
        let mut loader = Self { shared: Arc::new(shared), threads: Vec::new(), pool, shape, next: 0, total };
        for number in 0..ahead.threads.max(1) {
            let shared = Arc::clone(&loader.shared);
            let thread = thread::Builder::new().name(format!("sirtaki-data-{number}"));
            let thread =
                thread.spawn(move || shared.work()).map_err(Error::io("start", Path::new("thread for data")))?;
            loader.threads.push(thread);
        }
        Ok(loader)
    }
}

impl Iterator for Loader {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        if self.next == self.total {
            return None;
        }
        let mut state = lock(&self.shared.state);
        let slot = self.next % state.slots.len();
        let result = loop {
            match state.slots[slot].take() {
                Some(result) => break result,
                None => state = self.shared.ready.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        };
        let number = self.next;
        self.next = if result.is_ok() { number + 1 } else { self.total };
        state.wanted = self.next;
        state.stop |= result.is_err();
        drop(state);
        self.shared.room.notify_all();
        let (shape, pool) = (Arc::clone(&self.shape), Arc::clone(&self.pool));
        Some(result.map(|buffers| Batch { number, shape, buffers, pool }))
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        lock(&self.shared.state).stop = true;
        self.shared.room.notify_all();
        for thread in self.threads.drain(..) {
            // A thread catches every panic of a reader, so there is nothing to report.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self) {
        while let Some(number) = self.claim() {
            let mut buffers = lock(&self.pool).pop().unwrap_or_default();
            // After a panic, buffers are filled from scratch, so none can be seen half-made.
            let result = catch_unwind(AssertUnwindSafe(|| self.fill(number, &mut buffers)));
            let result =
                result.unwrap_or_else(|panic| Err(Error::Panic { batch: number, message: panic_message(&*panic) }));
            let mut state = lock(&self.state);
            let slot = number % state.slots.len();
            state.slots[slot] = Some(result.map(|()| buffers));
            drop(state);
            self.ready.notify_one();
        }
    }

    /// The next number to be made, once there is room for it.
    fn claim(&self) -> Option<usize> {
        let mut state = lock(&self.state);
        loop {
            if state.stop || state.claimed == self.total {
                return None;
            }
            if state.claimed < state.wanted + state.slots.len() {
                state.claimed += 1;
                return Some(state.claimed - 1);
            }
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn fill(&self, number: usize, Buffers { values, labels, indices }: &mut Buffers) -> Result<()> {
        self.plan.indices(number, indices);
        let size: usize = self.samples.shape().iter().product();
        values.resize(indices.len() * size, 0.0);
        labels.clear();
        for (place, &index) in indices.iter().enumerate() {
            if lock(&self.state).stop {
                break;
            }
            let values = &mut values[place * size..(place + 1) * size];
            let label = self.samples.read_in(self.plan.epoch(), index as usize, values)?;
            labels.push(label);
        }
        Ok(())
    }
}

/// Nothing that panics runs under a lock, so the protected data is intact.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "loader_tests.rs"]
mod tests;
