//! Learning rates that know the number of workers.
//!
//! The linear scaling rule with gradual warm-up (Goyal et al., arXiv:1706.02677): `k` workers make batches `k` times as
//! large, so the rate is `k` times as high; because that is too much at first, it grows to this value step by step over
//! the first epochs. With base rate `b`, warm-up of `w` epochs and `e` the epochs done so far, which may be fractional:
//!
//! ```text
//! e < w:   rate = b · (1 + (k − 1) · e / w)
//! e ≥ w:   rate = b · k · decay(e)
//! ```
//!
//! | decay | `decay(e)`, with `t = (e − w) / (E − w)` at most 1 |
//! |---|---|
//! | constant | `1` |
//! | steps | `factorⁿ` after `n` of the given epochs |
//! | exponential | `factor^(e − w)` |
//! | cosine | `end + (1 − end) · (1 + cos(π t)) / 2` |
//! | polynomial | `end + (1 − end) · (1 − t)^power` |
//!
//! A rate is a pure function of the number of the step, so resuming a run needs no state.

use std::f64::consts::PI;

use crate::{Error, Result};

/// How the rate falls after warm-up. Epochs are counted from the beginning of training; `end` is a fraction of the
/// highest rate.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Decay {
    /// It does not.
    Constant,
    /// By a factor after each of these epochs.
    Steps { epochs: Vec<f64>, factor: f64 },
    /// By a factor per epoch, a little at each step.
    Exponential { factor: f64 },
    /// Along half a cosine, to `end` after `epochs`.
    Cosine { epochs: f64, end: f64 },
    /// Along `(1 − t)^power`, to `end` after `epochs`; with power 1 a straight line.
    Polynomial { epochs: f64, end: f64, power: f64 },
}

/// The learning rate of every step.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    base: f64,
    scale: f64,
    steps_per_epoch: f64,
    warmup: f64,
    decay: Decay,
}

impl Schedule {
    /// For `workers` workers that make `steps_per_epoch` steps per epoch; `base` is the rate that is right for one
    /// worker, `warmup` is in epochs.
    pub fn new(base: f64, workers: usize, steps_per_epoch: usize, warmup: f64, decay: Decay) -> Result<Self> {
        check("the learning rate", base, base > 0.0, "above 0")?;
        check("the number of workers", workers as f64, workers > 0, "at least 1")?;
        check("the number of steps per epoch", steps_per_epoch as f64, steps_per_epoch > 0, "at least 1")?;
        check("the warm-up", warmup, warmup >= 0.0, "a number of epochs, 0 or more")?;
        let factor =
            |factor: f64| check("the decay's factor", factor, factor > 0.0 && factor <= 1.0, "above 0, at most 1");
        let end = |end: f64| check("the decay's end", end, (0.0..=1.0).contains(&end), "from 0 to 1");
        let length = |epochs: f64| check("the decay's length", epochs, epochs > warmup, "more epochs than the warm-up");
        match &decay {
            Decay::Constant => {}
            Decay::Steps { epochs, factor: by } => {
                factor(*by)?;
                for &epoch in epochs {
                    check("the epoch of a decay", epoch, epoch >= warmup, "a number of epochs, not below the warm-up")?;
                }
            }
            Decay::Exponential { factor: by } => factor(*by)?,
            Decay::Cosine { epochs, end: to } => length(*epochs).and_then(|()| end(*to))?,
            Decay::Polynomial { epochs, end: to, power } => {
                length(*epochs).and_then(|()| end(*to))?;
                check("the decay's power", *power, *power > 0.0, "above 0")?;
            }
        }
        Ok(Self { base, scale: workers as f64, steps_per_epoch: steps_per_epoch as f64, warmup, decay })
    }

    /// The rate of a step, from 0.
    pub fn rate(&self, step: u64) -> f64 {
        self.rate_at(step as f64 / self.steps_per_epoch)
    }

    /// The rate after so many epochs, which may be fractional: for runs in which steps change their size.
    pub fn rate_at(&self, epoch: f64) -> f64 {
        if epoch < self.warmup {
            return self.base * (1.0 + (self.scale - 1.0) * epoch / self.warmup);
        }
        self.base * self.scale * self.decayed(epoch)
    }

    fn decayed(&self, epoch: f64) -> f64 {
        let part = |epochs: f64| ((epoch - self.warmup) / (epochs - self.warmup)).min(1.0);
        match &self.decay {
            Decay::Constant => 1.0,
            Decay::Steps { epochs, factor } => {
                epochs.iter().filter(|&&passed| epoch >= passed).fold(1.0, |product, _| product * factor)
            }
            Decay::Exponential { factor } => factor.powf(epoch - self.warmup),
            Decay::Cosine { epochs, end } => end + (1.0 - end) * (1.0 + (PI * part(*epochs)).cos()) / 2.0,
            Decay::Polynomial { epochs, end, power } => end + (1.0 - end) * (1.0 - part(*epochs)).powf(*power),
        }
    }
}

