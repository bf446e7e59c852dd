//! From one worker to many: the expected step, by drawing recorded steps for all of them.
//!
//! A tensor is reduced when the slowest worker has it. So every draw gives each worker one of the recorded steps, takes
//! the latest time of every tensor, and replays that; the prediction is the mean over the draws. The stream of random
//! numbers is always the same, and so are the predictions. Where times vary normally, the slowest worker's step is the
//! usual one stretched by the largest of as many normal numbers, of which quantiles take the place of draws.

use serde::Serialize;
use sirtaki_engine::decide::fuse::Limits;

use super::{
    cost::Network,
    faults::Goodput,
    random::{Random, largest_normals},
    replay::{Batch, StepTimes, batches, replay},
    server::{self, ServerTraffic},
    strategy::{Placement, Strategy},
    work::{Sample, Work},
};

/// Number of draws, unless there are so many workers and tensors that fewer have to suffice.
const DRAWS: usize = 200;
/// Most times that are examined for one number of workers.
const EFFORT: usize = 200_000_000;
/// Steps of a window from which its time is taken to vary normally, however single steps do.
const LONG: usize = 256;
/// The least part of its usual time that a step takes, however much noise there is.
const LEAST: f64 = 0.1;

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
    pub strategy: Strategy,
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
    /// What a worker sends in a step.
    pub sent_bytes: f64,
    /// Weights, gradients and Adam's state of a worker.
    pub memory_bytes: u64,
    pub failures: Option<Goodput>,
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
    (scaling, strategy): (ScalingMode, Strategy),
    workers: &[usize],
) -> Vec<Prediction> {
    let basis = work.basis();
    let row = |&workers: &usize| Forecast { work, basis: &basis, network, limits, scaling, strategy, workers }.row();
    workers.iter().map(row).collect()
}

struct Forecast<'a> {
    work: &'a Work,
    basis: &'a [Sample],
    network: &'a Network,
    limits: Limits,
    scaling: ScalingMode,
    strategy: Strategy,
    workers: usize,
}

/// What follows computing in a step in which all workers take part.
struct Exchange {
    batches: Vec<Batch>,
    vote: f64,
    /// Seconds at the beginning of a step that other workers do instead.
    saved: f64,
    /// Seconds at the end that nothing hides.
    after: f64,
}

