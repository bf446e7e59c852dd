//! Which parameters matter: how much of the spread of losses each of them explains.
//!
//! Functional ANOVA (Hutter and others, 2014): a forest of trees is a function of all parameters that can be averaged
//! exactly over any of them. What a parameter explains is the variance of the loss as a function of it alone, all
//! others averaged out. Trials crowd where losses are small; the forest weighs regions by their size instead, so that a
//! search that hardly left the best value of a parameter does not make it look unimportant. PED-ANOVA is faster on very
//! many trials, but says how much a parameter helps to be among the best rather than how much of the loss it explains.

mod forest;

use forest::Tree;

use crate::{
    random::Random,
    sampler::History,
    space::{Point, Space},
};

const TREES: u64 = 64;
/// Trials per tree at most: enough for a picture, and few enough for a dashboard that asks every second.
const MOST_TRIALS: usize = 1_000;

/// The share of each parameter of the space, 1 in sum; all 0 when fewer than four trials finished or all losses are the
/// same. `objective` says which of several losses is explained, `seed` how the forest is grown.
pub fn importance(space: &Space, history: &History, objective: usize, seed: u64) -> Vec<f64> {
    let trials: Vec<(&Point, f64)> =
        history.finished().filter_map(|o| Some((&o.point, *o.losses.get(objective)?))).collect();
    let losses = tamed(&trials.iter().map(|(_, loss)| *loss).collect::<Vec<_>>());
    let mut shares = vec![0.0; space.len()];
    let (low, high) = losses.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), &x| (a.min(x), b.max(x)));
    if trials.len() < 4 || high <= low {
        return shares;
    }
    let columns: Vec<Column> = (0..space.len()).map(|index| Column::new(space, index, &trials)).collect();
    for tree in 0..TREES {
        let mut random = Random::new(seed, &[tree, 0x616e]);
        let mut chosen: Vec<usize> = (0..trials.len()).collect();
        random.shuffle(&mut chosen);
        chosen.truncate(MOST_TRIALS);
        let rows: Vec<Vec<f64>> = columns.iter().map(|column| column.places(&mut random)).collect();
        let tree = Tree::grow(&rows, &losses, chosen, &mut random);
        let total = tree.variance();
        if total > 0.0 {
            for (parameter, share) in shares.iter_mut().enumerate() {
                *share += tree.variance_by(parameter) / total;
            }
        }
    }
    let sum: f64 = shares.iter().sum();
    if sum > 0.0 {
        shares.iter_mut().for_each(|share| *share /= sum);
    }
    shares
}

/// Losses around 0 with the worst tail cut off, for a few that exploded would otherwise be all that there is to explain.
fn tamed(losses: &[f64]) -> Vec<f64> {
    let mut sorted = losses.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| sorted.get(((sorted.len().max(1) - 1) as f64 * share) as usize).copied().unwrap_or(0.0);
    let (low, middle, high) = (at(0.25), at(0.5), at(0.75));
    let limit = middle + 10.0 * (high - low);
    losses.iter().map(|loss| if high > low { loss.min(limit) - middle } else { loss - middle }).collect()
}

/// One parameter of all trials.
struct Column {
    /// Unit values, or cells of choices; none where the parameter is off.
    values: Vec<Option<f64>>,
    /// How many alternatives a choice has.
    choices: Option<usize>,
    /// The share of trials in which the parameter is off.
    off: f64,
}

impl Column {
    fn new(space: &Space, index: usize, trials: &[(&Point, f64)]) -> Self {
        let domain = &space.parameters()[index].domain;
        let values: Vec<Option<f64>> =
            trials.iter().map(|(point, _)| point.0[index].map(|value| domain.to_unit(value))).collect();
        let off = values.iter().filter(|value| value.is_none()).count() as f64 / values.len() as f64;
        let choices = if domain.is_choice() { domain.count().map(|count| count as usize) } else { None };
        Self { values, choices, off }
    }

    /// Places in [0, 1]: first those where the parameter is off, then its values; choices in random order, for they
    /// have none of their own.
    fn places(&self, random: &mut Random) -> Vec<f64> {
        let mut order: Vec<usize> = (0..self.choices.unwrap_or(0)).collect();
        random.shuffle(&mut order);
        let shuffled = |unit: f64| match self.choices {
            Some(count) => (order[((unit * count as f64) as usize).min(count - 1)] as f64 + 0.5) / count as f64,
            None => unit,
        };
        let place = |value: &Option<f64>| match value {
            Some(unit) => self.off + (1.0 - self.off) * shuffled(*unit),
            None => 0.5 * self.off,
        };
        self.values.iter().map(place).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sampler::tests::{cube, finish_all, values},
        space::{Choice, Domain, Parameter},
    };

    fn shares(space: &Space, trials: u64, loss: impl Fn(&Point) -> f64) -> Vec<f64> {
        let mut history = History::default();
        for number in 0..trials {
            let mut random = Random::new(11, &[number]);
            let unit: Vec<f64> = (0..space.len()).map(|_| random.uniform()).collect();
            let point = space.from_unit(&unit);
            let loss = loss(&point);
            history.put(finish_all(number, point, vec![loss]));
        }
        importance(space, &history, 0, 1)
    }

    #[test]
    fn shares_of_a_sum_are_those_of_its_variances() {
        // Variances are in the ratio of the squares: 9 : 4 : 1 : 0.
        let shares = shares(&cube(4, 0.0, 1.0), 600, |point| {
            let x = values(point);
            3.0 * x[0] + 2.0 * x[1] + x[2]
        });
        for (share, expected) in shares.iter().zip([9.0, 4.0, 1.0, 0.0].map(|variance| variance / 14.0)) {
            assert!((share - expected).abs() < 0.06, "{shares:?}");
        }
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn choices_and_conditions_have_shares() {
        let letters = ["a", "b"].map(|text| Choice::Text(text.into())).to_vec();
        let float = Domain::Float { low: 0.0, high: 1.0, log: false, step: None };
        let space = Space::new(vec![
            Parameter::new("letter", Domain::Choices(letters)),
            Parameter::new("idle", float.clone()),
            Parameter::new("inner", float).when("letter == 'a'").unwrap(),
        ])
        .unwrap();
        let shares = shares(&space, 600, |point| 2.0 * point.0[0].unwrap() + point.0[2].unwrap_or(0.0));
        assert!(shares[0] > 0.4 && shares[2] > shares[1] && shares[1] < 0.05, "{shares:?}");
    }

    #[test]
    fn nothing_to_explain() {
        assert_eq!(shares(&cube(2, 0.0, 1.0), 3, |_| 1.0), [0.0, 0.0]);
        assert_eq!(shares(&cube(2, 0.0, 1.0), 50, |_| 1.0), [0.0, 0.0]);
        assert_eq!(shares(&Space::default(), 50, |_| 1.0), [0.0; 0]);
    }
}
