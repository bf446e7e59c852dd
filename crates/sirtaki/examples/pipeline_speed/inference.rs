//! How much faster batches pass through a network that workers share, in stages or in parts of layers, than through one
//! worker that has all of it.

use std::{collections::BTreeMap, fmt::Write, time::Instant};

use burn::{
    module::Module,
    nn::LinearConfig,
    tensor::{Device, Tensor, activation::relu},
};
use sirtaki::{
    Chain, Error, Flow, Layer, Pipeline, Result, World,
    pipeline::PipelineSchedule,
    tensor_parallel::{ColumnLinear, RowLinear},
};

use crate::{
    goals::{Goal, ratio},
    work::{Size, median},
};

/// Batches that pass through, for each micro-batch of a step.
const TIMES: usize = 4;

/// How workers share the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shared {
    Stages,
    Parts,
}

/// Two dense layers that can be split.
#[derive(Module, Debug)]
pub(crate) struct Pair {
    up: ColumnLinear,
    down: RowLinear,
}

impl Pair {
    pub(crate) fn new(width: usize, device: &Device, parts: Option<&World>) -> Result<Self> {
        let linear = || LinearConfig::new(width, width).init(device);
        Ok(Self { up: ColumnLinear::new(parts, linear())?, down: RowLinear::new(parts, linear())? })
    }
}

impl Layer for Pair {
    fn forward(&self, mut flow: Flow) -> Result<Flow> {
        Ok(Flow::new().with(self.down.forward(relu(self.up.forward(flow.take::<Tensor<2>>()?)))))
    }
}

/// How many seconds all batches take.
pub(crate) fn seconds(world: &World, shared: Shared, size: Size) -> Result<f64> {
    let (device, layers, count) = (world.device(), size.layers, TIMES * size.micros);
    let input = || Ok::<_, Error>(Flow::new().with(Tensor::<2>::ones([size.samples, size.width], &device)));
    let take = |mut flow: Flow| flow.take::<Tensor<2>>().map(|tensor| drop(tensor.into_data()));
    match shared {
        Shared::Stages => {
            let cut = |stage: usize| stage * layers / world.size()..(stage + 1) * layers / world.size();
            let stages = (0..world.size()).map(cut).collect();
            let mut pipeline = Pipeline::new(world, PipelineSchedule::GPipe, 1, stages)?;
            let chain = Chain::new(pipeline.layers(), &device, 42, |_| Pair::new(size.width, &device, None))?;
            pipeline.forward(&chain, world.size(), |_| input(), |_, flow| take(flow))?;
            world.engine().barrier("inference")?;
            let begun = Instant::now();
            pipeline.forward(&chain, count, |_| input(), |_, flow| take(flow))?;
            Ok(begun.elapsed().as_secs_f64())
        }
        Shared::Parts => {
            let layer = |_, parts: Option<&World>| Pair::new(size.width, &device, parts);
            let chain = Chain::split_over(world, 0..layers, &device, 42, layer)?;
            take(chain.forward(input()?)?)?;
            world.engine().barrier("inference")?;
            let begun = Instant::now();
            (0..count).try_for_each(|_| take(chain.forward(input()?)?))?;
            Ok(begun.elapsed().as_secs_f64())
        }
    }
}

/// Seconds of all turns.
#[derive(Debug, Default)]
pub(crate) struct Speeds {
    pub(crate) one: Vec<f64>,
    shared: BTreeMap<(usize, Shared), Vec<f64>>,
}

impl Speeds {
    pub(crate) fn add(&mut self, workers: usize, shared: Shared, seconds: f64) {
        self.shared.entry((workers, shared)).or_default().push(seconds);
    }

    /// A table, and the goals: whoever shares a network is faster than one worker.
    pub(crate) fn told(&self) -> (String, Vec<Goal>) {
        let one = median(self.one.iter().copied());
        let mut text = format!("inference: one worker takes {:.2} ms for all batches", 1000.0 * one);
        let mut goals = Vec::new();
        for (&(workers, shared), seconds) in &self.shared {
            let seconds = median(seconds.iter().copied());
            let what = if shared == Shared::Stages { "stages" } else { "parts of layers" };
            let times = one / seconds;
            let _ = write!(text, "\n{workers:>7}  {what:<24} {:>7.2} ms {times:>8.2}×", 1000.0 * seconds);
            let what = format!("inference in {what} on {workers} workers, times faster than one worker");
            goals.push(Goal::at_least(&what, times, 1.0, ratio));
        }
        (text, goals)
    }
}
