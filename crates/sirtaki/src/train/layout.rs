//! Who has what of the network: every worker all of it, or stages of it on different workers, parts of their layers on
//! several, and copies of those.

use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use burn::tensor::{Device, Tensor};
use sirtaki_comm::Reduction;
use sirtaki_engine::{Operation, Request, Tensor as EngineTensor};

use super::{
    data_sets::{DataSet, SampleKind},
    meter::Score,
    model::{self, Passes},
    networks::Network,
    settings::{Settings, Stages},
    work_split::Shares,
};
use crate::{
    Chain, Error, Layer, Pipeline, Result, Resumed, Update, World,
    checkpoint::Manifest,
    data::{Ahead, Batch, FixedShards, Loader, Partition, Plan, Position, Samples},
    pipeline::{LayerCost, PipelineSchedule, cut},
    tensor_parallel::SplitCrossEntropy,
    world::elements,
};

/// Stages that the interleaved schedule gives a worker.
const CHUNKS: usize = 2;

/// Who has what.
pub(super) struct Layout {
    world: World,
    /// The workers that have the same layers as this one, and other samples.
    copies: World,
    /// Those of them that have the same weights: all, or this one alone where each keeps other rows of them.
    equals: World,
    stages: Option<Staged>,
}

struct Staged {
    workers: World,
    /// The workers that have other parts of the same layers, if layers are split.
    parts: Option<World>,
    pipeline: Pipeline,
}

impl Layout {
    pub(super) fn new<N: Network>(world: &World, settings: &Settings, network: &N) -> Result<Self> {
        let Some(stages) = settings.stages else {
            return Ok(Self { world: world.clone(), copies: world.clone(), equals: world.clone(), stages: None });
        };
        let copies = settings.copies(world.size())?;
        let mut axes = vec![("data", copies), ("pipe", stages.workers)];
        if stages.parts > 1 {
            axes.push(("tensor", stages.parts));
        }
        let mesh = world.mesh(&axes)?;
        let (copies, workers) = (mesh.axis("data")?.clone(), mesh.axis("pipe")?.clone());
        let parts = (stages.parts > 1).then(|| mesh.axis("tensor").cloned()).transpose()?;
        let ranges = ranges(world, settings, stages, network)?;
        // Layers that are borrowed take turns, with all micro-batches at a time.
        let schedule = if is_by_layer(stages) { PipelineSchedule::GPipe } else { stages.schedule };
        let pipeline = Pipeline::new(&workers, schedule, stages.micros, ranges)?;
        let equals = if stages.shard_parameters { copies.split(copies.rank() as u64)? } else { copies.clone() };
        Ok(Self { world: world.clone(), copies, equals, stages: Some(Staged { workers, parts, pipeline }) })
    }

    /// The workers among which samples are shared out.
    pub(super) fn copies(&self) -> &World {
        &self.copies
    }

    /// The workers whose weights are the same as this one's.
    pub(super) fn equals(&self) -> &World {
        &self.equals
    }

    /// Whether copies keep different rows of the weights.
    fn lends(&self) -> bool {
        self.equals.size() < self.copies.size()
    }

    /// Whether every worker has the whole network.
    pub(super) fn is_whole(&self) -> bool {
        self.stages.is_none()
    }

    /// This worker's layers.
    pub(super) fn chain<N: Network>(&self, network: &N, device: &Device, seed: u64) -> Result<Chain<N::Layer>> {
        let layers = match &self.stages {
            None => (0..network.depth()).collect(),
            Some(staged) => staged.pipeline.layers(),
        };
        if self.lends() {
            let layer = |number| network.layer(number, device, None);
            return Chain::shard_over(&self.copies, layers, device, seed, layer);
        }
        match self.parts() {
            None => Chain::new(layers, device, seed, |number| network.layer(number, device, None)),
            Some(parts) => {
                Chain::split_over(parts, layers, device, seed, |number, parts| network.layer(number, device, parts))
            }
        }
    }

    /// The workers that have other parts of the same layers, if layers are split.
    fn parts(&self) -> Option<&World> {
        self.stages.as_ref().and_then(|staged| staged.parts.as_ref())
    }

    /// The loss over classes that are split, if layers are.
    pub(super) fn loss(&self, classes: usize) -> Result<Option<SplitCrossEntropy>> {
        self.parts().map(|parts| SplitCrossEntropy::new(parts, classes)).transpose()
    }

