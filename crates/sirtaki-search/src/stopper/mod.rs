//! Which running trials are not worth finishing, from the values that they and others reported at the same steps.
//!
//! A decision is a function of the curves alone and falls when a value is reported. Curves are losses: less is better, and
//! what is not a number is worst.

mod options;

pub use options::STOPPERS;

use crate::random::mix;

/// The losses that a trial reported, by step, in the order of steps.
#[derive(Clone, Copy, Debug)]
pub struct Curve<'a> {
    /// The number of the trial.
    pub number: u64,
    /// Step and loss.
    pub reports: &'a [(i64, f64)],
}

/// A rule that ends trials early.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Stopper {
    /// All trials may finish.
    #[default]
    None,
    /// Asynchronous successive halving: at steps that grow by `factor`, the best of those that came so far go on, one in
    /// `factor`.
    Asha {
        /// The first step at which trials are compared.
        min: u64,
        /// The step at which a trial is finished.
        max: u64,
        /// How many compete for one place.
        factor: u64,
        /// Whether a trial that was stopped goes on when others that came later leave it among the best.
        promote: bool,
    },
    /// Several of the above with later and later first steps; a trial's number says to which one it belongs.
    Hyperband {
        /// The first step of the most impatient of them.
        min: u64,
        /// The step at which a trial is finished.
        max: u64,
        /// How many compete for one place.
        factor: u64,
    },
    /// A trial ends whose best loss is worse than half of the others were at the same step.
    Median {
        /// So many others must have come that far.
        startup: u64,
        /// Earlier steps do not count.
        warmup: u64,
    },
    /// A trial ends that did not improve for a while.
    Patience {
        /// For so many steps.
        steps: u64,
        /// By how much a loss must be smaller to count.
        tolerance: f64,
    },
}

