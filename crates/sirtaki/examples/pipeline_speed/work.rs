//! The work of one rank: steps through a pipeline of equal layers.

use std::time::{Duration, Instant};

use burn::{
    module::Module,
    nn::{Linear, LinearConfig},
    optim::SgdConfig,
    tensor::{Device, Tensor, activation::relu},
};
use sirtaki::{
    Chain, DistributedOptimizer, Error, Flow, Layer, Pipeline, Result, World,
    data::{FixedShards, Position},
    pipeline::PipelineSchedule,
};

/// Steps that do not count.
const WARM_UP: usize = 2;

/// A layer.
#[derive(Module, Debug)]
pub(crate) struct Dense {
    linear: Linear,
}

impl Dense {
    pub(crate) fn new(width: usize, device: &Device) -> Self {
        Self { linear: LinearConfig::new(width, width).init(device) }
    }
}

impl Layer for Dense {
    fn forward(&self, mut flow: Flow) -> Result<Flow> {
        Ok(Flow::new().with(relu(self.linear.forward(flow.take::<Tensor<2>>()?))))
    }
}

/// How much there is to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) micros: usize,
    pub(crate) layers: usize,
    pub(crate) width: usize,
    pub(crate) samples: usize,
    pub(crate) steps: usize,
}

/// Who does what when.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    pub(crate) workers: usize,
    pub(crate) schedule: PipelineSchedule,
    /// Stages of a worker.
    pub(crate) chunks: usize,
}

/// Seconds of a rank in a step: all of it, the passes with waiting, and computing.
pub(crate) type Seconds = [f64; 3];

/// What this rank needs for each step, and for how many micro-batches it has kept activations at once. All ranks begin a
/// step together.
pub(crate) fn steps(world: &World, way: Way, size: Size) -> Result<(Vec<Seconds>, usize)> {
    let device = world.device().autodiff();
    let count = way.workers * way.chunks;
    let stages = (0..count).map(|stage| stage * size.layers / count..(stage + 1) * size.layers / count).collect();
    let mut pipeline = Pipeline::new(world, way.schedule, size.micros, stages)?;
    let layer = |_| Ok(Dense::new(size.width, &device));
    let mut chain = Chain::new(pipeline.layers(), &device, 42, layer)?;
    let alone = world.split(world.rank() as u64)?;
    let mut optimizer = DistributedOptimizer::new(&alone, SgdConfig::new().init());
    let (batch, count) = (size.micros * size.samples, WARM_UP + size.steps);
    let plan = FixedShards::new(count * batch, Position::start(1), alone.worker(), size.micros, batch)?;
    let mut times = Vec::new();
    for step in 0..count {
        world.engine().barrier("step")?;
        let (before, begun) = (pipeline.time(), Instant::now());
        chain = pipeline.step(
            &mut optimizer,
            0.001,
            chain,
            (&plan, step),
            // With gradients of the input, so that the first stage computes what the others compute.
            |shard| {
                let input = Tensor::<2>::ones([shard.samples, size.width], &device).require_grad();
                Ok::<_, Error>(Flow::new().with(input))
            },
            |_, mut flow| Ok(flow.take::<Tensor<2>>()?.mean()),
        )?;
        let (whole, after) = (begun.elapsed(), pipeline.time());
        times.push(
            [whole, after.steps - before.steps, after.busy - before.busy].map(|time: Duration| time.as_secs_f64()),
        );
    }
    Ok((times.split_off(WARM_UP), pipeline.most_held()))
}

/// A turn: medians over its steps.
#[derive(Debug, Clone)]
pub(crate) struct Course {
    /// Seconds from the beginning of a step to the end of its slowest rank.
    pub(crate) step: f64,
    /// The share of the time in which ranks wait, from the first pass to the last.
    pub(crate) bubble: f64,
    /// For how many micro-batches each rank has kept activations at once.
    pub(crate) held: Vec<usize>,
}

impl Course {
    pub(crate) fn new(ranks: &[(Vec<Seconds>, usize)]) -> Self {
        let steps = ranks.iter().map(|(times, _)| times.len()).min().unwrap_or(0);
        let longest = |step: usize, what: usize| ranks.iter().map(|(times, _)| times[step][what]).fold(0.0, f64::max);
        let held = ranks.iter().map(|(_, held)| *held).collect();
        let bubble = |step: usize| {
            let busy: f64 = ranks.iter().map(|(times, _)| times[step][2]).sum();
            1.0 - busy / (ranks.len() as f64 * longest(step, 1))
        };
        Self { step: median((0..steps).map(|step| longest(step, 0))), bubble: median((0..steps).map(bubble)), held }
    }
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
