//! Networks in stages, one after the other on different workers.
//!
//! A network is a [`Chain`] of layers; a worker has those of its stages. Micro-batches are the shards of
//! [`FixedShards`](crate::data::FixedShards), gradients are added along the same tree as in one process, and messages
//! carry bits, so a pipeline, and any product of pipelines with data parallelism, trains to the bits of one process.
//!
//! - [`flow`]: what goes from layer to layer.
//! - [`chain`]: the layers.
//! - [`splits`]: layers that are split over workers, besides.
//! - [`loans`]: whole parameters for as long as they are needed, where workers keep rows of them.
//! - [`handing`]: gradients that are exchanged while others are computed.
//! - [`pull`]: backward from gradients that another worker has computed.
//! - [`links`]: messages between stages.
//! - [`failure`]: why no more of them will come.
//! - [`step`], [`inference`], [`checkpoint`]: what is done with a pipeline.
//! - [`measure`]: what layers cost, to cut a network where stages take equally long.

mod chain;
mod checkpoint;
mod failure;
mod flow;
mod handing;
mod inference;
mod links;
mod loans;
mod measure;
mod pull;
mod splits;
mod step;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    ops::Range,
    time::Duration,
};

use burn::tensor::Device;

use self::links::StageLinks;
pub use self::{
    chain::{Chain, Layer},
    flow::{Carried, Flow},
};
use super::shards;
use crate::{
    Error, Result, World,
    data::FixedShards,
    pipeline::{PipelinePlan, PipelineSchedule},
};

/// A network in stages, from the point of view of one of its workers.
///
/// ```no_run
/// # use burn::{module::Module, nn::{Linear, LinearConfig}, optim::SgdConfig, tensor::Tensor};
/// # use sirtaki::{Chain, DistributedOptimizer, Error, Flow, Layer, Pipeline, data::{FixedShards, Position}};
/// # use sirtaki::pipeline::PipelineSchedule;
/// #[derive(Module, Debug)]
/// struct Dense {
///     linear: Linear,
/// }
///
/// impl Layer for Dense {
///     fn forward(&self, mut flow: Flow) -> sirtaki::Result<Flow> {
///         Ok(Flow::new().with(self.linear.forward(flow.take::<Tensor<2>>()?)))
///     }
/// }
///
/// # fn main() -> sirtaki::Result<()> {
/// let world = sirtaki::init()?;
/// let mesh = world.mesh(&[("data", 2), ("pipe", 2)])?;
/// let (data, pipe) = (mesh.axis("data")?, mesh.axis("pipe")?);
/// let device = world.device().autodiff();
/// let schedule = PipelineSchedule::OneForwardOneBackward;
/// let mut pipeline = Pipeline::new(pipe, schedule, 4, vec![0..3, 3..6])?;
/// let layer = |_| Ok(Dense { linear: LinearConfig::new(8, 8).init(&device) });
/// let mut chain = Chain::new(pipeline.layers(), &device, 42, layer)?;
/// let mut optimizer = DistributedOptimizer::new(data, SgdConfig::new().init());
/// let plan = FixedShards::new(60_000, Position::start(42), data.worker(), 8, 256)?;
/// for step in 0..plan.steps() {
///     chain = pipeline.step(
///         &mut optimizer,
///         0.1,
///         chain,
///         (&plan, step),
///         |shard| Ok::<_, Error>(Flow::new().with(Tensor::<2>::ones([shard.samples, 8], &device))),
///         |_, mut flow| Ok(flow.take::<Tensor<2>>()?.mean()),
///     )?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct Pipeline {
    world: World,
    plan: PipelinePlan,
    /// The layers of all stages.
    stages: Vec<Range<usize>>,
    device: Device,
    recompute: bool,
    waits: bool,
    /// Whether the optimizer is known to work on parts of parameters.
    checked: bool,
    links: StageLinks,
    time: PipelineTime,
    most_held: usize,
}

/// How long a worker has been busy with the passes of its stages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PipelineTime {
    /// From the first to the last pass of every step.
    pub steps: Duration,
    /// Computing.
    pub busy: Duration,
}

