//! What holds for every sampler, and observations for the tests of single ones.

use proptest::prelude::*;

use super::*;
use crate::space::{Domain, Parameter, tests::any_points};

pub(crate) fn running(number: u64, point: Point) -> Observation {
    Observation {
        number: Some(number),
        point,
        outcome: Outcome::Running,
        losses: Vec::new(),
        violation: 0.0,
        last_report: None,
    }
}

pub(crate) fn finish(number: u64, point: Point, loss: f64) -> Observation {
    finish_all(number, point, vec![loss])
}

pub(crate) fn finish_all(number: u64, point: Point, losses: Vec<f64>) -> Observation {
    Observation { outcome: Outcome::Finished, losses, ..running(number, point) }
}

/// So many floats from `low` to `high`.
pub(crate) fn cube(count: usize, low: f64, high: f64) -> Space {
    let domain = Domain::Float { low, high, log: false, step: None };
    Space::new((0..count).map(|i| Parameter::new(format!("x{i}"), domain.clone())).collect()).unwrap()
}

/// The values of a point all of whose parameters exist.
pub(crate) fn values(point: &Point) -> Vec<f64> {
    point.0.iter().map(|value| value.unwrap()).collect()
}

/// A history in which trials ended in all ways, and some run.
fn history(points: &[Point], outcomes: &[u8], objectives: usize) -> History {
    let mut history = History::default();
    for (number, (point, outcome)) in points.iter().zip(outcomes).enumerate() {
        let base = running(number as u64, point.clone());
        let losses: Vec<f64> = (0..objectives).map(|k| f64::from(outcome % (7 + k as u8)) - 3.0).collect();
        history.put(match outcome % 8 {
            0 => base,
            1 => Observation { outcome: Outcome::Stopped, last_report: Some((3, losses[0])), ..base },
            2 => Observation { outcome: Outcome::Diverged, ..base },
            3 => Observation { outcome: Outcome::Failed, ..base },
            4 => Observation { outcome: Outcome::Finished, losses, violation: 1.5, ..base },
            _ => Observation { outcome: Outcome::Finished, losses, ..base },
        });
    }
    history
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Every sampler answers with a point of the space, the same one whether it was asked before or not, whatever the
    /// history and with several objectives.
    #[test]
    fn suggestions_are_points_and_functions_of_the_question(
        (space, points) in any_points(24),
        outcomes in prop::collection::vec(any::<u8>(), 24),
        objectives in 1..3usize,
        seed in any::<u64>(),
    ) {
        for entry in SAMPLERS {
            let mut used = entry.make();
            for count in [0, 5, 24] {
                let history = history(&points[..count], &outcomes, objectives);
                let question = Question { seed, space: &space, history: &history, number: count as u64 };
                let point = used.suggest(&question);
                prop_assert!(space.contains(&point), "{}: {point:?} in {space}", entry.name);
                prop_assert_eq!(&entry.make().suggest(&question), &point, "{} remembers", entry.name);
                // Another history in between must leave no trace.
                let other = self::history(&points[..count / 2], &outcomes, objectives);
                used.suggest(&Question { history: &other, seed: !seed, ..question });
                prop_assert_eq!(&used.suggest(&question), &point, "{} mixes histories", entry.name);
            }
        }
    }
}

#[test]
fn names_of_optuna_are_known_and_typing_errors_are_not() {
    assert_eq!(find("TPESampler").unwrap().name, "tpe");
    assert_eq!(find("QMCSampler").unwrap().name, "sobol");
    assert_eq!(find("GPSampler").unwrap().name, "gaussian");
    assert_eq!(find("CmaEsSampler").unwrap().name, "cma-es");
    assert_eq!(find("NSGAIISampler").unwrap().name, "nsga2");
    let refusal = find("tep").err().unwrap().to_string();
    assert_eq!(refusal, "unknown sampler `tep`; did you mean `tpe`?");
}

/// The best loss after some trials on a bowl with a conditional parameter.
fn best_on_a_bowl(sampler: &str, seed: u64, at_a_time: u64) -> f64 {
    let space: Space = "kind=a|b,x=float:-5..5,n=int:0..20,y=log:0.01..100 when kind == 'b'".parse().unwrap();
    let mut sampler = find(sampler).unwrap().make();
    let (mut history, mut best) = (History::default(), f64::INFINITY);
    for start in (0..60).step_by(at_a_time as usize) {
        let numbers = start..start + at_a_time;
        for number in numbers.clone() {
            let point = sampler.suggest(&Question { seed, space: &space, history: &history, number });
            history.put(running(number, point));
        }
        for number in numbers {
            let point = history.running().iter().find(|running| running.number == Some(number)).unwrap().point.clone();
            let [kind, x, n, y] = point.0[..] else { unreachable!() };
            let (x, n) = (x.unwrap() - 1.0, (n.unwrap() - 13.0) / 4.0);
            let loss = x * x + n * n + if kind == Some(0.0) { 1.0 } else { y.unwrap().log10().powi(2) };
            best = loss.min(best);
            history.put(finish(number, point, loss));
        }
    }
    best
}

#[test]
fn tpe_learns_where_random_points_do_not() {
    for at_a_time in [1, 6] {
        let wins =
            (0..10).filter(|&seed| best_on_a_bowl("tpe", seed, at_a_time) < best_on_a_bowl("random", seed, at_a_time));
        let wins = wins.count();
        assert!(wins >= 8, "{wins} of 10 with {at_a_time} at a time");
    }
}
