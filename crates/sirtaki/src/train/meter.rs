//! What is counted while training. Time spent on testing and saving is kept apart, so that rates are those of training.

use std::time::{Duration, Instant};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Losses and correct answers for some samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Score {
    /// Sum of the losses.
    pub(super) loss: f64,
    /// How many were recognised.
    pub(super) right: f64,
    /// How many there were.
    pub(super) count: f64,
}

impl Score {
    pub(super) fn add(&mut self, other: Score) {
        self.loss += other.loss;
        self.right += other.right;
        self.count += other.count;
    }

    pub(super) fn mean_loss(self) -> f64 {
        self.loss / self.count.max(1.0)
    }

    pub(super) fn accuracy(self) -> f64 {
        self.right / self.count.max(1.0)
    }

    pub(super) fn to_array(self) -> [f64; 3] {
        [self.loss, self.right, self.count]
    }
}

/// A stopwatch that is paused while something else is done. As data it is its time, from which it runs on elsewhere.
#[derive(Debug, Clone)]
pub(super) struct Watch {
    before: Duration,
    since: Option<Instant>,
}

impl Watch {
    /// A running stopwatch.
    pub(super) fn running() -> Self {
        Self { before: Duration::ZERO, since: Some(Instant::now()) }
    }

    pub(super) fn pause(&mut self) {
        self.before = self.time();
        self.since = None;
    }

    pub(super) fn go_on(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    pub(super) fn time(&self) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl Serialize for Watch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.time().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Watch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self { before: Duration::deserialize(deserializer)?, ..Self::running() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paused_stopwatch_does_not_advance() {
        let mut watch = Watch::running();
        watch.pause();
        let time = watch.time();
        assert_eq!(watch.time(), time);
        watch.go_on();
        watch.go_on();
        assert!(watch.time() >= time);
    }

    #[test]
    fn means_are_over_samples() {
        let mut score = Score::default();
        assert_eq!((score.mean_loss(), score.accuracy()), (0.0, 0.0));
        score.add(Score { loss: 3.0, right: 1.0, count: 2.0 });
        score.add(Score { loss: 1.0, right: 2.0, count: 2.0 });
        assert_eq!((score.mean_loss(), score.accuracy()), (1.0, 0.75));
    }
}
