//! What holds for every sampler, and observations for the tests of single ones.

use proptest::prelude::*;

use super::*;
use crate::space::tests::any_points;

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
    Observation { outcome: Outcome::Finished, losses: vec![loss], ..running(number, point) }
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
    let refusal = find("tep").err().unwrap().to_string();
    assert_eq!(refusal, "unknown sampler `tep`; did you mean `tpe`?");
}