impl PipelineTime {
    /// The share of the time in which the worker waited for others.
    pub fn bubble(&self) -> f64 {
        if self.steps.is_zero() {
            return 0.0;
        }
        1.0 - self.busy.as_secs_f64() / self.steps.as_secs_f64()
    }
}

impl Pipeline {
    /// A pipeline of these workers, with `micros` micro-batches per step. `stages` are the layers of each stage; stage
    /// `s` belongs to worker `s % world.size()`. All workers call it with the same values.
    pub fn new(world: &World, schedule: PipelineSchedule, micros: usize, stages: Vec<Range<usize>>) -> Result<Self> {
        check_stages(&stages, world.size())?;
        let plan = PipelinePlan::new(schedule, world.size(), stages.len() / world.size(), micros)?;
        same_everywhere(world, &(plan, &stages))?;
        let (links, device) = (StageLinks::new(world, plan), world.device().autodiff());
        let (world, time) = (world.clone(), PipelineTime::default());
        Ok(Self {
            world,
            plan,
            stages,
            device,
            recompute: false,
            waits: false,
            checked: false,
            links,
            time,
            most_held: 0,
        })
    }

    /// Computes a stage's forward pass once more right before its backward pass, instead of keeping what the first one
    /// computed: a third more computing, and only the inputs of stages are kept for micro-batches under way.
    #[must_use]
    pub fn recompute(mut self) -> Self {
        self.recompute = true;
        self
    }

    /// Waits for the gradients of a stage before it computes those of the stage before, where workers keep rows of
    /// parameters ([`Chain::shard_over`]); otherwise they are exchanged meanwhile. To see what that is worth.
    #[must_use]
    pub fn wait_for_gradients(mut self) -> Self {
        self.waits = true;
        self
    }

    /// The numbers of this worker's layers, ascending.
    pub fn layers(&self) -> Vec<usize> {
        self.own_stages().flat_map(|stage| self.stages[stage].clone()).collect()
    }

    /// Who does what when.
    pub fn plan(&self) -> PipelinePlan {
        self.plan
    }

    /// How long this worker has been busy in all steps so far.
    pub fn time(&self) -> PipelineTime {
        self.time
    }

    /// For how many micro-batches this worker has kept activations at once, at most, counted once for each of its stages.
    pub fn most_held(&self) -> usize {
        self.most_held
    }

    fn own_stages(&self) -> impl Iterator<Item = usize> + use<> {
        self.plan.stages_of(self.world.rank())
    }

    fn check_step(&self, data: &World, plan: &FixedShards, step: usize) -> Result<()> {
        shards::check(data, plan, step)?;
        let (shards, micros) = (plan.shards(), self.plan.micros());
        if shards != data.size() * micros {
            let problem = format!(
                "{shards} shards of a step are not {micros} micro-batches for each of {} pipelines",
                data.size()
            );
            return Err(Error::setting(problem, "make as many micro-batches as a worker has shards"));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipeline").field("plan", &self.plan).field("stages", &self.stages).finish_non_exhaustive()
    }
}

fn check_stages(stages: &[Range<usize>], workers: usize) -> Result<()> {
    if stages.is_empty() || !stages.len().is_multiple_of(workers) {
        let problem = format!("{} stages cannot be shared equally by {workers} workers", stages.len());
        return Err(Error::setting(problem, format!("make {workers} stages, or a multiple of that")));
    }
    let mut next = 0;
    for (number, stage) in stages.iter().enumerate() {
        if stage.start != next || stage.is_empty() {
            let problem = format!("stage {number} has the layers {stage:?}, and should begin with layer {next}");
            return Err(Error::setting(
                problem,
                "let every stage have at least one layer, and begin where the one before ends",
            ));
        }
        next = stage.end;
    }
    Ok(())
}

/// Fails on all workers if one of them has another value.
fn same_everywhere(world: &World, value: &impl Hash) -> Result<()> {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    let hashes = world.gather("what a pipeline is like", hasher.finish())?;
    match (1..hashes.len()).find(|&worker| hashes[worker] != hashes[0]) {
        None => Ok(()),
        Some(worker) => Err(Error::setting(
            format!(
                "worker {worker} of the pipeline has another schedule, other stages or other micro-batches than worker 0"
            ),
            "make the pipeline with the same values on all workers",
        )),
    }
}