    /// How many parameters the whole network has.
    pub(super) fn parameters<L: Layer>(&self, chain: &Chain<L>) -> Result<usize> {
        let here = chain.num_params_of_whole()?;
        match &self.stages {
            None => Ok(here),
            Some(staged) => Ok(staged.workers.sum(here as f64)? as usize),
        }
    }

    /// The sum of a value over all workers that share a copy of the network.
    pub(super) fn over_network(&self, value: f64) -> Result<f64> {
        let Some(staged) = &self.stages else { return Ok(value) };
        let value = staged.workers.sum(value)?;
        let value = if self.lends() { self.copies.sum(value)? } else { value };
        staged.parts.as_ref().map_or(Ok(value), |parts| parts.sum(value))
    }

    /// A checksum of all weights, by which equal networks are recognised.
    pub(super) fn digest<L: Layer>(&self, chain: &Chain<L>) -> Result<String> {
        let own = model::layer_digests(chain)?;
        let all = match &self.stages {
            None => own,
            Some(staged) => {
                let bytes: Vec<u8> = own.concat();
                let name = "digests of layers";
                let request = Request::new(name, Operation::AllGather, sirtaki_comm::DType::U8, &[bytes.len()]);
                let ticket = staged.workers.engine().submit(request, EngineTensor::from_vec(bytes));
                let all = elements::<u8>(name, ticket.wait_one()?)?;
                all.as_chunks::<{ model::DIGEST }>().0.iter().map(|digest| digest.to_vec()).collect()
            }
        };
        Ok(model::digest_of_layers(all))
    }

    /// The mean over all workers of the share of the time in which they waited for other stages.
    pub(super) fn bubble(&self) -> Result<Option<f64>> {
        match &self.stages {
            None => Ok(None),
            Some(staged) => self.world.average(staged.pipeline.time().bubble()).map(Some),
        }
    }

    pub(super) fn save<L: Layer>(
        &self,
        folder: &Path,
        keep: usize,
        manifest: Manifest,
        chain: &Chain<L>,
        update: &dyn Update<Chain<L>>,
    ) -> Result<PathBuf> {
        match &self.stages {
            None => self.world.save(folder, keep, manifest, chain, update),
            Some(staged) => staged.pipeline.save(folder, keep, manifest, chain, update),
        }
    }

    pub(super) fn resume<L: Layer>(
        &self,
        folder: &Path,
        model: &str,
        chain: Chain<L>,
        update: &mut dyn Update<Chain<L>>,
    ) -> Result<(Chain<L>, Option<Resumed>)> {
        match &self.stages {
            None => self.world.resume(folder, model, chain, update),
            Some(staged) => staged.pipeline.resume(folder, model, chain, update),
        }
    }

    /// One step with all micro-batches of a step of the plan, and how well this worker's part of them was classified. Only
    /// for a network in stages.
    pub(super) fn step<L: Layer>(
        &mut self,
        passes: &Passes,
        update: &mut dyn Update<Chain<L>>,
        rate: f64,
        chain: Chain<L>,
        (plan, step): (&FixedShards, usize),
        batches: &mut Ends,
    ) -> Result<(Chain<L>, Score)> {
        let Some(staged) = &mut self.stages else {
            return Err(Error::setting("the network is not in stages", "report this"));
        };
        let mut score = Score::default();
        let Ends { first, last } = batches;
        let chain = staged.pipeline.step(
            update,
            rate,
            chain,
            (plan, step),
            |_| Ok::<_, Error>(passes.tensors(next(first)?)?.0),
            |_, mut flow| {
                let (_, labels) = passes.tensors(next(last)?)?;
                let (loss, part) = passes.judge(flow.take::<Tensor<2>>()?, labels)?;
                score.add(part);
                Ok(passes.scaled(loss))
            },
        )?;
        Ok((chain, score))
    }

