//! An optimizer whose state is split over the ranks.
//!
//! Every rank keeps the state of its share of all elements and changes only those: gradients are reduced to the rank
//! that has their elements, and new weights are gathered from all ranks. That moves as much as reducing gradients to all
//! ranks, and each rank needs `1/n` of the memory for state and reduced gradients. The arithmetic is that of the whole
//! optimizer, element by element; see [`element_wise`] for those that need more.
//!
//! - [`blocks`]: who has what.
//! - [`slices`]: what a rank has, as a module.
//! - [`element_wise`]: which optimizers this works for.
//! - [`scatter`]: gradients to those who have their elements.
//! - [`gather`]: new weights to all.
//! - [`central`] with [`host_memory`]: new weights to memory that the ranks of a host share.
//! - [`state`]: checkpoints that do not say how many ranks there were.

pub(crate) mod blocks;
mod central;
mod element_wise;
mod gather;
mod host_memory;
mod scatter;
mod slices;
mod state;

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use burn::{
    module::Module,
    optim::{GradientsParams, ModuleOptimizer, lr_scheduler::module_lr_scheduler::ModuleLearningRate},
    tensor::{Tensor, TensorData},
};
use sirtaki_engine::Phase;

use self::{
    blocks::{Blocks, Parameter},
    central::HostWeights,
    scatter::Scattered,
    slices::{Named, Slices, cut},
};
pub(super) use self::{element_wise::check as check_element_wise, scatter::split_sums, slices::fill};
use super::{
    DistributedOptimizer, Gradients, OptimizerState, Update, UpdateCost,
    gradients::{Entry, Reducer, take, trained_bytes},
    norm::{self, Squares, root},
    passes::PassSums,
};
use crate::{
    Error, Result, World,
    data::{FixedShards, Shard},
};

/// Steps like a [`DistributedOptimizer`], with the optimizer's state split over the ranks; made by
/// [`DistributedOptimizer::shard`].
///
/// Each rank keeps the state of an equal share of all elements. The optimizer has to change each element by itself, as
/// SGD, Adam and AdamW do; others are refused in the first step, with the parameter that they need as a whole. The
/// parameters that are trained stay the same, and no rank can [join](DistributedOptimizer::join).
///
/// ```no_run
/// # fn main() -> sirtaki::Result<()> {
/// use burn::{nn::LinearConfig, optim::{AdamConfig, GradientsParams}, tensor::Tensor};
///
/// let world = sirtaki::init()?;
/// let device = world.device().autodiff();
/// let mut model = world.broadcast(LinearConfig::new(4, 2).init(&device), 0)?;
/// let mut optimizer = sirtaki::DistributedOptimizer::new(&world, AdamConfig::new().init()).shard();
/// let loss = model.forward(Tensor::<2>::ones([8, 4], &device)).mean();
/// let gradients = GradientsParams::from_grads(loss.backward(), &model);
/// model = optimizer.step(0.001, model, gradients)?;
/// # let _ = model;
/// # Ok(())
/// # }
/// ```
pub struct ShardedOptimizer {
    world: World,
    reducer: Reducer,
    /// With the state of this rank's slices.
    optimizer: ModuleOptimizer,
    passes: PassSums,
    layout: Option<Layout>,
    /// The weights, if the ranks of a host have them in common.
    central: Option<HostWeights>,
    waited: Duration,
    cost: UpdateCost,
    skipped: u64,
}

/// Who has what of a module.
#[derive(Debug, Clone)]
struct Layout {
    blocks: Blocks,
    /// What this rank has of each parameter.
    own: Vec<Vec<Range<usize>>>,
}

impl DistributedOptimizer {
    /// The same with the optimizer's state split over the ranks, before the first step.
    pub fn shard(self) -> ShardedOptimizer {
        let Self { world, optimizer, reducer, .. } = self;
        let (passes, layout, waited, cost) = (PassSums::default(), None, Duration::ZERO, UpdateCost::default());
        ShardedOptimizer { world, reducer, optimizer, passes, layout, central: None, waited, cost, skipped: 0 }
    }
}