impl Exchange {
    fn step(&self, slowest: &Sample) -> StepTimes {
        let earlier = |time: f64| time - time.min(self.saved);
        let ready: Vec<f64> = slowest.ready.iter().copied().map(earlier).collect();
        let times = replay(&self.batches, self.vote, &ready, earlier(slowest.computed));
        StepTimes { ended: times.ended + self.after, ..times }
    }
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
        self.basis.iter().map(|sample| sample.scaled(share, self.work.fixed)).collect()
    }

    fn row(&self) -> Prediction {
        let alone = mean(self.samples(1).iter().map(|sample| sample.computed));
        let samples = self.samples(self.workers);
        let batches = batches(&self.work.tensors, self.limits, self.network, self.workers, self.work.copy);
        let collectives = match self.strategy {
            Strategy::Server { .. } => Vec::new(),
            _ => summary(&batches),
        };
        let own = mean(samples.iter().map(|sample| sample.computed)) - self.saved();
        let courses = self.courses(&samples, batches);
        let step = mean(courses.iter().map(|course| course.ended));
        let computed = mean(courses.iter().map(|course| course.computed));
        let n = self.workers as f64;
        // The work of one step if one worker had to do all of it alone.
        let speedup = match self.scaling {
            ScalingMode::Weak => n * alone / step,
            ScalingMode::Strong => alone / step,
        };
        let batch = self.work.batch.map(|batch| batch as f64 * self.share(self.workers));
        let (hosts, per_host) = (self.network.hosts(self.workers), self.network.per_host);
        let place = Placement { workers: self.workers, hosts, per_host };
        Prediction {
            workers: self.workers,
            hosts,
            strategy: self.strategy,
            step_seconds: step,
            efficiency: speedup / n,
            speedup,
            samples_per_second: batch.map(|batch| batch * n / step),
            straggler_seconds: computed - own,
            communication_seconds: step - computed,
            sent_bytes: self.strategy.sent_bytes(self.work.bytes(), place),
            memory_bytes: self.strategy.memory_bytes(self.work.bytes(), place),
            failures: None,
            collectives,
        }
    }

    /// How the steps of this strategy go.
    fn courses(&self, samples: &[Sample], batches: Vec<Batch>) -> Vec<StepTimes> {
        match self.strategy {
            Strategy::Server { servers, delay } => {
                let traffic = ServerTraffic::new(self.network, self.work.bytes(), self.workers, servers);
                let own = mean(samples.iter().map(|sample| sample.computed));
                let mut random = Random(0x5eed);
                let draw = || self.drawn(samples, &mut random);
                vec![server::step(traffic, (self.workers, delay), own, draw)]
            }
            Strategy::Local { every: every @ 2.. } => self.windows(samples, &batches, every),
            _ => self.in_step(samples, &self.exchange(batches)),
        }
    }

    /// Seconds of the optimizer that other workers do for this one.
    fn saved(&self) -> f64 {
        let others = 1.0 - 1.0 / self.workers as f64;
        if self.strategy.is_split() { self.work.fixed * others } else { 0.0 }
    }

    /// With split state, half of every reduction takes gradients to the workers that change weights with them; the other
    /// half, or less if the workers of a host share their weights, returns weights after the step.
    fn exchange(&self, mut batches: Vec<Batch>) -> Exchange {
        let (vote, saved) = (self.network.vote(self.workers), self.saved());
        if !self.strategy.is_split() || self.workers == 1 {
            return Exchange { batches, vote, saved, after: 0.0 };
        }
        batches.iter_mut().for_each(|batch| batch.seconds /= 2.0);
        let back = match self.strategy {
            Strategy::Central => {
                let meeting = if self.network.per_host > 1 { self.network.local.fixed } else { 0.0 };
                meeting + self.network.gather_between_hosts(self.work.bytes(), self.workers)
            }
            _ => vote + batches.iter().map(|batch| batch.seconds).sum::<f64>(),
        };
        Exchange { batches, vote, saved, after: back }
    }

    /// Computing of one worker in one step.
    fn drawn(&self, samples: &[Sample], random: &mut Random) -> f64 {
        match self.work.noise {
            Some(noise) => samples[0].computed * (1.0 + noise * random.normal()).max(LEAST),
            None => samples[random.below(samples.len())].computed,
        }
    }

    /// Steps in which every worker waits for all.
    fn in_step(&self, samples: &[Sample], exchange: &Exchange) -> Vec<StepTimes> {
        if let Some(noise) = self.work.noise {
            let stretched = |largest: f64| samples[0].scaled((1.0 + noise * largest).max(LEAST), 0.0);
            return largest_normals(self.workers, DRAWS).map(|largest| exchange.step(&stretched(largest))).collect();
        }
        // One worker's recorded steps need no drawing.
        if self.workers == 1 || samples.len() == 1 {
            return samples.iter().map(|sample| exchange.step(sample)).collect();
        }
        let effort = self.workers * (self.work.tensors.len() + 1);
        let draws = (EFFORT / effort).clamp(10, DRAWS);
        let mut random = Random(0x5eed);
        (0..draws).map(|_| exchange.step(&slowest(samples, self.workers, &mut random))).collect()
    }

    /// Steps of workers by themselves, with an average of all weights after some of them; each is the mean of such a window.
    fn windows(&self, samples: &[Sample], batches: &[Batch], every: usize) -> Vec<StepTimes> {
        let average: f64 = match self.workers {
            1 => 0.0,
            _ => self.network.vote(self.workers) + batches.iter().map(|batch| batch.seconds).sum::<f64>(),
        };
        let count = every as f64;
        let window = |slowest: f64| StepTimes { computed: slowest / count, ended: (slowest + average) / count };
        if let Some(noise) = self.work.noise.or_else(|| (every > LONG).then(|| self.work.variation())) {
            // The time of a window varies by as much as that of a step, divided by the root of its steps.
            let usual = mean(samples.iter().map(|sample| sample.computed)) * count;
            let slowest = |largest: f64| usual * (1.0 + noise / count.sqrt() * largest).max(LEAST);
            return largest_normals(self.workers, DRAWS).map(|largest| window(slowest(largest))).collect();
        }
        let mut random = Random(0x5eed);
        let mut alone = || (0..every).map(|_| samples[random.below(samples.len())].computed).sum::<f64>();
        let draws = (EFFORT / self.workers.saturating_mul(every)).clamp(10, DRAWS);
        (0..draws).map(|_| window((0..self.workers).map(|_| alone()).fold(0.0, f64::max))).collect()
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

#[cfg(test)]
#[path = "scale_tests.rs"]
mod tests;
