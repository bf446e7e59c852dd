//! Goodput: the share of all time in which a job does what it would not have to do again. Pure.
//!
//! Hosts fail independently and without memory, so a job on `h` hosts fails every `mtbf / h` on average. What follows is
//! exact for that assumption (Daly, A higher order estimate of the optimum checkpoint interval, 2006): failures also
//! happen while a checkpoint is written and while the job starts again.

use serde::Serialize;

use crate::args::quantities::Interval;

/// What happens when a host fails.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Recovery {
    /// All workers start again from the last checkpoint.
    Checkpoints {
        /// Seconds or steps between two; the best if not given.
        every: Option<Interval>,
        /// Seconds for which each stops all workers.
        seconds: f64,
    },
    /// The others repeat the step from memory after so many seconds, with fewer workers until the lost ones are replaced.
    Elastic { seconds: f64 },
}

/// How often hosts fail, and what happens then.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Faults {
    /// Seconds between two failures of one host.
    pub mtbf: f64,
    pub recovery: Recovery,
    /// Seconds until all workers run again.
    pub restart: f64,
}

/// What failures leave of a job's time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Goodput {
    /// Between two failures of the job.
    pub failure_seconds: f64,
    /// Useful time between two checkpoints, if there are any.
    pub checkpoint_seconds: Option<f64>,
    /// Where goodput is best, by Daly's formula.
    pub best_checkpoint_seconds: Option<f64>,
    /// Young's approximation of it.
    pub young_checkpoint_seconds: Option<f64>,
    /// Useful time divided by all time.
    pub goodput: f64,
}

impl Faults {
    /// The goodput of a job on so many hosts, whose steps take so many seconds.
    pub(super) fn goodput(&self, hosts: usize, step: f64) -> Goodput {
        let failures = self.mtbf / hosts.max(1) as f64;
        match self.recovery {
            Recovery::Checkpoints { every, seconds } => {
                let best = daly(seconds, failures);
                let interval = match every {
                    // No checkpoint is worth less than a step.
                    None => best.max(step),
                    Some(Interval::Steps(steps)) => steps as f64 * step,
                    Some(Interval::Seconds(seconds)) => seconds,
                };
                Goodput {
                    failure_seconds: failures,
                    checkpoint_seconds: Some(interval),
                    best_checkpoint_seconds: Some(best),
                    young_checkpoint_seconds: Some(young(seconds, failures)),
                    goodput: useful(interval, seconds, self.restart, failures),
                }
            }
            Recovery::Elastic { seconds } => {
                // A host is there for `mtbf` and then away until it is replaced.
                let there = self.mtbf / (self.mtbf + self.restart);
                Goodput {
                    failure_seconds: failures,
                    checkpoint_seconds: None,
                    best_checkpoint_seconds: None,
                    young_checkpoint_seconds: None,
                    goodput: there * useful(step, 0.0, seconds, failures),
                }
            }
        }
    }
}

/// Useful time over all time, with something kept every `interval` seconds that takes `keeping` seconds, `restart` seconds
/// after each failure, and a failure every `failures` seconds.
pub(super) fn useful(interval: f64, keeping: f64, restart: f64, failures: f64) -> f64 {
    if interval <= 0.0 {
        return if keeping > 0.0 { f64::MIN_POSITIVE } else { useful(1e-9, keeping, restart, failures) };
    }
    let expected = failures * (restart / failures).exp() * ((interval + keeping) / failures).exp_m1();
    (interval / expected).clamp(f64::MIN_POSITIVE, 1.0)
}

/// The best time between two checkpoints of `seconds` each, to the first order.
pub(super) fn young(seconds: f64, failures: f64) -> f64 {
    (2.0 * seconds * failures).sqrt()
}

