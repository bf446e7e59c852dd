//! What a study knows, as samplers see it: one observation per trial, with losses to minimise whatever the directions of
//! the objectives are.

use crate::{random::mix, space::Point};

/// How a trial stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has a point, and no end yet.
    Running,
    /// It has all its losses.
    Finished,
    /// It was stopped early; its losses are those it reported last, if any.
    Stopped,
    /// Its loss was not a number, which says that the point is bad.
    Diverged,
    /// It ended for a reason that may have nothing to do with the point.
    Failed,
}

/// What is known of one trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// The number of the trial; those of earlier studies that serve as a start have none.
    pub number: Option<u64>,
    /// What is tried.
    pub point: Point,
    /// How it stands.
    pub outcome: Outcome,
    /// One finite loss per objective, or none where there are none yet.
    pub losses: Vec<f64>,
    /// By how much it breaks the constraints, in sum; 0 where it keeps them.
    pub violation: f64,
    /// The last step that was reported, and the loss of the first objective there.
    pub last_report: Option<(u64, f64)>,
}

/// All observations: those that ended in the order of their ends, then those that run.
#[derive(Clone, Debug, Default)]
pub struct History {
    ended: Vec<Observation>,
    lineage: Vec<u64>,
    running: Vec<Observation>,
}

impl History {
    /// Trials that ended, in the order of their ends. It only grows.
    pub fn ended(&self) -> &[Observation] {
        &self.ended
    }

    /// Trials that run, in the order of their numbers.
    pub fn running(&self) -> &[Observation] {
        &self.running
    }

    /// Of the trials that ended, those that have losses and finished.
    pub fn finished(&self) -> impl Iterator<Item = &Observation> {
        self.ended.iter().filter(|observation| observation.outcome == Outcome::Finished)
    }

    /// Whether a point was tried or is being tried.
    pub fn has(&self, point: &Point) -> bool {
        self.ended.iter().chain(&self.running).any(|observation| observation.point == *point)
    }

    /// A fingerprint of the first `count` trials that ended. What was computed from them holds as long as it is
    /// the same.
    pub fn lineage(&self, count: usize) -> Option<u64> {
        if count == 0 { Some(0) } else { self.lineage.get(count - 1).copied() }
    }

    /// Adds a trial or takes its new state; one that ended stays as it is.
    pub fn put(&mut self, observation: Observation) {
        let place = self.running.iter().position(|running| running.number == observation.number);
        if observation.outcome == Outcome::Running {
            match place {
                Some(place) => self.running[place] = observation,
                None => {
                    let after = self.running.partition_point(|running| running.number < observation.number);
                    self.running.insert(after, observation);
                }
            }
            return;
        }
        if let Some(place) = place {
            self.running.remove(place);
        }
        let last = self.lineage.last().copied().unwrap_or(0);
        self.lineage.push(fingerprint(last, &observation));
        self.ended.push(observation);
    }

    /// Forgets a running trial, such as one that is to start again.
    pub fn withdraw(&mut self, number: u64) {
        self.running.retain(|running| running.number != Some(number));
    }
}

fn fingerprint(last: u64, observation: &Observation) -> u64 {
    let word = |state: u64, word: u64| mix(state ^ word).rotate_left(17);
    let mut state = word(last, observation.number.map_or(u64::MAX, |number| number));
    state = word(state, observation.outcome as u64);
    for value in &observation.point.0 {
        state = word(state, value.map_or(1, |value| value.to_bits() ^ 2));
    }
    let (step, report) = observation.last_report.unwrap_or((u64::MAX, 0.0));
    state = word(word(state, step), report.to_bits());
    state = word(state, observation.violation.to_bits());
    observation.losses.iter().fold(state, |state, loss| word(state, loss.to_bits()))
}
