//! Finding good sizes for fusion by measuring steps. Pure: durations come in, limits to try come out.
//!
//! Limits only decide how the table makes batches, and a new order is adopted between steps, so trying something never
//! touches a buffer in use.

use std::time::Duration;

use crate::fuse::Limits;

/// Steps after a change that do not count.
const SKIPPED: usize = 2;
/// Steps that count.
const MEASURED: usize = 7;
/// The first limits stay unless others are faster by this factor: noise should not decide.
const MARGIN: f64 = 0.97;

/// A search over limits.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuner {
    candidates: Vec<Limits>,
    /// Seconds per step of the candidates tried so far.
    medians: Vec<f64>,
    steps: Vec<Duration>,
}

impl Tuner {
    /// A search that starts with `first` and compares it with some others.
    pub fn new(first: Limits) -> Self {
        let others = [(2 << 20, 128 << 10), (4 << 20, 1 << 20), (16 << 20, 256 << 10), (32 << 20, 2 << 20)];
        let others = others.into_iter().map(|(fused, large)| Limits { fused, large }).filter(|other| *other != first);
        Self { candidates: std::iter::once(first).chain(others).collect(), medians: Vec::new(), steps: Vec::new() }
    }

    /// A step took this long; gives the limits to go on with when they change, at last the best ones.
    pub fn step(&mut self, duration: Duration) -> Option<Limits> {
        if self.is_done() {
            return None;
        }
        self.steps.push(duration);
        if self.steps.len() < SKIPPED + MEASURED {
            return None;
        }
        let mut counted = self.steps.split_off(SKIPPED);
        self.steps.clear();
        counted.sort_unstable();
        self.medians.push(counted[MEASURED / 2].as_secs_f64());
        Some(self.candidates.get(self.medians.len()).copied().unwrap_or_else(|| self.best().0))
    }

    /// Whether all candidates were measured.
    pub fn is_done(&self) -> bool {
        self.medians.len() == self.candidates.len()
    }

    /// The best limits so far, and how long a step took with them.
    pub fn best(&self) -> (Limits, Option<Duration>) {
        let first = self.medians.first().copied().unwrap_or(f64::INFINITY);
        let fastest = (0..self.medians.len()).min_by(|&a, &b| self.medians[a].total_cmp(&self.medians[b]));
        let chosen = fastest.filter(|&at| self.medians[at] < first * MARGIN).unwrap_or(0);
        (self.candidates[chosen], self.medians.get(chosen).map(|&seconds| Duration::from_secs_f64(seconds)))
    }

    /// The outcome in words.
    pub fn describe(&self) -> String {
        let each = self
            .candidates
            .iter()
            .zip(&self.medians)
            .map(|(limits, seconds)| format!("{} at {:.2} ms", describe(*limits), seconds * 1e3));
        let each: Vec<String> = each.collect();
        format!("fusion: {} from now on (measured: {})", describe(self.best().0), each.join(", "))
    }
}

fn describe(limits: Limits) -> String {
    format!("up to {} KiB together, {} KiB alone", limits.fused >> 10, limits.large >> 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(first: Limits, cost: impl Fn(Limits) -> u64) -> Tuner {
        let mut tuner = Tuner::new(first);
        let mut limits = first;
        for step in 0..1000 {
            // The first steps after a change are slow and must not count.
            let slow = if step % (SKIPPED + MEASURED) < SKIPPED { 1000 } else { 0 };
            if let Some(next) = tuner.step(Duration::from_micros(cost(limits) + slow)) {
                limits = next;
            }
        }
        assert!(tuner.is_done());
        assert_eq!(limits, tuner.best().0, "the last word is the best");
        tuner
    }

    #[test]
    fn the_fastest_wins_and_noise_does_not() {
        let first = Limits { fused: 8 << 20, large: 64 << 10 };
        let tuner = search(first, |limits| 10_000 - (limits.fused >> 13) as u64);
        assert_eq!(tuner.best().0.fused, 32 << 20);
        assert!(tuner.describe().starts_with("fusion: up to 32768 KiB together"), "{}", tuner.describe());
        assert_eq!(search(first, |limits| 10_000 - (limits.fused >> 20) as u64).best().0, first);
    }
}
