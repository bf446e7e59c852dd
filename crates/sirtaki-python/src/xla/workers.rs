//! Threads that continue XLA's programs.
//!
//! Whoever completes a future may find itself executing the rest of the program that waited for it. The engine's thread
//! must not: everything else would wait meanwhile, and a program that waits for another collective would wait for ever.
//! So there is always an idle thread to continue with; one is started when there is none. They end with the process.

use std::{
    cell::Cell,
    collections::VecDeque,
    sync::{Condvar, Mutex, PoisonError},
    thread,
};

type Work = Box<dyn FnOnce() + Send>;

struct Queue {
    waiting: VecDeque<Work>,
    idle: usize,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { waiting: VecDeque::new(), idle: 0 });
static FILLED: Condvar = Condvar::new();

thread_local! {
    /// Whether this is one of the threads.
    static WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Does the work in one of the threads: this one, if it is.
pub(super) fn perform(work: impl FnOnce() + Send + 'static) {
    if WORKER.get() {
        return work();
    }
    let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
    queue.waiting.push_back(Box::new(work));
    if queue.waiting.len() <= queue.idle {
        FILLED.notify_one();
        return;
    }
    drop(queue);
    if thread::Builder::new().name("sirtaki-xla".into()).spawn(run).is_err() {
        // Without a thread it is done here: late is better than never.
        let work = QUEUE.lock().unwrap_or_else(PoisonError::into_inner).waiting.pop_front();
        work.into_iter().for_each(|work| work());
    }
}

fn run() {
    WORKER.set(true);
    let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(work) = queue.waiting.pop_front() {
            drop(queue);
            work();
            queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        queue.idle += 1;
        queue = FILLED.wait(queue).unwrap_or_else(PoisonError::into_inner);
        queue.idle -= 1;
    }
}
