//! Any Burn optimizer, with the gradients of all ranks.

use std::time::{Duration, Instant};

use burn::{
    module::Module,
    optim::{GradientsParams, ModuleOptimizer, lr_scheduler::module_lr_scheduler::ModuleLearningRate},
};
use sirtaki_engine::{Compression, Phase};

use super::{
    Gradients, OptimizerState, Update, UpdateCost,
    gradients::{Reducer, trained_bytes},
    optimizer_record,
    passes::PassSums,
    sharded::check_element_wise,
};
use crate::{Result, World};

/// Steps with the mean of all ranks' gradients, so that all ranks' modules stay equal if they were at the start; see
/// [`World::broadcast`].
///
/// ```no_run
/// # fn main() -> sirtaki::Result<()> {
/// use burn::{nn::LinearConfig, optim::{GradientsParams, SgdConfig}, tensor::Tensor};
///
/// let world = sirtaki::init()?;
/// let device = world.device().autodiff();
/// let mut model = world.broadcast(LinearConfig::new(4, 2).init(&device), 0)?;
/// let mut optimizer = sirtaki::DistributedOptimizer::new(&world, SgdConfig::new().init()).clip(1.0);
/// let loss = model.forward(Tensor::<2>::ones([8, 4], &device)).mean();
/// let gradients = GradientsParams::from_grads(loss.backward(), &model);
/// model = optimizer.step(0.1, model, gradients)?;
/// # let _ = model;
/// # Ok(())
/// # }
/// ```
pub struct DistributedOptimizer {
    pub(super) world: World,
    pub(super) optimizer: ModuleOptimizer,
    pub(super) reducer: Reducer,
    passes: PassSums,
    waited: Duration,
    cost: UpdateCost,
    skipped: u64,
}

impl DistributedOptimizer {
    /// The optimizer for these ranks. Every rank makes one, with the same options.
    pub fn new(world: &World, optimizer: impl Into<ModuleOptimizer>) -> Self {
        let reducer = Reducer::new("gradient", true);
        let (world, optimizer) = (world.clone(), optimizer.into());
        let (passes, waited, cost) = (PassSums::default(), Duration::ZERO, UpdateCost::default());
        Self { world, optimizer, reducer, passes, waited, cost, skipped: 0 }
    }

    /// Gradients are added, over ranks and passes, instead of averaged.
    #[must_use]
    pub fn sum(mut self) -> Self {
        self.reducer.mean = false;
        self
    }

    /// Gradients of type `f32` are sent as a smaller type.
    #[must_use]
    pub fn compress(mut self, compression: Compression) -> Self {
        self.reducer.compression = Some(compression);
        self
    }

    /// Makes one step of every `passes` calls of [`DistributedOptimizer::step`]; the others only accumulate gradients.
    /// So a rank can have a larger batch than fits into its memory.
    ///
    /// # Panics
    /// If it is zero.
    #[must_use]
    pub fn passes(mut self, passes: usize) -> Self {
        assert!(passes > 0, "a step needs at least one backward pass");
        self.reducer.passes = passes;
        self
    }

    /// Gradients are scaled down where the norm of all of them together, after averaging, is larger than this. It is
    /// computed from what all ranks have in common; only the stages of a pipeline and workers that each have a part of the
    /// state have to add up theirs.
    #[must_use]
    pub fn clip(mut self, largest: f64) -> Self {
        self.reducer.clip = Some(largest);
        self
    }

    /// Gradients are those of losses that were multiplied by this number, and are divided by it. For passes in `f16`,
    /// in which small gradients underflow; 1024 is a good value to start with. Steps whose gradients overflow are left
    /// out on all ranks, and [counted](DistributedOptimizer::skipped).
    ///
    /// # Panics
    /// If it is not a positive number.
    #[must_use]
    pub fn loss_scale(mut self, scale: f64) -> Self {
        assert!(scale > 0.0 && scale.is_finite(), "losses cannot be multiplied by {scale}");
        self.reducer.loss_scale = Some(scale);
        self
    }

