//! The sampler of studies that ask for no other.
//!
//! A Gaussian process makes the most of few trials, and trials are what costs; its own cost grows with the cube of their
//! number and with that of the parameters. So it is used as long as it takes no more than a moment, from an evenly spread
//! start on. After that there are enough trials for methods that need many: TPE for one objective, NSGA-II for several.

use super::{GaussianSampler, NsgaSampler, Question, Sampler, TpeSampler};
use crate::space::Point;

/// Suggests by whatever suits the space and the number of trials.
#[derive(Clone, Debug, Default)]
pub struct AutomaticSampler {
    gaussian: GaussianSampler,
    tpe: TpeSampler,
    nsga: NsgaSampler,
}

/// Ended trials up to which the Gaussian process is used.
const MOST_TRIALS: usize = 500;
/// Parameters up to which it is.
const MOST_PARAMETERS: usize = 64;

impl Sampler for AutomaticSampler {
    fn suggest(&mut self, question: &Question<'_>) -> Point {
        let ended = question.history.ended();
        if ended.len() <= MOST_TRIALS && question.space.len() <= MOST_PARAMETERS {
            self.gaussian.suggest(question)
        } else if ended.iter().any(|observation| observation.losses.len() > 1) {
            self.nsga.suggest(question)
        } else {
            self.tpe.suggest(question)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::{
        History, RandomSampler,
        tests::{cube, finish_all, values},
    };

    /// What is suggested after so many trials, and by the three samplers themselves.
    fn after(trials: u64, parameters: usize, objectives: usize) -> (Point, [Point; 3]) {
        let space = cube(parameters, 0.0, 1.0);
        let mut history = History::default();
        let ask = |sampler: &mut dyn Sampler, history: &History, number: u64| {
            sampler.suggest(&Question { seed: 8, space: &space, history, number })
        };
        for number in 0..trials {
            let point = ask(&mut RandomSampler, &history, number);
            let loss: f64 = values(&point).iter().sum();
            history.put(finish_all(number, point, vec![loss; objectives]));
        }
        let ask = |sampler: &mut dyn Sampler| ask(sampler, &history, trials);
        let automatic = ask(&mut AutomaticSampler::default());
        let gaussian = ask(&mut GaussianSampler::default());
        (automatic, [gaussian, ask(&mut TpeSampler::default()), ask(&mut NsgaSampler::default())])
    }

    #[test]
    fn the_number_of_trials_parameters_and_objectives_decides() {
        for (trials, parameters, objectives, expected) in [(30, 2, 1, 0), (12, 65, 1, 1), (12, 65, 2, 2)] {
            let (automatic, others) = after(trials, parameters, objectives);
            assert_eq!(automatic, others[expected], "{trials} trials, {parameters} parameters");
            assert!((0..3).filter(|&i| i != expected).all(|i| others[i] != automatic));
        }
        let (automatic, others) = after(501, 2, 1);
        assert_eq!(automatic, others[1]);
    }
}
