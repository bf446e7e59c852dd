//! How often to poll while waiting: at once, then yielding the core to others, then sleeping for a moment.

use std::time::{Duration, Instant};

/// Polls without yielding the core. A poll costs some hundred nanoseconds, so this is about as long as one exchange
/// between running processes.
const SPINS: u32 = 300;
/// Polls with a yield in between.
const YIELDS: u32 = 2000;
const SHORTEST: Duration = Duration::from_micros(50);
const LONGEST: Duration = Duration::from_millis(1);

/// One wait.
pub(super) struct Pace {
    start: Instant,
    turn: u32,
    sleep: Duration,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), turn: 0, sleep: SHORTEST }
    }

    /// Lets some time pass. True when enough has passed that rarer checks are due too.
    pub(super) fn pause(&mut self) -> bool {
        self.turn += 1;
        if self.turn < SPINS {
            std::hint::spin_loop();
            return false;
        }
        if self.turn < YIELDS {
            std::thread::yield_now();
            return self.turn.is_multiple_of(100);
        }
        self.turn = YIELDS;
        std::thread::sleep(self.sleep);
        self.sleep = (self.sleep * 5 / 4).min(LONGEST);
        true
    }

    /// Since the wait began.
    pub(super) fn waited(&self) -> Duration {
        self.start.elapsed()
    }
}