fn check(what: &str, value: f64, good: bool, wanted: &str) -> Result<()> {
    if good && value.is_finite() {
        return Ok(());
    }
    Err(Error::setting(format!("{what} cannot be {value}"), format!("it must be {wanted}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rate 0.1, four workers, ten steps per epoch, two epochs of warm-up.
    fn rates<const N: usize>(decay: Decay, steps: [u64; N]) -> [f64; N] {
        let schedule = Schedule::new(0.1, 4, 10, 2.0, decay).unwrap();
        steps.map(|step| schedule.rate(step))
    }

    fn same<const N: usize>(got: [f64; N], expected: [f64; N]) {
        for (got, expected) in got.into_iter().zip(expected) {
            assert!((got - expected).abs() < 1e-12, "{got} instead of {expected}");
        }
    }

    #[test]
    fn warm_up_is_a_line_from_the_base_rate_to_the_scaled_one() {
        same(rates(Decay::Constant, [0, 5, 10, 19, 20, 21, 9999]), [0.1, 0.175, 0.25, 0.385, 0.4, 0.4, 0.4]);
    }

    #[test]
    fn one_worker_has_the_base_rate_and_no_warm_up_begins_high() {
        let alone = Schedule::new(0.1, 1, 10, 2.0, Decay::Constant).unwrap();
        same([0, 10, 30].map(|step| alone.rate(step)), [0.1; 3]);
        let cold = Schedule::new(0.1, 4, 10, 0.0, Decay::Constant).unwrap();
        same([0, 1].map(|step| cold.rate(step)), [0.4; 2]);
    }

    #[test]
    fn steps_fall_at_their_epochs() {
        let decay = Decay::Steps { epochs: vec![3.0, 6.0, 8.0], factor: 0.1 };
        same(rates(decay, [20, 29, 30, 59, 60, 80]), [0.4, 0.4, 0.04, 0.04, 0.004, 0.0004]);
    }

    #[test]
    fn exponential_falls_from_the_end_of_warm_up() {
        same(rates(Decay::Exponential { factor: 0.25 }, [20, 25, 30, 40]), [0.4, 0.2, 0.1, 0.025]);
    }

    #[test]
    fn cosine_has_its_middle_in_the_middle_and_stays_at_its_end() {
        let quarter = 0.4 * (0.1 + 0.9 * (1.0 + 0.5_f64.sqrt()) / 2.0);
        let decay = Decay::Cosine { epochs: 10.0, end: 0.1 };
        same(rates(decay, [20, 40, 60, 100, 500]), [0.4, quarter, 0.22, 0.04, 0.04]);
    }

    #[test]
    fn polynomial_of_power_one_is_a_line() {
        let decay = |power| Decay::Polynomial { epochs: 10.0, end: 0.0, power };
        same(rates(decay(1.0), [20, 40, 60, 100, 500]), [0.4, 0.3, 0.2, 0.0, 0.0]);
        same(rates(decay(2.0), [20, 40, 60, 100]), [0.4, 0.225, 0.1, 0.0]);
    }

    #[test]
    fn nonsensical_settings_are_refused() {
        let cases = [
            Schedule::new(0.0, 1, 1, 0.0, Decay::Constant),
            Schedule::new(f64::INFINITY, 1, 1, 0.0, Decay::Constant),
            Schedule::new(0.1, 0, 1, 0.0, Decay::Constant),
            Schedule::new(0.1, 1, 0, 0.0, Decay::Constant),
            Schedule::new(0.1, 1, 1, f64::NAN, Decay::Constant),
            Schedule::new(0.1, 1, 1, 0.0, Decay::Exponential { factor: 1.5 }),
            Schedule::new(0.1, 1, 1, 0.0, Decay::Steps { epochs: vec![-1.0], factor: 0.1 }),
            Schedule::new(0.1, 1, 1, 5.0, Decay::Cosine { epochs: 5.0, end: 0.0 }),
            Schedule::new(0.1, 1, 1, 0.0, Decay::Polynomial { epochs: 5.0, end: 0.0, power: 0.0 }),
        ];
        for case in cases {
            let error = case.unwrap_err();
            assert!(error.to_string().contains("cannot be") && error.hint().unwrap().starts_with("it must be"));
        }
    }
}
