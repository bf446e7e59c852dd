//! How far a program has come, by its own report. The last one is kept in the flight record, which the launcher reads.

use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};

use super::{
    counts::{Counts, PROGRESS},
    nanos,
};
use crate::telemetry::recorder::Recorder;

/// What a program reports after a step. Whatever it does not know is left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// Steps that are done.
    pub step: u64,
    /// Of how many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Epochs that are done, with a fraction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<f64>,
    /// Of how many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u64>,
    /// Samples that all ranks together have seen since the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// The training loss of the last steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// The share recognised correctly in training, in the last steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// The loss on samples that are not trained on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_loss: Option<f64>,
    /// The share of those recognised correctly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_accuracy: Option<f64>,
}

/// Words of a report.
const SAYING: usize = 9;
/// Words in the table of numbers: how often something was reported, when, and what.
pub(super) const WORDS: usize = 2 + SAYING;

impl Progress {
    /// Whether it includes a test.
    pub(crate) fn is_test(&self) -> bool {
        self.test_loss.is_some() || self.test_accuracy.is_some()
    }

    /// As plain words, for memory and messages with a fixed layout.
    pub fn to_words(self) -> [u64; SAYING] {
        let number = |value: Option<f64>| value.unwrap_or(f64::NAN).to_bits();
        let count = |value: Option<u64>| value.map_or(u64::MAX, |value| value.min(u64::MAX - 1));
        [
            self.step,
            count(self.steps),
            number(self.epoch),
            count(self.epochs),
            count(self.samples),
            number(self.loss),
            number(self.accuracy),
            number(self.test_loss),
            number(self.test_accuracy),
        ]
    }

    /// What [`Progress::to_words`] made words of. Any words mean something.
    pub fn from_words(words: [u64; SAYING]) -> Self {
        let [step, steps, epoch, epochs, samples, loss, accuracy, test_loss, test_accuracy] = words;
        let number = |bits: u64| Some(f64::from_bits(bits)).filter(|value| !value.is_nan());
        let count = |value: u64| Some(value).filter(|&value| value != u64::MAX);
        Self {
            step,
            steps: count(steps),
            epoch: number(epoch),
            epochs: count(epochs),
            samples: count(samples),
            loss: number(loss),
            accuracy: number(accuracy),
            test_loss: number(test_loss),
            test_accuracy: number(test_accuracy),
        }
    }

    /// What is known now: the last report, with the test results of earlier ones if it has none.
    fn after(self, before: Option<Self>) -> Self {
        let Some(before) = before else { return self };
        Self {
            test_loss: self.test_loss.or(before.test_loss),
            test_accuracy: self.test_accuracy.or(before.test_accuracy),
            ..self
        }
    }
}

impl Recorder {
    /// The program has come this far.
    pub(crate) fn progress(&self, progress: &Progress) {
        let Some(times) = self.count(PROGRESS) else { return };
        let words = progress.after(self.counts().progress().map(|(_, before)| before)).to_words();
        for (index, word) in [nanos()].into_iter().chain(words).enumerate() {
            if let Some(place) = self.count(PROGRESS + 1 + index) {
                place.store(word, Ordering::Relaxed);
            }
        }
        times.fetch_add(1, Ordering::Release);
    }

    /// Whether the program has ever reported how far it has come.
    pub(super) fn has_progress(&self) -> bool {
        self.count(PROGRESS).is_some_and(|times| times.load(Ordering::Relaxed) > 0)
    }
}

impl Counts {
    /// How far the program has come, if it has reported that, and when, in nanoseconds of the host's monotonic clock.
    pub fn progress(&self) -> Option<(u64, Progress)> {
        let word = |index: usize| self.get(PROGRESS + index);
        (word(0) > 0).then(|| (word(1), Progress::from_words(std::array::from_fn(|index| word(2 + index)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_read_what_was_said_last() {
        let recorder = Recorder::create().unwrap();
        assert_eq!(recorder.counts().progress(), None);
        let test = Progress { step: 1, test_accuracy: Some(0.9), ..Progress::default() };
        recorder.progress(&test);
        let (pid, descriptor) = recorder.address();
        let reader = Recorder::open(pid, descriptor).unwrap();
        assert_eq!(reader.counts().progress().unwrap().1, test);
        let said = Progress { step: 7, steps: Some(9), epoch: Some(0.5), loss: Some(1.5), ..Progress::default() };
        recorder.progress(&said);
        let (time, read) = reader.counts().progress().unwrap();
        assert_eq!(read, Progress { test_accuracy: Some(0.9), ..said });
        assert!(time > 0 && time <= nanos());
    }

    #[test]
    fn what_is_not_known_is_not_written() {
        let text = serde_json::to_string(&Progress { step: 3, loss: Some(0.25), ..Progress::default() }).unwrap();
        assert_eq!(text, r#"{"step":3,"loss":0.25}"#);
        assert_eq!(serde_json::from_str::<Progress>(&text).unwrap().loss, Some(0.25));
    }
}