/// The best time between two checkpoints of `seconds` each.
pub(super) fn daly(seconds: f64, failures: f64) -> f64 {
    if seconds >= 2.0 * failures {
        return failures;
    }
    let ratio = seconds / (2.0 * failures);
    young(seconds, failures) * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - seconds
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn checkpoints(every: Option<Interval>, seconds: f64) -> Faults {
        Faults { mtbf: 3.6e6, recovery: Recovery::Checkpoints { every, seconds }, restart: 120.0 }
    }

    #[test]
    fn intervals_are_those_of_the_formulas() {
        // 20 s of checkpoint and a failure an hour: √(2 · 20 · 3600) = 379.5 s.
        assert!((young(20.0, 3600.0) - 379.473).abs() < 1e-3);
        // 379.473 · (1 + 0.0527046 / 3 + 0.0027778 / 9) − 20.
        assert!((daly(20.0, 3600.0) - 366.257).abs() < 1e-2, "{}", daly(20.0, 3600.0));
        assert_eq!(daly(100.0, 10.0), 10.0);
    }

    #[test]
    fn goodput_is_that_of_the_first_order_where_failures_are_rare() {
        // A checkpoint of 20 s every 600 s, half an interval and 120 s lost every 1000 h.
        let found = checkpoints(Some(Interval::Seconds(600.0)), 20.0).goodput(1, 1.0);
        let estimate = 600.0 / 620.0 / (1.0 + (310.0 + 120.0) / 3.6e6);
        assert!((found.goodput - estimate).abs() < 1e-5, "{} and {estimate}", found.goodput);
        assert_eq!((found.failure_seconds, found.checkpoint_seconds), (3.6e6, Some(600.0)));
        let steps = checkpoints(Some(Interval::Steps(300)), 20.0).goodput(1, 2.0);
        assert_eq!(steps, found);
    }

    #[test]
    fn goodput_is_that_of_simulated_failures() {
        // A failure every 1000 s; 50 s of checkpoint every 300 s, 30 s to start again.
        let (failures, mut random) = (1000.0, super::super::random::Random(3));
        let mut next = move || {
            let square: f64 = random.normal().powi(2) + random.normal().powi(2);
            square / 2.0 * failures
        };
        let (mut all, mut useful_time) = (0.0, 0.0);
        let (mut left, mut wanted, mut gain) = (next(), 350.0, 300.0);
        for _ in 0..400_000 {
            if left < wanted {
                (all, left, wanted, gain) = (all + left, next(), 30.0, 0.0);
            } else {
                (all, left, useful_time) = (all + wanted, left - wanted, useful_time + gain);
                (wanted, gain) = (350.0, 300.0);
            }
        }
        let (simulated, computed) = (useful_time / all, useful(300.0, 50.0, 30.0, failures));
        assert!((simulated - computed).abs() < 0.003, "{simulated} and {computed}");
    }

    #[test]
    fn elastic_jobs_lose_a_step_and_the_workers_that_are_away() {
        let faults = Faults { mtbf: 1e6, recovery: Recovery::Elastic { seconds: 0.5 }, restart: 120.0 };
        let found = faults.goodput(100, 0.2);
        // Every 10,000 s half a second, and half a step that is repeated.
        let estimate = 1e6 / (1e6 + 120.0) / (1.0 + 0.6 / 1e4);
        assert!((found.goodput - estimate).abs() < 1e-7, "{} and {estimate}", found.goodput);
        assert!(found.checkpoint_seconds.is_none());
    }

    proptest! {
        #[test]
        fn goodput_is_a_share(
            mtbf in 1.0..1e9_f64,
            every in 1e-3..1e6_f64,
            seconds in 0.0..1e4_f64,
            restart in 0.0..1e5_f64,
            hosts in 1_usize..200_000,
        ) {
            let every = Some(Interval::Seconds(every));
            for recovery in [Recovery::Checkpoints { every, seconds }, Recovery::Elastic { seconds }] {
                let found = Faults { mtbf, recovery, restart }.goodput(hosts, 0.3).goodput;
                prop_assert!(found > 0.0 && found <= 1.0, "{found}");
            }
        }

        #[test]
        fn more_hosts_and_longer_restarts_are_never_better(
            mtbf in 1e4..1e9_f64, restart in 0.0..1e4_f64, hosts in 1_usize..10_000,
        ) {
            let of = |hosts, restart| {
                let recovery = Recovery::Checkpoints { every: Some(Interval::Seconds(600.0)), seconds: 20.0 };
                Faults { mtbf, recovery, restart }.goodput(hosts, 0.3).goodput
            };
            prop_assert!(of(hosts + 1, restart) <= of(hosts, restart));
            prop_assert!(of(hosts, restart + 1.0) <= of(hosts, restart));
        }

        #[test]
        fn no_interval_is_better_than_daly_s_by_much(
            seconds in 0.1..100.0_f64, failures in 1e3..1e7_f64, factor in 0.05..20.0_f64,
        ) {
            let best = daly(seconds, failures);
            let of = |interval| useful(interval, seconds, 60.0, failures);
            prop_assert!(of(best) >= of(best * factor) - 1e-3, "{} and {}", of(best), of(best * factor));
        }
    }
}
