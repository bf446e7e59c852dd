//! From one worker to many: the expected step, by drawing recorded steps for all of them.
//!
//! A tensor is reduced when the slowest worker has it. So every draw gives each worker one of the recorded steps, takes
//! the latest time of every tensor, and replays that; the prediction is the mean over the draws. The stream of random
//! numbers is always the same, and so are the predictions.

use serde::Serialize;
use sirtaki_engine::decide::fuse::Limits;

use super::{
    cost::Network,
    replay::{Batch, StepTimes, batches, replay},
    work::{Sample, Work},
};

/// Number of draws, unless there are so many workers and tensors that fewer have to suffice.
const DRAWS: usize = 200;
/// Most times that are examined for one number of workers.
const EFFORT: usize = 200_000_000;

/// How much every worker has to do when there are more of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ScalingMode {
    /// The same.
    Weak,
    /// Its part of what all workers of the recorded job had to do together.
    Strong,
}

/// What to expect of a number of workers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Prediction {
    pub workers: usize,
    pub hosts: usize,
    pub step_seconds: f64,
    /// Share of the speed that as many workers would have without any loss.
    pub efficiency: f64,
    /// Compared with one worker.
    pub speedup: f64,
    pub samples_per_second: Option<f64>,
    /// Waiting for the slowest worker to compute, beyond the mean.
    pub straggler_seconds: f64,
    /// Communication after everything is computed.
    pub communication_seconds: f64,
    pub collectives: Vec<Collectives>,
}

/// Collectives of a step by one algorithm.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Collectives {
    pub algorithm: &'static str,
    pub count: usize,
    pub bytes: usize,
    pub seconds: f64,
}

/// Predicts one row for each number of workers.
pub(super) fn predict(
    work: &Work,
    network: &Network,
    limits: Limits,
    (scaling, every): (ScalingMode, usize),
    workers: &[usize],
) -> Vec<Prediction> {
    let row = |&workers: &usize| Forecast { work, network, limits, scaling, every, workers }.row();
    workers.iter().map(row).collect()
}

struct Forecast<'a> {
    work: &'a Work,
    network: &'a Network,
    limits: Limits,
    scaling: ScalingMode,
    /// Steps that workers make by themselves before they average weights; with one, gradients are averaged.
    every: usize,
    workers: usize,
}

impl Forecast<'_> {
    /// How much of the recorded work each of `workers` has.
    fn share(&self, workers: usize) -> f64 {
        match self.scaling {
            ScalingMode::Weak => 1.0,
            ScalingMode::Strong => self.work.workers as f64 / workers as f64,
        }
    }

    fn samples(&self, workers: usize) -> Vec<Sample> {
        let share = self.share(workers);
        self.work.samples.iter().map(|sample| sample.scaled(share, self.work.fixed)).collect()
    }

    fn row(&self) -> Prediction {
        let alone = mean(self.samples(1).iter().map(|sample| sample.computed));
        let samples = self.samples(self.workers);
        let own = mean(samples.iter().map(|sample| sample.computed));
        let batches = batches(&self.work.tensors, self.limits, self.network, self.workers, self.work.copy);
        let courses = if self.every > 1 { self.windows(&samples, &batches) } else { self.courses(&samples, &batches) };
        let step = mean(courses.iter().map(|course| course.ended));
        let computed = mean(courses.iter().map(|course| course.computed));
        let n = self.workers as f64;
        // The work of one step if one worker had to do all of it alone.
        let speedup = match self.scaling {
            ScalingMode::Weak => n * alone / step,
            ScalingMode::Strong => alone / step,
        };
        let batch = self.work.batch.map(|batch| batch as f64 * self.share(self.workers));
        Prediction {
            workers: self.workers,
            hosts: self.network.hosts(self.workers),
            step_seconds: step,
            efficiency: speedup / n,
            speedup,
            samples_per_second: batch.map(|batch| batch * n / step),
            straggler_seconds: computed - own,
            communication_seconds: step - computed,
            collectives: summary(&batches),
        }
    }

    fn courses(&self, samples: &[Sample], batches: &[Batch]) -> Vec<StepTimes> {
        let vote = self.network.vote(self.workers);
        let step = |ready: &[f64], computed| match self.workers {
            1 => StepTimes { computed, ended: computed },
            _ => replay(batches, vote, ready, computed),
        };
        // One worker's recorded steps need no drawing.
        if self.workers == 1 || samples.len() == 1 {
            return samples.iter().map(|sample| step(&sample.ready, sample.computed)).collect();
        }
        let effort = self.workers * (self.work.tensors.len() + 1);
        let draws = (EFFORT / effort).clamp(10, DRAWS);
        let mut random = Random(0x5eed);
        let draw = |_| {
            let slowest = slowest(samples, self.workers, &mut random);
            step(&slowest.ready, slowest.computed)
        };
        (0..draws).map(draw).collect()
    }

    /// Steps of workers by themselves, with an average of all weights after some of them; each is the mean of such a window.
    fn windows(&self, samples: &[Sample], batches: &[Batch]) -> Vec<StepTimes> {
        let average: f64 = match self.workers {
            1 => 0.0,
            _ => self.network.vote(self.workers) + batches.iter().map(|batch| batch.seconds).sum::<f64>(),
        };
        let (mut random, every) = (Random(0x5eed), self.every as f64);
        let mut alone = || (0..self.every).map(|_| samples[random.below(samples.len())].computed).sum::<f64>();
        let window = |_| {
            let slowest = (0..self.workers).map(|_| alone()).fold(0.0, f64::max);
            StepTimes { computed: slowest / every, ended: (slowest + average) / every }
        };
        let draws = (EFFORT / self.workers.saturating_mul(self.every)).clamp(10, DRAWS);
        (0..draws).map(window).collect()
    }
}

