//! A number that one process changes and others wait for.
//!
//! Changing it costs no system call while nobody sleeps. That needs care: the writer stores the number and then looks
//! for sleepers; the sleeper announces itself and then looks at the number. Both orders are sequentially consistent, so
//! at least one of them sees the other; the loom test below tries every interleaving.

use std::time::Duration;

use super::{
    futex,
    sync::{AtomicU32, Ordering},
};

/// A number with sleepers. All-zero bytes are a valid one, so fresh shared memory needs no set-up.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Signal {
    value: AtomicU32,
    sleepers: AtomicU32,
}

impl Signal {
    /// The number; everything written before it was set is visible.
    #[inline]
    pub fn get(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    /// Sets the number and wakes the sleepers.
    #[inline]
    pub fn set(&self, value: u32) {
        self.value.store(value, Ordering::SeqCst);
        self.wake();
    }

    /// Adds one and wakes the sleepers.
    #[inline]
    pub fn advance(&self) {
        self.value.fetch_add(1, Ordering::SeqCst);
        self.wake();
    }

    #[inline]
    fn wake(&self) {
        in_order();
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            futex::wake(&self.value);
        }
    }

    /// Sleeps until the number is no longer `seen`, at most `limit`. May return early; look again.
    pub fn sleep(&self, seen: u32, limit: Duration) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        in_order();
        if self.value.load(Ordering::SeqCst) == seen {
            futex::sleep(&self.value, seen, limit);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Does nothing in production. Loom treats sequentially consistent accesses as acquire and release only, and needs a
/// fence to see what the language promises about their order.
#[inline]
fn in_order() {
    #[cfg(loom)]
    loom::sync::atomic::fence(Ordering::SeqCst);
}

#[cfg(all(test, loom))]
mod tests {
    use std::time::Duration;

    use loom::{sync::Arc, thread};

    use super::Signal;

    /// A lost wake-up would show as a deadlock, because the model's sleep has no time limit.
    #[test]
    fn no_wake_up_is_lost() {
        loom::model(|| {
            let signal = Arc::new(Signal::default());
            let writer = {
                let signal = signal.clone();
                thread::spawn(move || signal.advance())
            };
            while signal.get() == 0 {
                signal.sleep(0, Duration::MAX);
            }
            writer.join().expect("the writer does not panic");
        });
    }
}
