//! Sleeping on a word of memory. Under loom, a model of the kernel's guarantee: comparing the word and falling asleep
//! are one step with respect to wake-ups.

#[cfg(not(loom))]
mod real {
    use std::{sync::atomic::AtomicU32, time::Duration};

    use rustix::thread::futex;

    /// Sleeps while `word` is `seen`, until woken, at most `limit`. May return early for no reason.
    pub(crate) fn sleep(word: &AtomicU32, seen: u32, limit: Duration) {
        let limit = rustix::time::Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        // Not private: the word is shared between processes. Every outcome means "look again".
        let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&limit));
    }

    /// Wakes everything asleep on `word`.
    pub(crate) fn wake(word: &AtomicU32) {
        let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
    }
}

#[cfg(loom)]
mod real {
    use std::time::Duration;

    use loom::sync::{Condvar, Mutex, atomic::AtomicU32, atomic::Ordering};

    loom::lazy_static! {
        static ref KERNEL: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }

    pub(crate) fn sleep(word: &AtomicU32, seen: u32, _limit: Duration) {
        let guard = KERNEL.0.lock().expect("the model's lock is never poisoned");
        if word.load(Ordering::SeqCst) == seen {
            drop(KERNEL.1.wait(guard));
        }
    }

    pub(crate) fn wake(_word: &AtomicU32) {
        let _guard = KERNEL.0.lock().expect("the model's lock is never poisoned");
        KERNEL.1.notify_all();
    }
}

pub(crate) use real::{sleep, wake};