/// The latest times among this many workers, each of which has one of the samples.
fn slowest(samples: &[Sample], workers: usize, random: &mut Random) -> Sample {
    let mut latest = samples[random.below(samples.len())].clone();
    for _ in 1..workers {
        let sample = &samples[random.below(samples.len())];
        latest.ready.iter_mut().zip(&sample.ready).for_each(|(latest, time)| *latest = latest.max(*time));
        latest.computed = latest.computed.max(sample.computed);
    }
    latest
}

fn summary(batches: &[Batch]) -> Vec<Collectives> {
    let mut all: Vec<Collectives> = Vec::new();
    for batch in batches {
        let algorithm = batch.cost.algorithm.name();
        let at = all.iter().position(|one| one.algorithm == algorithm).unwrap_or_else(|| {
            all.push(Collectives { algorithm, count: 0, bytes: 0, seconds: 0.0 });
            all.len() - 1
        });
        all[at].count += 1;
        all[at].bytes += batch.bytes;
        all[at].seconds += batch.seconds;
    }
    all
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1);
    values.sum::<f64>() / count as f64
}

/// Numbers that look random and are always the same (SplitMix64).
pub(super) struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// From 0 to 1, never 0 itself.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Normally distributed around 0 with a deviation of 1.
    pub(super) fn normal(&mut self) -> f64 {
        (-2.0 * self.unit().ln()).sqrt() * (std::f64::consts::TAU * self.unit()).cos()
    }
}

#[cfg(test)]
mod tests {
    use sirtaki_comm::collective::Algorithm;

    use super::*;
    use crate::commands::predict::{
        cost::{LinearCost, PAYLOAD},
        work::Tensor,
    };

    const LIMITS: Limits = Limits { fused: 16 << 20, large: 1 << 20 };

    fn network() -> Network {
        Network {
            latency: 0.0,
            bandwidth: 1e6 / PAYLOAD,
            per_host: 1,
            local: LinearCost::default(),
            forced: Some(Algorithm::Doubling),
        }
    }

    fn work(computed: &[f64]) -> Work {
        let samples = computed.iter().map(|&computed| Sample { ready: vec![computed], computed }).collect();
        Work {
            title: "test".into(),
            tensors: vec![Tensor { name: "t".into(), bytes: 1_000_000 }],
            samples,
            workers: 2,
            batch: Some(10),
            fixed: 0.0,
            local: None,
            copy: 0.0,
            notes: Vec::new(),
        }
    }

