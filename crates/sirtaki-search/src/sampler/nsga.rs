//! NSGA-II: a population that keeps the best fronts and, within the last of them, the least crowded points (Deb and
//! others, 2002); its children mix two parents and change a little.
//!
//! The population is a fold over the ended trials in the order of their ends: whenever as many have ended as it has
//! members, the better half of both together goes on. Children may have any of the members and of those that ended
//! since as parents, so no worker waits for a generation to be complete.

use super::{Observation, Question, Sampler, SobolSampler, ranking};
use crate::{
    random::Random,
    space::{Domain, Point, Space},
};

/// Suggests by NSGA-II.
#[derive(Debug, Clone)]
pub struct NsgaSampler {
    population: usize,
    /// Members, as places among the ended trials, after so many of this lineage.
    state: Option<(usize, u64, Vec<usize>)>,
}

impl Default for NsgaSampler {
    fn default() -> Self {
        Self::new(40)
    }
}

/// How close children of ordered parameters are to their parents (Deb's distribution indices).
const CROSSOVER_INDEX: f64 = 15.0;
const MUTATION_INDEX: f64 = 20.0;
/// How likely two parents are mixed at all.
const CROSSOVER: f64 = 0.9;

impl NsgaSampler {
    /// A sampler with so many members, at least two.
    pub fn new(population: usize) -> Self {
        Self { population: population.max(2), state: None }
    }

    /// The members after all whole generations, and how many ended trials these took.
    fn members(&mut self, question: &Question<'_>) -> (usize, Vec<usize>) {
        let history = question.history;
        let ended = history.ended();
        let kept = self.state.take().filter(|(count, lineage, _)| history.lineage(*count) == Some(*lineage));
        let (mut count, _, mut members) = kept.unwrap_or_default();
        loop {
            let new: Vec<usize> =
                (count..ended.len()).filter(|&i| ranking::counts(&ended[i])).take(self.population).collect();
            let Some(&last) = new.last().filter(|_| new.len() == self.population) else { break };
            members.extend(new);
            let trials: Vec<&Observation> = members.iter().map(|&i| &ended[i]).collect();
            members = ranking::best_first(&trials).into_iter().take(self.population).map(|i| members[i]).collect();
            count = last + 1;
        }
        self.state = Some((count, history.lineage(count).unwrap_or_default(), members.clone()));
        (count, members)
    }
}

impl Sampler for NsgaSampler {
    fn suggest(&mut self, question: &Question<'_>) -> Point {
        let space = question.space;
        let mut random = Random::new(question.seed, &[question.number, 0x6e73]);
        let (count, members) = self.members(question);
        if members.is_empty() {
            return SobolSampler.suggest(question);
        }
        let ended = question.history.ended();
        let since = ended[count..].iter().filter(|o| ranking::counts(o));
        let parents: Vec<&Observation> = members.iter().map(|&i| &ended[i]).chain(since).collect();
        let standings = ranking::standings(&parents);
        let mut pick = || {
            let (a, b) = (random.below(parents.len()), random.below(parents.len()));
            if standings[b].compare(&standings[a]).is_lt() { b } else { a }
        };
        let (first, second) = (pick(), pick());
        let known = |point: &Point| {
            ended.iter().chain(question.history.running()).any(|observation| observation.point == *point)
        };
        let mut child = breed(space, &parents[first].point, &parents[second].point, &mut random);
        for _ in 0..10 {
            if !known(&child) {
                break;
            }
            child = breed(space, &child, &parents[second].point, &mut random);
        }
        child
    }
}

/// A child of two points.
fn breed(space: &Space, first: &Point, second: &Point, random: &mut Random) -> Point {
    let mix = random.uniform() < CROSSOVER;
    let rate = 1.0 / space.len().max(1) as f64;
    space.fill(|index, _| {
        let domain = &space.parameters()[index].domain;
        let unit = match (first.0[index], second.0[index]) {
            (Some(a), Some(b)) if mix => mixed(domain, a, b, random),
            (Some(a), _) | (None, Some(a)) => domain.to_unit(a),
            (None, None) => random.uniform(),
        };
        let unit = if random.uniform() < rate { mutated(domain, unit, random) } else { unit };
        domain.from_unit(unit)
    })
}

