//! What the processes are to explain: one loss per trial, and how far constraints are broken.
//!
//! Several objectives become one loss by weights that are drawn anew for every trial (ParEGO, Knowles 2006): the largest
//! weighted loss, plus a little of their sum. Over many trials the weights, and with them the points, cover the front.

use super::super::{Observation, Outcome, Question, ranking};
use crate::random::Random;

/// The trials of a history that say something about their points. What was stopped and tried again counts once.
pub(super) fn known(ended: &[Observation]) -> Vec<&Observation> {
    let again = |index: usize| {
        let stopped = &ended[index];
        let later = |other: &Observation| ranking::counts(other) && other.point == stopped.point;
        stopped.outcome == Outcome::Stopped && ended[index + 1..].iter().any(later)
    };
    let known = |index: &usize| ranking::counts(&ended[*index]) && !again(*index);
    (0..ended.len()).filter(known).map(|index| &ended[index]).collect()
}

/// How much each of several objectives counts; nothing when there is one only.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Weights(Option<Vec<f64>>);

impl Weights {
    /// All the same.
    pub(super) fn equal(known: &[&Observation]) -> Self {
        let objectives = known.iter().map(|observation| observation.losses.len()).max().unwrap_or(0);
        Self((objectives > 1).then(|| vec![1.0 / objectives as f64; objectives]))
    }

    /// Those of one trial.
    pub(super) fn drawn(known: &[&Observation], question: &Question<'_>) -> Self {
        let mut random = Random::new(question.seed, &[question.number, 0x7765]);
        Self(Self::equal(known).0.map(|equal| {
            // Exponential variates divided by their sum are evenly spread over all weights.
            let drawn: Vec<f64> = equal.iter().map(|_| -(1.0 - random.uniform()).ln()).collect();
            let sum: f64 = drawn.iter().sum::<f64>().max(f64::MIN_POSITIVE);
            drawn.iter().map(|weight| weight / sum).collect()
        }))
    }

    /// Whether there is only one objective.
    pub(super) fn is_single(&self) -> bool {
        self.0.is_none()
    }

    /// One loss per trial. Those that diverged are as bad as the worst.
    pub(super) fn losses(&self, known: &[&Observation]) -> Vec<f64> {
        let raw: Vec<Option<f64>> = match &self.0 {
            None => known.iter().map(|observation| observation.losses.first().copied()).collect(),
            Some(weights) => combined(weights, known),
        };
        let worst = raw.iter().flatten().copied().fold(f64::NEG_INFINITY, f64::max);
        let worst = if worst.is_finite() { worst } else { 0.0 };
        raw.into_iter().map(|loss| loss.unwrap_or(worst)).collect()
    }
}

fn combined(weights: &[f64], known: &[&Observation]) -> Vec<Option<f64>> {
    let range = |objective: usize| {
        let all = known.iter().filter_map(|observation| observation.losses.get(objective));
        all.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &loss| (low.min(loss), high.max(loss)))
    };
    let ranges: Vec<(f64, f64)> = (0..weights.len()).map(range).collect();
    let combine = |losses: &[f64]| {
        let (mut largest, mut sum) = (f64::NEG_INFINITY, 0.0);
        for ((loss, weight), (low, high)) in losses.iter().zip(weights).zip(&ranges) {
            let part = weight * (loss - low) / (high - low).max(f64::MIN_POSITIVE);
            largest = largest.max(part);
            sum += part;
        }
        largest + 0.05 * sum
    };
    known.iter().map(|observation| (!observation.losses.is_empty()).then(|| combine(&observation.losses))).collect()
}

/// How far each trial breaks the constraints, on a scale on which those that keep them are below 0; nothing when all do.
pub(super) fn violations(known: &[&Observation]) -> Option<Vec<f64>> {
    let mut broken: Vec<f64> = known.iter().map(|observation| observation.violation).filter(|v| *v > 0.0).collect();
    broken.sort_by(f64::total_cmp);
    let typical = *broken.get(broken.len() / 2)?;
    let scaled = |violation: f64| if violation > 0.0 { (violation / typical).ln_1p().min(3.0) } else { -0.5 };
    Some(known.iter().map(|observation| scaled(observation.violation)).collect())
}