    fn near(one: f64, other: f64, within: f64) {
        assert!((one - other).abs() < within, "{one} and {other}");
    }

    #[test]
    fn weak_scaling_keeps_the_work_of_a_worker() {
        let rows = predict(&work(&[4.0]), &network(), LIMITS, (ScalingMode::Weak, 1), &[1, 2, 4]);
        assert_eq!((rows[0].step_seconds, rows[0].efficiency, rows[0].samples_per_second), (4.0, 1.0, Some(2.5)));
        // 1 s by doubling between two, 2 s among four.
        near(rows[1].step_seconds, 5.0, 1e-3);
        near(rows[2].efficiency, 4.0 / 6.0, 1e-3);
        near(rows[2].speedup, 16.0 / 6.0, 1e-3);
        near(rows[2].communication_seconds, 2.0, 1e-3);
        assert_eq!(rows[2].collectives.len(), 1);
        assert_eq!((rows[2].collectives[0].algorithm, rows[2].collectives[0].count), ("doubling", 1));
    }

    #[test]
    fn strong_scaling_shares_the_work_of_the_recorded_workers() {
        let rows = predict(&work(&[4.0]), &network(), LIMITS, (ScalingMode::Strong, 1), &[1, 2, 4]);
        assert_eq!((rows[0].step_seconds, rows[0].samples_per_second), (8.0, Some(2.5)));
        near(rows[1].step_seconds, 5.0, 1e-3);
        near(rows[2].step_seconds, 2.0 + 2.0, 1e-3);
        near(rows[2].efficiency, 8.0 / 4.0 / 4.0, 1e-3);
        near(rows[2].samples_per_second.unwrap(), 20.0 / 4.0, 1e-2);
    }

    #[test]
    fn many_workers_wait_for_the_slowest() {
        // One step in ten takes twice as long: two workers meet it in 19 % of steps, a hundred nearly always.
        let mut times = vec![1.0; 9];
        times.push(2.0);
        let fast = Network { bandwidth: 1e12, ..network() };
        let rows = predict(&work(&times), &fast, LIMITS, (ScalingMode::Weak, 1), &[2, 100]);
        near(rows[0].step_seconds, 1.19, 0.07);
        near(rows[1].step_seconds, 2.0, 0.02);
        near(rows[1].straggler_seconds, 0.9, 0.02);
        let again = predict(&work(&times), &fast, LIMITS, (ScalingMode::Weak, 1), &[2, 100]);
        assert_eq!(rows, again);
    }

    #[test]
    fn averages_of_weights_are_shared_by_the_steps_between_them_and_so_is_waiting() {
        let rows = predict(&work(&[4.0]), &network(), LIMITS, (ScalingMode::Weak, 8), &[1, 2, 4]);
        assert_eq!((rows[0].step_seconds, rows[0].efficiency), (4.0, 1.0));
        // An eighth of 1 s by doubling between two, and of 2 s among four.
        near(rows[1].step_seconds, 4.0 + 1.0 / 8.0, 1e-3);
        near(rows[2].communication_seconds, 2.0 / 8.0, 1e-3);
        // Slow steps happen to all of a hundred workers in long windows, so none of them waits long for another.
        let times = [vec![1.0; 9], vec![2.0]].concat();
        let fast = Network { bandwidth: 1e12, ..network() };
        let waits =
            |every| predict(&work(&times), &fast, LIMITS, (ScalingMode::Weak, every), &[100])[0].straggler_seconds;
        assert!(waits(100) < waits(10) && waits(10) < 0.5 * waits(1), "{} {} {}", waits(100), waits(10), waits(1));
    }

    #[test]
    fn normal_numbers_are_normal() {
        let mut random = Random(1);
        let numbers: Vec<f64> = (0..10_000).map(|_| random.normal()).collect();
        let mean = numbers.iter().sum::<f64>() / 1e4;
        let variance = numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / 1e4;
        near(mean, 0.0, 0.05);
        near(variance, 1.0, 0.05);
    }
}