impl Stopper {
    /// Whether a trial that has just reported should stop, given those of all other trials.
    pub fn should_stop<'a>(&self, trial: Curve<'_>, others: impl Iterator<Item = Curve<'a>>) -> bool {
        match *self {
            Self::None => false,
            Self::Asha { min, max, factor, .. } => halving(trial, others, min, max, factor),
            Self::Hyperband { min, max, factor } => {
                let bracket = |number: u64| self::bracket(number, min, max, factor);
                let own = bracket(trial.number);
                let first = min.saturating_mul(factor.saturating_pow(own));
                halving(trial, others.filter(|other| bracket(other.number) == own), first, max, factor)
            }
            Self::Median { startup, warmup } => median(trial, others, startup, warmup),
            Self::Patience { steps, tolerance } => impatient(trial, steps, tolerance),
        }
    }

    /// The steps at which trials are compared, for those rules that have such.
    pub fn rungs(&self, number: u64) -> Vec<u64> {
        match *self {
            Self::Asha { min, max, factor, .. } => rungs(min, max, factor).collect(),
            Self::Hyperband { min, max, factor } => {
                let first = min.saturating_mul(factor.saturating_pow(bracket(number, min, max, factor)));
                rungs(first, max, factor).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl Stopper {
    /// Whether stopped trials may go on later.
    pub fn promotes(&self) -> bool {
        matches!(self, Self::Asha { promote: true, .. })
    }

    /// The stopped trial that deserves to go on by now: one that is among the best at the last rung it reached, the
    /// highest such rung and there the best first. `curves` are those of all trials, `stopped` says which ones wait there.
    pub fn promotion(&self, curves: &[Curve<'_>], stopped: impl Fn(u64) -> bool) -> Option<u64> {
        let &Self::Asha { min, max, factor, promote: true } = self else { return None };
        let rungs: Vec<u64> = rungs(min, max, factor).collect();
        rungs.iter().enumerate().rev().find_map(|(index, &rung)| {
            let next = rungs.get(index + 1).copied().unwrap_or(max);
            let mut there: Vec<(f64, &Curve<'_>)> =
                curves.iter().filter_map(|curve| Some((at_rung(curve, rung)?, curve))).collect();
            there.sort_by(|a, b| a.0.total_cmp(&b.0));
            let waits = |curve: &Curve<'_>| {
                stopped(curve.number) && curve.reports.last().is_some_and(|(last, _)| *last < next as i64)
            };
            let best = there.iter().take(there.len() / factor.max(2) as usize);
            best.filter(|(loss, _)| loss.is_finite()).find(|(_, curve)| waits(curve)).map(|(_, curve)| curve.number)
        })
    }
}

fn rungs(min: u64, max: u64, factor: u64) -> impl Iterator<Item = u64> {
    let next = move |rung: &u64| rung.checked_mul(factor.max(2));
    std::iter::successors(Some(min.max(1)), next).take_while(move |rung| *rung < max)
}

fn loss(value: f64) -> f64 {
    if value.is_nan() { f64::INFINITY } else { value }
}

/// The first loss at or after a step.
fn at_rung(curve: &Curve<'_>, rung: u64) -> Option<f64> {
    let after = curve.reports.partition_point(|(step, _)| *step < rung as i64);
    curve.reports.get(after).map(|(_, value)| loss(*value))
}

fn halving<'a>(trial: Curve<'_>, others: impl Iterator<Item = Curve<'a>>, min: u64, max: u64, factor: u64) -> bool {
    let Some((&(step, value), before)) = trial.reports.split_last() else { return false };
    let reached = before.last().map_or(i64::MIN, |(step, _)| *step);
    // A trial is compared once at every rung, with the report that reaches it.
    let Some(rung) = rungs(min, max, factor).filter(|rung| reached < *rung as i64 && *rung as i64 <= step).last()
    else {
        return false;
    };
    let own = loss(value);
    let mut losses: Vec<f64> = others.filter_map(|other| at_rung(&other, rung)).collect();
    losses.push(own);
    let places = (losses.len() / factor.max(2) as usize).max(1);
    let (_, last, _) = losses.select_nth_unstable_by(places - 1, f64::total_cmp);
    own > *last || own == f64::INFINITY
}

/// To which of the halvings a trial belongs: the more impatient ones get more trials, so that all cost about the same.
fn bracket(number: u64, min: u64, max: u64, factor: u64) -> u32 {
    let count = rungs(min, max, factor).count().max(1) as u32;
    let weight = |bracket: u32| {
        let rungs = count - bracket;
        f64::from(count) * (factor.max(2) as f64).powi(rungs as i32 - 1) / f64::from(rungs)
    };
    let mut left = mix(number) as f64 / u64::MAX as f64 * (0..count).map(weight).sum::<f64>();
    for bracket in 0..count {
        left -= weight(bracket);
        if left < 0.0 {
            return bracket;
        }
    }
    count - 1
}

fn median<'a>(trial: Curve<'_>, others: impl Iterator<Item = Curve<'a>>, startup: u64, warmup: u64) -> bool {
    let Some(&(step, _)) = trial.reports.last() else { return false };
    if step < warmup as i64 {
        return false;
    }
    let come_this_far = others.filter(|other| other.reports.last().is_some_and(|(last, _)| *last >= step));
    let mut losses: Vec<f64> = come_this_far.filter_map(|other| at_rung(&other, step.max(0) as u64)).collect();
    if losses.is_empty() || (losses.len() as u64) < startup {
        return false;
    }
    let middle = (losses.len() - 1) / 2;
    let (_, median, _) = losses.select_nth_unstable_by(middle, f64::total_cmp);
    let best = trial.reports.iter().map(|(_, value)| loss(*value)).fold(f64::INFINITY, f64::min);
    best > *median
}

fn impatient(trial: Curve<'_>, steps: u64, tolerance: f64) -> bool {
    let Some(&(now, _)) = trial.reports.last() else { return false };
    let (mut best, mut improved) = (f64::INFINITY, trial.reports[0].0);
    for &(step, value) in trial.reports {
        if loss(value) < best - tolerance || best == f64::INFINITY && loss(value) < best {
            (best, improved) = (loss(value), step);
        }
    }
    now.saturating_sub(improved) >= steps as i64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn curve(number: u64, reports: &[(i64, f64)]) -> Curve<'_> {
        Curve { number, reports }
    }

    #[test]
    fn asha_lets_one_in_three_pass_each_rung() {
        let asha = Stopper::Asha { min: 1, max: 27, factor: 3, promote: false };
        assert_eq!(asha.rungs(0), [1, 3, 9]);
        let others = [[(1, 0.5)], [(1, 0.7)], [(1, 0.9)], [(1, 0.2)], [(1, f64::NAN)]];
        let others = || others.iter().map(|reports| curve(1, reports));
        assert!(!asha.should_stop(curve(0, &[(1, 0.4)]), others()), "second of six");
        assert!(asha.should_stop(curve(0, &[(1, 0.6)]), others()), "third of six");
        assert!(!asha.should_stop(curve(0, &[(1, 0.4), (2, 0.9)]), others()), "no rung at 2");
        assert!(!asha.should_stop(curve(0, &[(1, 0.4), (3, 0.9)]), others()), "the first at 3");
        assert!(asha.should_stop(curve(0, &[(4, f64::NAN)]), std::iter::empty()), "not a number");
        assert!(!asha.should_stop(curve(0, &[(26, 0.1), (27, 9.0)]), others()), "finished anyway");
    }

    #[test]
    fn the_best_of_those_that_wait_go_on() {
        let asha = Stopper::Asha { min: 1, max: 9, factor: 3, promote: true };
        let reports = [vec![(1, 0.5)], vec![(1, 0.2)], vec![(1, 0.1), (3, 0.1)], vec![(1, 0.9)], vec![(1, 0.8)]];
        let curves = |count: usize| -> Vec<Curve<'_>> {
            (0..).zip(&reports[..count]).map(|(number, reports)| curve(number, reports)).collect()
        };
        let stopped = |number: u64| number != 2;
        assert_eq!(asha.promotion(&curves(5), stopped), None, "one place at the first rung, and its owner is beyond");
        let mut six = curves(5);
        six.push(curve(5, &[(1, 0.7)]));
        assert_eq!(asha.promotion(&six, stopped), Some(1), "second of six");
        assert_eq!(asha.promotion(&six, |number| stopped(number) && number != 1), None);
        let far = [(1, 0.3), (3, 0.05)];
        six.extend([curve(6, &far), curve(7, &far)]);
        assert_eq!(asha.promotion(&six, stopped), Some(6), "one of three at the second rung comes first");
        assert_eq!(Stopper::Asha { min: 1, max: 9, factor: 3, promote: false }.promotion(&six, stopped), None);
    }

    #[test]
    fn hyperband_compares_within_a_bracket() {
        let band = Stopper::Hyperband { min: 1, max: 27, factor: 3 };
        let mut firsts = [0; 28];
        (0..1000).for_each(|number| firsts[band.rungs(number)[0] as usize] += 1);
        assert!(firsts[1] > firsts[3] && firsts[3] > firsts[9] && firsts[9] > 50, "{firsts:?}");
        let patient = (0..100).find(|number| band.rungs(*number) == [9]).unwrap();
        let eager = (0..100).find(|number| band.rungs(*number) == [1, 3, 9]).unwrap();
        let better = [(9, 0.0)];
        assert!(!band.should_stop(curve(patient, &[(9, 1.0)]), [curve(eager, &better)].into_iter()));
        assert!(band.should_stop(curve(patient, &[(9, 1.0)]), [curve(patient, &better)].into_iter()));
    }

    #[test]
    fn median_and_patience() {
        let rule = Stopper::Median { startup: 3, warmup: 2 };
        let others = [[(1, 0.1), (2, 0.3)], [(1, 0.1), (2, 0.5)], [(1, 0.1), (2, 0.7)]];
        let others = |count: usize| others[..count].iter().map(|reports| curve(1, reports));
        assert!(rule.should_stop(curve(0, &[(2, 0.6)]), others(3)));
        assert!(!rule.should_stop(curve(0, &[(2, 0.5)]), others(3)));
        assert!(!rule.should_stop(curve(0, &[(2, 0.6)]), others(2)), "too few");
        assert!(!rule.should_stop(curve(0, &[(1, 0.6)]), others(3)), "too early");
        assert!(!rule.should_stop(curve(0, &[(1, 0.2), (2, 0.6)]), others(3)), "was better before");
        let rule = Stopper::Patience { steps: 2, tolerance: 0.1 };
        assert!(rule.should_stop(curve(0, &[(1, 0.5), (2, 0.45), (3, 0.42)]), others(0)));
        assert!(!rule.should_stop(curve(0, &[(1, 0.5), (2, 0.39), (3, 0.42)]), others(0)));
    }

    proptest! {
        /// Whatever others do, the best curve of all goes on, but for those that are impatient.
        #[test]
        fn the_best_goes_on(
            losses in prop::collection::vec(prop::collection::vec(0.0..1.0f64, 1..12), 0..12),
            length in 1..12usize,
            hyperband in any::<bool>(),
        ) {
            let with_steps = |losses: &Vec<f64>| (1..).zip(losses.iter().copied()).collect::<Vec<(i64, f64)>>();
            let curves: Vec<Vec<(i64, f64)>> = losses.iter().map(with_steps).collect();
            let best: Vec<(i64, f64)> = (1..=length as i64).map(|step| (step, -1.0)).collect();
            let (min, max, factor) = (1, 9, 3);
            let halving = if hyperband { Stopper::Hyperband { min, max, factor } } else { Stopper::Asha { min, max, factor, promote: false } };
            for stopper in [halving, Stopper::Median { startup: 0, warmup: 0 }, Stopper::None] {
                let others = (1..).zip(&curves).map(|(number, reports)| curve(number, reports));
                prop_assert!(!stopper.should_stop(curve(0, &best), others));
            }
        }
    }
}
