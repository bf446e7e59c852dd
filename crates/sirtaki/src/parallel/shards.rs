//! Steps whose results do not depend on the number of workers, down to the last bit.
//!
//! The batch of a step is cut into a fixed number of shards; see [`FixedShards`]. Everything that happens to a shard
//! follows from the shard: it begins with the statistics that the step began with and with random numbers of its own.
//! Everything that shards have in common is added along one tree; see [`super::tree_sums`]. Rejected: gathering all
//! shards' gradients on all ranks, which moves and keeps as many copies as there are shards.

use burn::{
    module::Module,
    optim::{GradientsParams, lr_scheduler::module_lr_scheduler::ModuleLearningRate},
    tensor::Device,
};

use super::{DistributedOptimizer, LeafSums, Update, dropout::begin_pass};
use crate::{
    Error, Result, World,
    data::{FixedShards, Shard},
    random::Stream,
};

/// Reseeds the random numbers of this device, and of the layers of ours that this thread computes, from a stream: before
/// a forward pass, so that those of dropout depend on the position in the data and not on what was computed before.
pub fn seed(device: &Device, mut stream: Stream) {
    begin_pass(stream.clone());
    device.seed(stream.bits());
}

impl<M: Module> dyn Update<M> + '_ {
    /// One step with all shards of a step of the plan; see [`DistributedOptimizer::step_shards`].
    pub fn step_shards<E: From<Error>>(
        &mut self,
        rate: impl Into<ModuleLearningRate>,
        module: M,
        plan: &FixedShards,
        step: usize,
        mut gradients: impl FnMut(&M, Shard) -> std::result::Result<GradientsParams, E>,
    ) -> std::result::Result<M, E> {
        check(self.world(), plan, step)?;
        let sums = LeafSums::new(&module, plan.shards(), plan.shard_size(), plan.together(step))?;
        let (mut sums, mut module) = (sums.summed(self.is_sum()), module);
        let devices = sums.devices();
        for batch in step * plan.per_step()..(step + 1) * plan.per_step() {
            let shard = plan.shard(batch);
            if shard.samples == 0 {
                sums.skip(shard.number);
                continue;
            }
            devices.iter().for_each(|device| seed(device, plan.stream("forward", batch)));
            let gradients = gradients(&module, shard)?;
            module = sums.add(module, shard.number, shard.samples, gradients)?;
        }
        Ok(self.step(rate.into(), module, sums.into())?)
    }
}

impl DistributedOptimizer {
    /// One step with all shards of a step of the plan, to the same bits on any number of workers.
    ///
    /// `gradients` is called for each of this worker's shards, in the order of the plan, and returns those of the mean
    /// loss of the shard's samples; shards are weighted by their samples. Before each call, the module's devices are
    /// [seeded](seed) for the shard. Shards without samples, which are the very last of an epoch, are left out. Running
    /// statistics become the mean over all shards that changed them.
    ///
    /// All ranks call it. Parameters without a gradient in a shard count as zero; those without one in any are not
    /// touched. Gradients cannot be [compressed](Self::compress) and there is one pass per shard.
    ///
    /// Workers have to compute alike: with the same version of the program, and on processors of the same kind. Where
    /// Burn's feature `rayon` is switched on, which adds large sums in any order, set `RAYON_NUM_THREADS=1`.
    ///
    /// ```no_run
    /// # use burn::{nn::LinearConfig, optim::{GradientsParams, SgdConfig}, tensor::Tensor};
    /// # use sirtaki::{DistributedOptimizer, data::{FixedShards, Position, Worker}};
    /// # fn main() -> sirtaki::Result<()> {
    /// # let world = sirtaki::init()?;
    /// # let device = world.device().autodiff();
    /// # let mut model = world.broadcast(LinearConfig::new(4, 2).init(&device), 0)?;
    /// let mut optimizer = DistributedOptimizer::new(&world, SgdConfig::new().init());
    /// let worker = Worker { rank: world.rank(), world: world.size() };
    /// let plan = FixedShards::new(60_000, Position::start(42), worker, 8, 256)?;
    /// for step in 0..plan.steps() {
    ///     model = optimizer.step_shards(0.1, model, &plan, step, |model, shard| {
    ///         let loss = model.forward(Tensor::<2>::ones([shard.samples, 4], &device)).mean();
    ///         Ok::<_, sirtaki::Error>(GradientsParams::from_grads(loss.backward(), model))
    ///     })?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
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
}

/// Whether this rank can take this step of the plan.
pub(super) fn check(world: &World, plan: &FixedShards, step: usize) -> Result<()> {
    if !plan.is_for(world.worker()) {
        let problem = format!("the plan of shards is not that of rank {} of {}", world.rank(), world.size());
        return Err(Error::setting(problem, "make it with `Worker { rank: world.rank(), world: world.size() }`"));
    }
    if step >= plan.steps() {
        let problem = format!("there is no step {step} in a plan of {}", plan.steps());
        return Err(Error::setting(problem, "make a plan for the next epoch"));
    }
    Ok(())
}