/// A unit value between or near those of two parents (simulated binary crossover), or that of one of them.
fn mixed(domain: &Domain, a: f64, b: f64, random: &mut Random) -> f64 {
    let (a, b) = (domain.to_unit(a), domain.to_unit(b));
    let (a, b) = if random.uniform() < 0.5 { (a, b) } else { (b, a) };
    if domain.is_choice() || random.uniform() < 0.5 {
        return a;
    }
    let u = random.uniform();
    let power = 1.0 / (CROSSOVER_INDEX + 1.0);
    let spread = if u <= 0.5 { (2.0 * u).powf(power) } else { (0.5 / (1.0 - u)).powf(power) };
    (0.5 * ((1.0 + spread) * a + (1.0 - spread) * b)).clamp(0.0, 1.0)
}

/// A unit value near another one (polynomial mutation), at least one step away where there are steps; any choice.
fn mutated(domain: &Domain, unit: f64, random: &mut Random) -> f64 {
    if domain.is_choice() {
        return random.uniform();
    }
    let u = random.uniform();
    let power = 1.0 / (MUTATION_INDEX + 1.0);
    let change = if u < 0.5 { (2.0 * u).powf(power) - 1.0 } else { 1.0 - (2.0 * (1.0 - u)).powf(power) };
    let least = domain.count().map_or(0.0, |count| 1.0 / count as f64);
    (unit + change.signum() * change.abs().max(least)).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::{
        History,
        tests::{cube, finish_all, values},
    };

    fn run(space: &Space, trials: u64, evaluate: impl Fn(&[f64]) -> (Vec<f64>, f64)) -> History {
        let (mut history, mut sampler) = (History::default(), NsgaSampler::default());
        for number in 0..trials {
            let question = Question { seed: 2, space, history: &history, number };
            let point = sampler.suggest(&question);
            if number % 100 == 7 {
                assert_eq!(point, NsgaSampler::default().suggest(&question), "a new sampler answers the same");
            }
            let (losses, violation) = evaluate(&values(&point));
            history.put(Observation { violation, ..finish_all(number, point, losses) });
        }
        history
    }

    /// Zitzler, Deb and Thiele's first problem: the front is f₂ = 1 − √f₁.
    #[test]
    fn finds_a_known_front_and_covers_it() {
        let history = run(&cube(5, 0.0, 1.0), 2_000, |x| {
            let g = 1.0 + 9.0 * x[1..].iter().sum::<f64>() / 4.0;
            (vec![x[0], g * (1.0 - (x[0] / g).sqrt())], 0.0)
        });
        let losses: Vec<&[f64]> = history.finished().map(|o| o.losses.as_slice()).collect();
        let ranks = crate::pareto::ranks(&losses);
        let front: Vec<&[f64]> = losses.iter().zip(ranks).filter(|(_, rank)| *rank == 0).map(|(l, _)| *l).collect();
        let mut distances: Vec<f64> = front.iter().map(|l| l[1] - (1.0 - l[0].sqrt())).collect();
        distances.sort_by(f64::total_cmp);
        assert!(distances[distances.len() / 2] < 0.03, "median distance {}", distances[distances.len() / 2]);
        for tenth in 0..10 {
            let range = f64::from(tenth) / 10.0..=f64::from(tenth + 1) / 10.0;
            assert!(front.iter().any(|l| range.contains(&l[0])), "nothing in {range:?}");
        }
    }

    #[test]
    fn constraints_come_first() {
        // Without its constraint the best point would be at 0.
        let history = run(&cube(2, 0.0, 1.0), 600, |x| (vec![x[0] + x[1]], (0.5 - x[0]).max(0.0)));
        let kept = history.finished().filter(|o| o.violation == 0.0).map(|o| o.losses[0]).fold(f64::INFINITY, f64::min);
        assert!((0.5..0.51).contains(&kept), "{kept}");
    }
}