    /// What the gradients are called, for programs that train several modules at once and in any order.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.reducer.rename(format!("{name} gradient"));
        self
    }

    /// One step of all ranks with the module's gradients here. Parameters without a gradient on this rank count as
    /// zero; those without a gradient on any are not touched.
    pub fn step<M: Module>(
        &mut self,
        rate: impl Into<ModuleLearningRate>,
        module: M,
        gradients: GradientsParams,
    ) -> Result<M> {
        Update::step(self, rate.into(), module, gradients.into())
    }

    /// The step itself, if there is one.
    fn follow<M: Module>(&mut self, rate: ModuleLearningRate, module: M, gradients: Option<GradientsParams>) -> M {
        match gradients {
            Some(gradients) => {
                let _phase = self.world.engine().phase(Phase::Optimizer);
                self.optimizer.step(rate, module, gradients)
            }
            None => {
                self.skipped += 1;
                module
            }
        }
    }

    /// How long this rank has waited for the gradients of all so far, with everything that is done to reduce them.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// How many steps were left out because [scaled losses](DistributedOptimizer::loss_scale) were too large.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The optimizer itself, as to save its state.
    pub fn inner(&self) -> &ModuleOptimizer {
        &self.optimizer
    }

    /// The optimizer itself, as to load its state.
    pub fn inner_mut(&mut self) -> &mut ModuleOptimizer {
        &mut self.optimizer
    }
}

impl<M: Module> Update<M> for DistributedOptimizer {
    fn world(&self) -> &World {
        &self.world
    }

    fn step(&mut self, rate: ModuleLearningRate, module: M, gradients: Gradients) -> Result<M> {
        let (begun, module, gradients) = match gradients {
            Gradients::Own(gradients) => {
                let Some(gradients) = self.passes.gather(&module, gradients, self.reducer.passes) else {
                    return Ok(module);
                };
                let begun = Instant::now();
                let gradients = self.reducer.reduce(&self.world, &module, gradients)?;
                (begun, module, gradients)
            }
            Gradients::Leaves(sums) => {
                let begun = Instant::now();
                let (module, gradients) = self.reducer.reduce_leaves(&self.world, module, *sums)?;
                (begun, module, gradients)
            }
        };
        self.waited += begun.elapsed();
        let (ranks, bytes) = (self.world.size(), trained_bytes(&module, self.reducer.compression));
        self.cost.step(ranks, bytes);
        self.cost.pass(ranks, 2 * bytes);
        Ok(self.follow(rate, module, gradients))
    }

    fn settle(&mut self, module: M) -> Result<M> {
        self.world.average_statistics(module)
    }

    fn save(&self, module: &M) -> Result<OptimizerState<'_>> {
        self.passes.check_complete()?;
        match self.world.rank() {
            0 => optimizer_record::save(&self.optimizer, module),
            _ => Ok(OptimizerState::none()),
        }
    }

    fn restore(&mut self, module: &M, state: OptimizerState<'_>) -> Result<()> {
        let world = self.world.clone();
        world.on_rank_0("optimizer state read", || {
            self.optimizer = optimizer_record::restore(&self.optimizer, module, state)?;
            Ok(())
        })?;
        self.broadcast(module, 0)
    }

    fn whole(&self) -> Option<&ModuleOptimizer> {
        Some(&self.optimizer)
    }

    fn check_parts(&self, module: &M) -> Result<()> {
        // State that it has goes with parameters of their own sizes, which the trial does not have.
        match self.optimizer.to_record().is_empty() {
            true => check_element_wise(module, &self.optimizer),
            false => Ok(()),
        }
    }

    fn is_sum(&self) -> bool {
        !self.reducer.mean
    }

    fn waited(&self) -> Duration {
        self.waited
    }

    fn cost(&self) -> UpdateCost {
        self.cost.clone()
    }

    fn skipped(&self) -> u64 {
        self.skipped
    }
}

impl std::fmt::Debug for DistributedOptimizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DistributedOptimizer").field("world", &self.world).field("options", &self.reducer).finish()
    }
}
