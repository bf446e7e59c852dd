//! A network of unequal layers, cut into stages by their measured times: how equally long its workers are busy.

use burn::{
    module::Module,
    nn::{Linear, LinearConfig},
    optim::SgdConfig,
    tensor::{Device, Tensor, activation::relu},
};
use sirtaki::{
    Chain, DistributedOptimizer, Error, Flow, Layer, Pipeline, Result, World,
    data::{FixedShards, Position},
    pipeline::{LayerCost, PipelineSchedule, cut},
};

use crate::{
    goals::{Goal, ratio},
    work::Size,
};

const LAYERS: usize = 24;
const STEPS: usize = 4;
/// The longest stage divided by the mean.
const MOST: f64 = 1.10;

/// Two dense layers with more or fewer features in between.
#[derive(Module, Debug)]
struct Uneven {
    up: Linear,
    down: Linear,
}

impl Uneven {
    fn new(number: usize, width: usize, device: &Device) -> Self {
        let inner = width * [2, 8, 3, 1, 6, 4, 5][number % 7] / 8;
        Self {
            up: LinearConfig::new(width, inner.max(1)).init(device),
            down: LinearConfig::new(inner.max(1), width).init(device),
        }
    }
}

impl Layer for Uneven {
    fn forward(&self, mut flow: Flow) -> Result<Flow> {
        Ok(Flow::new().with(self.down.forward(relu(self.up.forward(flow.take::<Tensor<2>>()?)))))
    }
}

/// How many seconds this rank is busy with its stage.
pub(crate) fn busy(world: &World, size: Size) -> Result<f64> {
    let device = world.device().autodiff();
    let input = |samples: usize| Flow::new().with(Tensor::<2>::ones([samples, size.width], &device).require_grad());
    let layer = |number| Ok(Uneven::new(number, size.width, &device));
    let mut times = [0.0; LAYERS];
    if world.rank() == 0 {
        let costs = Chain::costs(0..LAYERS, &device, input(size.samples), layer)?;
        times.iter_mut().zip(costs).for_each(|(time, cost)| *time = cost.time);
    }
    let costs = world.sums("times of layers", times)?.map(|time| LayerCost { time, memory: 0 });
    let stages = cut(&costs, world.size(), u64::MAX)?.stages;
    let mut pipeline = Pipeline::new(world, PipelineSchedule::OneForwardOneBackward, size.micros, stages)?;
    let mut chain = Chain::new(pipeline.layers(), &device, 42, layer)?;
    let alone = world.split(world.rank() as u64)?;
    let mut optimizer = DistributedOptimizer::new(&alone, SgdConfig::new().init());
    let batch = size.micros * size.samples;
    let plan = FixedShards::new(STEPS * batch, Position::start(1), alone.worker(), size.micros, batch)?;
    let mut first = None;
    for step in 0..STEPS {
        chain = pipeline.step(
            &mut optimizer,
            0.001,
            chain,
            (&plan, step),
            |shard| Ok::<_, Error>(input(shard.samples)),
            |_, mut flow| Ok(flow.take::<Tensor<2>>()?.mean()),
        )?;
        first.get_or_insert(pipeline.time().busy);
    }
    Ok((pipeline.time().busy - first.unwrap_or_default()).as_secs_f64())
}

/// The longest time of a rank, divided by the mean.
pub(crate) fn imbalance(ranks: &[f64]) -> f64 {
    let mean = ranks.iter().sum::<f64>() / ranks.len() as f64;
    ranks.iter().copied().fold(0.0, f64::max) / mean
}

/// A line, and the goal.
pub(crate) fn told(workers: usize, imbalance: f64) -> (String, Goal) {
    let line = format!("\n{workers:>7}  longest stage ÷ mean {imbalance:.3}");
    let what = format!("{LAYERS} unequal layers on {workers} workers: longest stage ÷ mean");
    (line, Goal::at_most(&what, imbalance, MOST, ratio))
}