impl ShardedOptimizer {
    /// The weights, too, live once per host: after the first step the parameters of the module lie in memory that the ranks
    /// of a host share, and are read in place. All ranks call it.
    ///
    /// Each rank computes gradients with them and changes its share, to the same bits as with weights of its own; nothing is
    /// gathered within a host. On a GPU, weights are copied to the device in every step.
    ///
    /// The parameters of a clone of the module are the same memory, and change in the next step. To keep weights, save
    /// them, or copy the tensors out.
    pub fn central(mut self) -> Result<Self> {
        self.central = Some(HostWeights::new(&self.world)?);
        Ok(self)
    }

    /// One step of all ranks with the module's gradients here; see [`DistributedOptimizer::step`].
    pub fn step<M: Module>(
        &mut self,
        rate: impl Into<ModuleLearningRate>,
        module: M,
        gradients: GradientsParams,
    ) -> Result<M> {
        Update::step(self, rate.into(), module, gradients.into())
    }

    /// One step with all shards of a step of the plan, to the same bits on any number of workers and as with the whole
    /// state; see [`DistributedOptimizer::step_shards`].
    pub fn step_shards<M: Module, E: From<Error>>(
        &mut self,
        rate: impl Into<ModuleLearningRate>,
        module: M,
        plan: &FixedShards,
        step: usize,
        gradients: impl FnMut(&M, Shard) -> std::result::Result<GradientsParams, E>,
    ) -> std::result::Result<M, E> {
        let update: &mut dyn Update<M> = self;
        update.step_shards(rate, module, plan, step, gradients)
    }

    /// Who has what of this module, which has to be the one of earlier steps.
    fn layout<M: Module>(&mut self, module: &M) -> Result<Layout> {
        let found = take(module, &mut GradientsParams::new());
        if let Some(layout) = &self.layout {
            if layout.blocks.parameters.iter().map(|parameter| parameter.id).eq(found.iter().map(|entry| entry.id)) {
                return Ok(layout.clone());
            }
            let problem = "other parameters are trained than in earlier steps, and their state is split over workers";
            return Err(Error::setting(problem, "make a new optimizer when parameters are frozen or released"));
        }
        if self.reducer.compression.is_some() {
            let problem = "gradients are not compressed on their way to the worker that has their elements";
            return Err(Error::setting(problem, "leave `compress` out, or keep the optimizer's state whole"));
        }
        if !self.optimizer.to_record().is_empty() {
            let problem = "the optimizer has made steps before its state was to be split";
            return Err(Error::setting(problem, "call `shard` before the first step"));
        }
        element_wise::check(module, &self.optimizer)?;
        let names = self.reducer.names(module, &found);
        let parameter = |(entry, name): (Entry, &String)| {
            let path = name.split_once('/').map_or(name.as_str(), |(_, path)| path).to_owned();
            Parameter { id: entry.id, path, shape: entry.shape, dtype: entry.dtype }
        };
        let blocks = Blocks::new(found.into_iter().zip(&names.names).map(parameter).collect());
        let own = blocks.owned(self.world.rank(), self.world.size());
        Ok(self.layout.insert(Layout { blocks, own }).clone())
    }

    /// What gradients are multiplied by, unless they overflow; the same on all ranks.
    fn factor(&self, scattered: &Scattered) -> Result<Option<f64>> {
        if !self.reducer.needs_norm() {
            return Ok(self.reducer.factor(scattered.scale, 0.0));
        }
        let mut squares = Squares::new();
        scattered.slices.iter().flatten().for_each(|slice| squares.add(slice));
        let worlds: Vec<&World> = [&self.world].into_iter().chain(&scattered.others).collect();
        let digits = norm::over(&worlds, &format!("{} norm", self.reducer.purpose), squares.digits())?;
        Ok(self.reducer.factor(scattered.scale, root(&digits)))
    }

