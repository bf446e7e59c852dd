//! Which trials count as good.

use std::cmp::Ordering;

use super::Known;
use crate::{
    pareto,
    sampler::{Observation, Outcome},
};

/// What a trial is sorted by, best first: trials that kept the constraints and finished, by loss; those that were stopped,
/// by how far they came and how well they did; those that broke constraints, by how much; those that diverged.
#[derive(Clone, Debug)]
pub(super) struct Key {
    class: u8,
    losses: Vec<f64>,
}

impl Key {
    pub(super) fn new(observation: &Observation) -> Self {
        let (class, losses) = match observation.outcome {
            Outcome::Diverged => (3, Vec::new()),
            _ if observation.violation > 0.0 => (2, vec![observation.violation]),
            Outcome::Finished => (0, observation.losses.clone()),
            _ => match observation.last_report {
                Some((step, loss)) => (1, vec![-(step as f64), loss]),
                None => (1, vec![f64::INFINITY]),
            },
        };
        Self { class, losses }
    }

    fn compare(&self, other: &Self) -> Ordering {
        let losses = || self.losses.iter().zip(&other.losses).map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne());
        self.class.cmp(&other.class).then_with(|| losses().unwrap_or(Ordering::Equal))
    }
}

/// How many of `count` trials are good.
pub(super) fn good_count(count: usize) -> usize {
    count.div_ceil(10).min(25)
}

/// The indices of trials such that the good ones come first, in order; the others follow in any order.
pub(super) fn order(trials: &[Known]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..trials.len()).collect();
    if trials.iter().any(|trial| trial.key.class == 0 && trial.key.losses.len() > 1) {
        sort_by_fronts(trials, &mut order);
        return order;
    }
    let compare = |a: &usize, b: &usize| trials[*a].key.compare(&trials[*b].key).then(a.cmp(b));
    let good = good_count(trials.len());
    if good < order.len() {
        order.select_nth_unstable_by(good, compare);
    }
    order[..good].sort_unstable_by(compare);
    order
}

/// With several objectives, those on better fronts come first, and of one front those in less crowded places.
fn sort_by_fronts(trials: &[Known], order: &mut [usize]) {
    let finished: Vec<usize> = (0..trials.len()).filter(|&index| trials[index].key.class == 0).collect();
    let losses: Vec<&[f64]> = finished.iter().map(|&index| trials[index].key.losses.as_slice()).collect();
    let ranks = pareto::ranks(&losses);
    let mut place = vec![(0, 0.0); trials.len()];
    for rank in 0..=ranks.iter().copied().max().unwrap_or(0) {
        let front: Vec<usize> = (0..finished.len()).filter(|&index| ranks[index] == rank).collect();
        let of_front: Vec<&[f64]> = front.iter().map(|&index| losses[index]).collect();
        for (&index, distance) in front.iter().zip(pareto::crowding(&of_front)) {
            place[finished[index]] = (rank, -distance);
        }
    }
    order.sort_by(|&a, &b| {
        let fronts = || place[a].0.cmp(&place[b].0).then(place[a].1.total_cmp(&place[b].1));
        let (first, second) = (&trials[a].key, &trials[b].key);
        first.class.cmp(&second.class).then_with(|| if first.class == 0 { fronts() } else { first.compare(second) })
    });
}
