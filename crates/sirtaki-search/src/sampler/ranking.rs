//! Which of two trials is better when there may be several objectives and constraints: those that keep the constraints
//! before those that do not, these by how far they break them, the others by the front they belong to, and within a
//! front those first that have no neighbours.

use super::{Observation, Outcome};
use crate::pareto;

/// Whether a trial tells something about its point.
pub(super) fn counts(observation: &Observation) -> bool {
    match observation.outcome {
        Outcome::Finished => !observation.losses.is_empty(),
        Outcome::Stopped => !observation.losses.is_empty(),
        Outcome::Diverged => true,
        Outcome::Running | Outcome::Failed => false,
    }
}

/// How good a trial is: the smaller, the better, and of the same class the less crowded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Standing {
    /// The front, counted from 0; those that break constraints and those without losses come after all fronts.
    pub(super) class: usize,
    /// How much room there is around it.
    pub(super) room: f64,
}

impl Standing {
    /// Less is better.
    pub(super) fn compare(&self, other: &Self) -> std::cmp::Ordering {
        self.class.cmp(&other.class).then(other.room.total_cmp(&self.room))
    }
}

/// How good each of some trials is among them.
pub(super) fn standings(observations: &[&Observation]) -> Vec<Standing> {
    let mut standings = vec![Standing { class: 0, room: 0.0 }; observations.len()];
    let kept = |o: &Observation| o.violation <= 0.0 && !o.losses.is_empty();
    let feasible: Vec<usize> = (0..observations.len()).filter(|&i| kept(observations[i])).collect();
    let losses: Vec<&[f64]> = feasible.iter().map(|&i| observations[i].losses.as_slice()).collect();
    let ranks = pareto::ranks(&losses);
    let fronts = ranks.iter().max().map_or(0, |rank| rank + 1);
    for front in 0..fronts {
        let members: Vec<usize> = (0..feasible.len()).filter(|&i| ranks[i] == front).collect();
        let room = pareto::crowding(&members.iter().map(|&i| losses[i]).collect::<Vec<_>>());
        for (&member, room) in members.iter().zip(room) {
            standings[feasible[member]] = Standing { class: front, room };
        }
    }
    let mut others: Vec<usize> = (0..observations.len()).filter(|&i| !kept(observations[i])).collect();
    // Without losses nothing is known but that it was bad.
    let badness = |i: usize| if observations[i].losses.is_empty() { f64::INFINITY } else { observations[i].violation };
    others.sort_by(|&a, &b| badness(a).total_cmp(&badness(b)));
    let mut class = fronts;
    for (place, &other) in others.iter().enumerate() {
        if place > 0 && badness(other) > badness(others[place - 1]) {
            class += 1;
        }
        standings[other] = Standing { class, room: 0.0 };
    }
    standings
}

/// The indices of trials, best first.
pub(super) fn best_first(observations: &[&Observation]) -> Vec<usize> {
    let standings = standings(observations);
    let mut order: Vec<usize> = (0..observations.len()).collect();
    order.sort_by(|&a, &b| standings[a].compare(&standings[b]));
    order
}