    /// This rank's slices after the step.
    fn change<M: Module>(
        &mut self,
        layout: &Layout,
        rate: ModuleLearningRate,
        module: &M,
        (scattered, factor): (Scattered, f64),
    ) -> Vec<TensorData> {
        let _phase = self.world.engine().phase(Phase::Optimizer);
        let mine = layout.blocks.parameters.iter().zip(&layout.own).filter(|(_, own)| !own.is_empty());
        let mut values = cut(module, mine.map(|(parameter, own)| (parameter.id, own.as_slice())).collect());
        let (mut slices, mut gradients) = (Vec::new(), GradientsParams::new());
        for (parameter, gradient) in layout.blocks.parameters.iter().zip(scattered.slices) {
            let Some(value) = values.remove(&parameter.id) else { continue };
            if let Some(data) = gradient {
                let dtype = data.dtype();
                let gradient = Tensor::<1>::from_data(data, (&value.device(), dtype));
                let gradient = if factor == 1.0 { gradient } else { gradient.mul_scalar(factor) };
                gradients.register(parameter.id, gradient);
            }
            slices.push(Named::new(&parameter.path, parameter.id, value));
        }
        let slices = self.optimizer.step(rate, Slices(slices), gradients);
        slices.0.into_iter().map(Named::data).collect()
    }
}

impl<M: Module> Update<M> for ShardedOptimizer {
    fn world(&self) -> &World {
        &self.world
    }

    fn step(&mut self, rate: ModuleLearningRate, module: M, gradients: Gradients) -> Result<M> {
        let layout = self.layout(&module)?;
        let (begun, module, scattered) = match gradients {
            Gradients::Own(gradients) => {
                let Some(gradients) = self.passes.gather(&module, gradients, self.reducer.passes) else {
                    return Ok(module);
                };
                let begun = Instant::now();
                let scattered = scatter::own(&self.world, &mut self.reducer, &layout, &module, gradients)?;
                (begun, module, scattered)
            }
            Gradients::Leaves(sums) => {
                let begun = Instant::now();
                let (module, scattered) = scatter::leaves(&self.world, &mut self.reducer, &layout, module, *sums)?;
                (begun, module, scattered)
            }
        };
        let factor = self.factor(&scattered)?;
        self.waited += begun.elapsed();
        let (ranks, bytes) = (self.world.size(), trained_bytes(&module, None));
        self.cost.step(ranks, bytes);
        self.cost.pass(ranks, bytes);
        let Some(factor) = factor else {
            self.skipped += 1;
            return Ok(module);
        };
        let changed = self.change(&layout, rate, &module, (scattered, factor));
        let begun = Instant::now();
        let module = match &mut self.central {
            None => {
                self.cost.pass(ranks, bytes);
                gather::weights(&self.world, &self.reducer.purpose, &layout, module, changed)?
            }
            Some(central) => {
                // One rank of each host gathers for all; this rank's part of it is what counts.
                self.cost.pass(central.hosts(), bytes * central.hosts() as u64 / ranks as u64);
                central.write(&self.reducer.purpose, &layout, module, changed)?
            }
        };
        self.waited += begun.elapsed();
        Ok(module)
    }

    fn settle(&mut self, module: M) -> Result<M> {
        self.world.average_statistics(module)
    }

    fn save(&self, _: &M) -> Result<OptimizerState<'_>> {
        self.passes.check_complete()?;
        match &self.layout {
            Some(layout) => state::save(&self.world, layout, &self.optimizer),
            None => Ok(OptimizerState::none()),
        }
    }

    fn restore(&mut self, module: &M, state: OptimizerState<'_>) -> Result<()> {
        let layout = self.layout(module)?;
        self.optimizer = state::restore(&self.world, &layout, &self.optimizer, state)?;
        Ok(())
    }

    fn is_sum(&self) -> bool {
        !self.reducer.mean
    }

    fn waited(&self) -> Duration {
        self.waited
    }

    fn cost(&self) -> UpdateCost {
        let shared = self.central.as_ref().map_or(0, HostWeights::shared) as u64;
        UpdateCost { shared, ..self.cost.clone() }
    }

    fn skipped(&self) -> u64 {
        self.skipped
    }
}

impl std::fmt::Debug for ShardedOptimizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ShardedOptimizer").field("world", &self.world).field("options", &self.reducer).finish()
    }
}