    /// How well the network does on the samples to test with, of which each copy takes its part.
    pub(super) fn test<L: Layer>(&mut self, passes: &Passes, chain: &Chain<L>, data: &DataSet) -> Result<Score> {
        let samples = &data.test;
        let plan = Partition::new(samples.count(), Position::start(0), self.copies.worker(), data.tested)?;
        let mut sum = Score::default();
        match &mut self.stages {
            None => {
                for batch in Loader::new(Arc::clone(samples), plan, Ahead::default())? {
                    let batch = batch?;
                    if batch.count() > 0 {
                        sum.add(passes.forward(chain, batch)?.1);
                    }
                }
            }
            Some(staged) => {
                let mut indices = Vec::new();
                let filled = |&batch: &usize| {
                    plan.indices(batch, &mut indices);
                    !indices.is_empty()
                };
                let count = (0..plan.batches()).take_while(filled).count();
                let Ends { mut first, mut last } = Ends::new(&staged.workers, samples, &plan)?;
                staged.pipeline.forward(
                    chain,
                    count,
                    |_| Ok::<_, Error>(passes.tensors(next(&mut first)?)?.0),
                    |_, mut flow| {
                        let (_, labels) = passes.tensors(next(&mut last)?)?;
                        sum.add(passes.judge(flow.take::<Tensor<2>>()?, labels)?.1);
                        Ok(())
                    },
                )?;
            }
        }
        let [loss, right, count] = self.world.sums("test", sum.to_array())?;
        Ok(Score { loss, right, count })
    }

    /// The batches that this worker needs of a plan.
    fn ends(&self, samples: &Arc<dyn Samples>, plan: &FixedShards) -> Result<Ends> {
        match &self.stages {
            None => Ok(Ends { first: None, last: None }),
            Some(staged) => Ends::new(&staged.workers, samples, plan),
        }
    }
}

/// The batches of an epoch.
pub(super) enum Batches {
    /// For a worker with the whole network.
    Whole(Loader),
    /// For both ends of a pipeline.
    Ends(Ends),
}

impl Batches {
    pub(super) fn new(layout: &Layout, samples: &Arc<dyn Samples>, shares: &Shares) -> Result<Self> {
        Ok(match shares {
            Shares::Shards(plan) if !layout.is_whole() => Batches::Ends(layout.ends(samples, plan)?),
            _ => Batches::Whole(Loader::new(Arc::clone(samples), shares.clone(), Ahead::default())?),
        })
    }
}

/// Batches at both ends of a pipeline: samples go in at one, and labels are compared at the other.
pub(super) struct Ends {
    first: Option<Loader>,
    last: Option<Loader>,
}

impl Ends {
    fn new<P: Plan + Clone + Send + Sync + 'static>(
        workers: &World,
        samples: &Arc<dyn Samples>,
        plan: &P,
    ) -> Result<Self> {
        let load = |wanted: bool| {
            let loader = || Loader::new(Arc::clone(samples), plan.clone(), Ahead::default());
            wanted.then(loader).transpose()
        };
        Ok(Self { first: load(workers.rank() == 0)?, last: load(workers.rank() + 1 == workers.size())? })
    }
}

fn next(batches: &mut Option<Loader>) -> Result<Batch> {
    let missing =
        || Err(Error::setting("there is no batch for a stage", "report this: the plan and its batches disagree"));
    batches.as_mut().and_then(Iterator::next).unwrap_or_else(missing)
}

/// Whether every layer is a stage of its own.
fn is_by_layer(stages: Stages) -> bool {
    stages.shard_parameters && stages.workers == 1
}

/// The layers of each stage, cut where rank 0 finds that all stages take about as long. Where that is does not change a
/// bit of the result.
fn ranges<N: Network>(world: &World, settings: &Settings, stages: Stages, network: &N) -> Result<Vec<Range<usize>>> {
    let depth = network.depth();
    if is_by_layer(stages) {
        return Ok((0..depth).map(|layer| layer..layer + 1).collect());
    }
    let chunks = if stages.schedule == PipelineSchedule::Interleaved { CHUNKS } else { 1 };
    let count = stages.workers * chunks;
    if count > depth {
        let problem = format!("{} has {depth} layers, too few for {count} stages", settings.model.name());
        let most = depth / chunks;
        return Err(Error::setting(problem, format!("take --mesh with pipe={most} at most, or another --schedule")));
    }
    let mut times = vec![0.0; depth];
    if world.rank() == 0 {
        let device = world.device().autodiff();
        let samples = settings.micro_batch(world.size())?;
        let costs = Chain::costs(0..depth, &device, network.kind().blank(samples, &device), |number| {
            network.layer(number, &device, None)
        })?;
        times.iter_mut().zip(costs).for_each(|(time, cost)| *time = cost.time);
    }
    let times = world.reduce("times of layers", Reduction::SUM, times)?;
    let costs: Vec<LayerCost> = times.into_iter().map(|time| LayerCost { time, memory: 0 }).collect();
    Ok(cut(&costs, count, u64::MAX)?.stages)
}
