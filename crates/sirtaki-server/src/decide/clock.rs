//! How far each worker is, and who may go on.
//!
//! A worker's clock is the number of its pushes. With a delay of `k` a worker at clock `c` may read once everybody is
//! at `c - k` or beyond: with 0 all workers are in step, without a limit nobody waits for anybody.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::Id;

/// How far a worker may be ahead of the slowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Delay {
    /// By so many pushes.
    Bounded(u64),
    /// By any number.
    Unbounded,
}

impl Delay {
    /// Whether pushes of one clock are added up and change weights together.
    pub fn in_step(self) -> bool {
        self == Delay::Bounded(0)
    }

    /// Whether a worker at this clock may read while the slowest one has reached `slowest`.
    pub fn allows(self, clock: u64, slowest: u64) -> bool {
        match self {
            Delay::Bounded(delay) => slowest.saturating_add(delay) >= clock,
            Delay::Unbounded => true,
        }
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Delay::Bounded(delay) => delay.fmt(f),
            Delay::Unbounded => f.write_str("none"),
        }
    }
}

impl FromStr for Delay {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Delay::Unbounded),
            number => number.parse().map(Delay::Bounded).map_err(|_| "a number of steps, or none".into()),
        }
    }
}

/// How many pushes of each worker are part of something.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks(BTreeMap<Id, u64>);

impl Clocks {
    /// Takes note of a worker's push, unless it is a repetition. Workers push in order, without gaps but where they had
    /// nothing to say to this block.
    pub fn advance(&mut self, worker: Id, clock: u64) -> bool {
        let reached = self.0.entry(worker).or_default();
        let new = clock >= *reached;
        *reached = (*reached).max(clock.saturating_add(1));
        new
    }

    /// The worker has been at this clock.
    pub fn begin(&mut self, worker: Id, clock: u64) {
        let reached = self.0.entry(worker).or_default();
        *reached = (*reached).max(clock);
    }

    /// The clock that all of these workers have reached; those of whom nothing is known are where they began.
    pub fn slowest(&self, workers: &[Id], starts: &BTreeMap<Id, u64>) -> u64 {
        let reached = |worker: &Id| self.0.get(worker).max(starts.get(worker)).copied().unwrap_or(0);
        workers.iter().map(reached).min().unwrap_or(u64::MAX)
    }

    /// How many workers have pushed at this clock.
    pub fn beyond(&self, clock: u64) -> usize {
        self.0.values().filter(|&&reached| reached > clock).count()
    }

    /// The largest clock of anybody.
    pub fn largest(&self) -> u64 {
        self.0.values().copied().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_noticed_and_gaps_are_not_held_against_anybody() {
        let mut clocks = Clocks::default();
        assert!(clocks.advance(1, 0) && !clocks.advance(1, 0));
        assert!(clocks.advance(1, 3) && !clocks.advance(1, 2), "nothing for this block at 1 and 2");
        assert_eq!(clocks.slowest(&[1], &BTreeMap::new()), 4);
        assert_eq!(clocks.slowest(&[1, 2], &BTreeMap::from([(2, 3)])), 3, "2 came at 3");
        assert_eq!(clocks.largest(), 4);
    }

    #[test]
    fn delays_are_bounds() {
        assert!(Delay::Bounded(0).allows(3, 3) && !Delay::Bounded(0).allows(4, 3));
        assert!(Delay::Bounded(2).allows(5, 3) && !Delay::Bounded(2).allows(6, 3));
        assert!(Delay::Unbounded.allows(u64::MAX, 0));
        assert_eq!("none".parse(), Ok(Delay::Unbounded));
        assert_eq!("4".parse(), Ok(Delay::Bounded(4)));
        assert!("-1".parse::<Delay>().is_err());
    }
}
