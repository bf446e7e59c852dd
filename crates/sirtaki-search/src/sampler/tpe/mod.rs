//! Tree-structured Parzen estimator: suggests what is likely among good trials and unlikely among the others.
//!
//! Trials are split into a few good ones and the rest, each side becomes a sum of kernels, one per trial ([`kernels`]), and
//! of some candidates drawn from the good side the one with the largest ratio of densities wins. Kernels are products over
//! all parameters, so what belongs together stays together; where a parameter exists in the candidate but not in
//! the kernel's trial, the kernel is flat. That makes one model of a conditional space, without groups to sample one
//! by one. Trials that still run count as bad (the *constant liar*), which keeps parallel suggestions apart.
//!
//! Losses are never compared with each other but by order, so no scale of an objective misleads it.

mod kernels;
mod split;

use self::{kernels::Kernels, split::Key};
use super::{History, Outcome, Question, Sampler, sobol::sobol};
use crate::{
    random::{Random, mix},
    space::{Point, Space},
};

/// The sampler and its settings.
#[derive(Clone, Debug)]
pub struct TpeSampler {
    /// So many trials come from a Sobol sequence before anything is modelled.
    pub start: usize,
    /// How many candidates compete.
    pub candidates: usize,
    kept: Kept,
}

impl Default for TpeSampler {
    fn default() -> Self {
        Self { start: 10, candidates: 24, kept: Kept::default() }
    }
}

/// What is known of trials that ended, ready for use: unit coordinates and keys to sort by.
#[derive(Clone, Debug, Default)]
struct Kept {
    space: Space,
    taken: usize,
    lineage: u64,
    trials: Vec<Known>,
}

/// A trial as the model sees it.
#[derive(Clone, Debug)]
struct Known {
    number: u64,
    /// Unit coordinates; not a number where a parameter is off.
    unit: Vec<f64>,
    key: Key,
}

impl Kept {
    fn update(&mut self, space: &Space, history: &History) {
        if self.space != *space || history.lineage(self.taken) != Some(self.lineage) {
            *self = Self { space: space.clone(), ..Self::default() };
        }
        for observation in &history.ended()[self.taken..] {
            if observation.outcome != Outcome::Failed {
                // Those of earlier studies come first, so their place serves as a number that no trial of this one has.
                let number = observation.number.unwrap_or(u64::MAX - self.trials.len() as u64);
                self.trials.push(Known { number, unit: unit(space, &observation.point), key: Key::new(observation) });
            }
        }
        self.taken = history.ended().len();
        self.lineage = history.lineage(self.taken).unwrap_or(0);
    }
}

fn unit(space: &Space, point: &Point) -> Vec<f64> {
    space.to_unit(point).into_iter().map(|unit| unit.unwrap_or(f64::NAN)).collect()
}

/// The rest is known well enough from so many trials; more would only take time.
const MOST_KERNELS: usize = 2048;

impl TpeSampler {
    /// Both sides of the split as kernels: the good, and the rest with those that run.
    fn model(&self, question: &Question<'_>) -> (Kernels, Kernels) {
        let space = question.space;
        let order = split::order(&self.kept.trials);
        let good = split::good_count(self.kept.trials.len());
        let (good, rest) = order.split_at(good.min(order.len()));
        let keep = |number: u64| rest.len() <= MOST_KERNELS || sampled(number, rest.len());
        let running: Vec<Vec<f64>> =
            question.history.running().iter().map(|running| unit(space, &running.point)).collect();
        let coordinates = |indices: &[usize]| -> Vec<&[f64]> {
            indices.iter().map(|&index| self.kept.trials[index].unit.as_slice()).collect()
        };
        let mut rest: Vec<usize> = rest.iter().copied().filter(|&index| keep(self.kept.trials[index].number)).collect();
        rest.sort_unstable();
        let mut bad = coordinates(&rest);
        bad.extend(running.iter().map(Vec::as_slice));
        // The better a good trial is, the more it counts; and around good ones it pays to look closely.
        let weight = |rank: usize| 1.0 - rank as f64 / good.len() as f64;
        let narrow = |count: usize| 1.0 / (2.0 + count as f64).min(100.0);
        let (weights, even) = ((0..good.len()).map(weight).collect(), vec![1.0; bad.len()]);
        let likely = Kernels::new(space, &coordinates(good), weights, 0.4 * narrow(good.len()));
        (likely, Kernels::new(space, &bad, even, narrow(bad.len())))
    }
}

fn sampled(number: u64, of: usize) -> bool {
    mix(number) as f64 / u64::MAX as f64 * of as f64 <= MOST_KERNELS as f64
}

impl Sampler for TpeSampler {
    fn suggest(&mut self, question: &Question<'_>) -> Point {
        let Question { seed, space, history, number } = *question;
        self.kept.update(space, history);
        if self.kept.trials.len() < self.start.max(1) || space.is_empty() {
            return space.from_unit(&sobol(seed, number, space.len()));
        }
        let (good, bad) = self.model(question);
        let mut random = Random::new(seed, &[number, 1]);
        let mut best: Option<(bool, f64, Point)> = None;
        for _ in 0..self.candidates.max(1) {
            let point = good.draw(space, &mut random);
            let unit = unit(space, &point);
            let score = good.log_density(&unit) - bad.log_density(&unit);
            let new = space.count().is_none() || !history.has(&point);
            if best.as_ref().is_none_or(|best| (new, score) > (best.0, best.1)) {
                best = Some((new, score, point));
            }
        }
        best.map_or_else(|| space.from_unit(&sobol(seed, number, space.len())), |best| best.2)
    }
}
