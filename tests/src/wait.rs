//! Waiting for what other processes do, with a time limit.

use std::{
    thread,
    time::{Duration, Instant},
};

/// How long anything may take on the slowest and busiest machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// Waits until `condition` holds; a failure names `what`. Returns how long it took.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited {} s in vain for: {what}", PATIENCE.as_secs());
        thread::sleep(Duration::from_millis(10));
    }
    start.elapsed()
}
