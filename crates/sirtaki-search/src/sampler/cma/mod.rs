//! CMA-ES: a normal distribution that moves towards better points, and takes on the shape of the landscape (Hansen,
//! 2016), with restarts that double the number of points per generation (IPOP).
//!
//! Trials end in any order, and some come from elsewhere. So a generation is not what was asked for together, but as
//! many trials as a generation has, in the order of their ends: the distribution is a fold over the history, and
//! points that it would hardly have drawn count only as far as their direction goes, as Hansen's injection of
//! solutions does. Choices have a probability per alternative that follows the better points with the same weights.

mod distribution;

use distribution::Distribution;

use super::{Observation, Question, Sampler, ranking};
use crate::{
    random::Random,
    space::{Point, Space},
};

/// Suggests by CMA-ES.
#[derive(Debug, Clone, Default)]
pub struct CmaEsSampler {
    state: Option<State>,
}

/// What was learnt from the first `count` ended trials of a history with this lineage.
#[derive(Debug, Clone)]
struct State {
    seed: u64,
    space: Space,
    count: usize,
    lineage: u64,
    distribution: Distribution,
}

impl State {
    fn new(question: &Question<'_>) -> Self {
        let distribution = Distribution::new(question.space, question.seed);
        Self { seed: question.seed, space: question.space.clone(), count: 0, lineage: 0, distribution }
    }

    fn belongs_to(&self, question: &Question<'_>) -> bool {
        let same = question.history.lineage(self.count) == Some(self.lineage);
        same && self.seed == question.seed && self.space == *question.space
    }
}

impl Sampler for CmaEsSampler {
    fn suggest(&mut self, question: &Question<'_>) -> Point {
        let ended = question.history.ended();
        let kept = self.state.take().filter(|state| state.belongs_to(question));
        let mut state = kept.unwrap_or_else(|| State::new(question));
        while let Some(taken) = next_generation(&ended[state.count..], state.distribution.population()) {
            let generation = &ended[state.count..state.count + taken];
            let trials: Vec<&Observation> = generation.iter().filter(|o| ranking::counts(o)).collect();
            let order = ranking::best_first(&trials);
            let sorted: Vec<&Observation> = order.iter().map(|&index| trials[index]).collect();
            state.distribution.learn(question.space, &sorted);
            state.count += taken;
        }
        state.lineage = question.history.lineage(state.count).unwrap_or_default();
        let mut random = Random::new(question.seed, &[question.number, 0x636d]);
        let point = state.distribution.draw(question.space, &mut random);
        self.state = Some(state);
        point
    }
}

/// How many ended trials the next generation takes; none while there are not enough that count.
fn next_generation(ended: &[Observation], population: usize) -> Option<usize> {
    ended.iter().enumerate().filter(|(_, o)| ranking::counts(o)).nth(population - 1).map(|(index, _)| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sampler::{
            History, Outcome,
            tests::{cube, finish_all, values},
        },
        space::{Choice, Domain, Parameter},
    };

    /// The best loss after so many trials.
    fn best(space: &Space, trials: u64, function: impl Fn(&[f64]) -> f64) -> f64 {
        let (mut history, mut sampler, mut best) = (History::default(), CmaEsSampler::default(), f64::INFINITY);
        for number in 0..trials {
            let point = sampler.suggest(&Question { seed: 3, space, history: &history, number });
            assert!(space.contains(&point));
            let loss = function(&values(&point));
            best = best.min(loss);
            history.put(finish_all(number, point, vec![loss]));
        }
        best
    }

    #[test]
    fn sphere() {
        assert!(best(&cube(6, -3.0, 3.0), 1_000, |x| x.iter().map(|v| (v - 1.0).powi(2)).sum()) < 1e-8);
    }

    #[test]
    fn rosenbrock_needs_the_shape_of_the_valley() {
        let function = |x: &[f64]| {
            x.windows(2).map(|pair| 100.0 * (pair[1] - pair[0] * pair[0]).powi(2) + (1.0 - pair[0]).powi(2)).sum()
        };
        assert!(best(&cube(4, -3.0, 3.0), 3_000, function) < 1e-8);
    }

    #[test]
    fn restarts_leave_local_minima() {
        // Rastrigin's function: 11² local minima, one of them at 0.
        let function =
            |x: &[f64]| x.iter().map(|v| 10.0 + v * v - 10.0 * (std::f64::consts::TAU * v).cos()).sum::<f64>();
        assert!(best(&cube(3, -3.0, 3.0), 6_000, function) < 1e-6);
    }

    #[test]
    fn a_new_sampler_continues_as_the_old_one_would() {
        let space = cube(3, -3.0, 3.0);
        let (mut history, mut kept) = (History::default(), CmaEsSampler::default());
        for number in 0..60 {
            let question = Question { seed: 5, space: &space, history: &history, number };
            let point = kept.suggest(&question);
            assert_eq!(point, CmaEsSampler::default().suggest(&question));
            let loss = values(&point).iter().map(|v| v * v).sum();
            history.put(finish_all(number, point, vec![loss]));
        }
    }

    #[test]
    fn choices_and_steps_are_learnt_too() {
        let letters = ["a", "b", "c"].map(|text| Choice::Text(text.into())).to_vec();
        let count = Domain::Int { low: 1, high: 30, log: false, step: 1 };
        let letter = Parameter::new("letter", Domain::Choices(letters));
        let space = Space::new(vec![letter, Parameter::new("count", count)]).unwrap();
        let loss = |x: &[f64]| (x[0] - 1.0).abs() + (x[1] - 23.0).abs();
        assert_eq!(best(&space, 400, loss), 0.0);
    }

    #[test]
    fn trials_that_diverge_are_the_worst_and_failed_ones_count_for_nothing() {
        let space = cube(2, -3.0, 3.0);
        let mut history = History::default();
        let mut sampler = CmaEsSampler::default();
        for number in 0..300 {
            let point = sampler.suggest(&Question { seed: 1, space: &space, history: &history, number });
            let (x, y) = (point.0[0].unwrap(), point.0[1].unwrap());
            let mut observation = finish_all(number, point, vec![x * x + (y - 2.0).powi(2)]);
            if x < -1.0 {
                observation = Observation { outcome: Outcome::Diverged, losses: vec![], ..observation };
            } else if number % 5 == 0 {
                observation = Observation { outcome: Outcome::Failed, losses: vec![], ..observation };
            }
            history.put(observation);
        }
        let best = history.finished().map(|o| o.losses[0]).fold(f64::INFINITY, f64::min);
        assert!(best < 1e-4, "{best}");
    }
}
