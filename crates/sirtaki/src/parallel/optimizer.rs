//! Any Burn optimizer, with the gradients of all ranks.

use std::time::{Duration, Instant};

use burn::{
    module::{Module, ModuleVisitor, Param},
    optim::{
        GradientsAccumulator, GradientsParams, ModuleOptimizer, lr_scheduler::module_lr_scheduler::ModuleLearningRate,
    },
    tensor::{Bytes, Tensor, TensorData},
};
use sirtaki_comm::Rank;
use sirtaki_engine::{Compression, Operation, Phase};

use super::{
    convert::{inbound, outbound, zeros},
    gradients::Reducer,
};
use crate::{Error, Result, World};

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
    kept: GradientsParams,
    passes: usize,
    pub(super) waited: Duration,
    skipped: u64,
}

impl DistributedOptimizer {
    /// The optimizer for these ranks. Every rank makes one, with the same options.
    pub fn new(world: &World, optimizer: impl Into<ModuleOptimizer>) -> Self {
        let reducer = Reducer::new("gradient", true);
        let (world, optimizer) = (world.clone(), optimizer.into());
        Self { world, optimizer, reducer, kept: GradientsParams::new(), passes: 0, waited: Duration::ZERO, skipped: 0 }
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
    /// computed from what all ranks have in common and needs no communication.
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
        let Some(gradients) = self.gather(&module, gradients) else { return Ok(module) };
        let begun = Instant::now();
        let gradients = self.reducer.reduce(&self.world, &module, gradients)?;
        self.waited += begun.elapsed();
        Ok(self.follow(rate, module, gradients))
    }

    /// The step itself, if there is one.
    pub(super) fn follow<M: Module>(
        &mut self,
        rate: impl Into<ModuleLearningRate>,
        module: M,
        gradients: Option<GradientsParams>,
    ) -> M {
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

    /// The gradients of all passes, after the last of them.
    fn gather<M: Module>(&mut self, module: &M, gradients: GradientsParams) -> Option<GradientsParams> {
        self.passes += 1;
        let earlier = std::mem::take(&mut self.kept);
        let gathered = if earlier.is_empty() {
            gradients
        } else {
            let mut sum = GradientsAccumulator::new();
            sum.accumulate(module, earlier);
            sum.accumulate(module, gradients);
            sum.grads()
        };
        if self.passes < self.reducer.passes {
            self.kept = gathered;
            return None;
        }
        self.passes = 0;
        Some(gathered)
    }

    /// Says that this rank has no more batches, and waits until no rank has. Until then the others go on, and the mean
    /// is over those that do. Returns the module of the rank that was the last, which has seen all steps; this
    /// optimizer's state becomes that rank's too. All ranks call it at the end of an epoch.
    pub fn join<M: Module>(&mut self, module: M) -> Result<M> {
        let last = self.world.engine().join()?;
        let module = self.world.broadcast(module, last)?;
        self.broadcast(&module, last)?;
        Ok(module)
    }

    /// Makes the state, such as momentum, that of rank `root`, after the module has become that rank's with
    /// [`World::broadcast`]. All ranks call it.
    pub fn broadcast<M: Module>(&mut self, module: &M, root: Rank) -> Result<()> {
        let mut identities = Identities::default();
        module.visit(&mut identities);
        let mine = identities.0.clone();
        let theirs = self.share("optimizer identities", TensorData::new(mine, [identities.0.len()]), root)?;
        let same = theirs.as_slice::<i64>().is_ok_and(|theirs| theirs == identities.0);
        let state = self.optimizer.into_bytes().map_err(|error| state_problem(&error.to_string()))?;
        // If modules differ, no rank may go on to share the state: it would wait for the others.
        let agreed = self.world.average(if same { 1.0 } else { 0.0 })?;
        if agreed < 1.0 {
            let problem = format!("the modules of rank {root} and of others are not the same");
            return Err(Error::setting(problem, "call World::broadcast on the module first, on all ranks"));
        }
        let length = self.share("optimizer length", TensorData::new(vec![state.len() as i64], [1]), root)?;
        let length = length.as_slice::<i64>().ok().and_then(|length| usize::try_from(*length.first()?).ok());
        let length = length.ok_or_else(|| state_problem("its length is not a number"))?;
        let data = if self.world.rank() == root {
            TensorData::from_bytes(state, [length], burn::tensor::DType::U8)
        } else {
            zeros(&[length].into(), burn::tensor::DType::U8)
        };
        let received = self.share("optimizer state", data, root)?;
        if self.world.rank() != root {
            let bytes = Bytes::from_bytes_vec(received.as_bytes().to_vec());
            let optimizer = self.optimizer.clone().from_bytes(bytes);
            self.optimizer = optimizer.map_err(|error| state_problem(&error.to_string()))?;
        }
        Ok(())
    }

    /// What rank `root` has.
    fn share(&self, name: &str, data: TensorData, root: Rank) -> Result<TensorData> {
        let (shape, dtype) = (data.shape().clone(), data.dtype());
        let (request, tensor) = outbound(name, Operation::Broadcast { root }, data);
        inbound(name, self.world.engine().submit(request, tensor).wait_one()?, shape, dtype)
    }

    /// How long this rank has waited for the gradients of all so far, with everything that is done to reduce them.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// How many steps were left out because [scaled losses](DistributedOptimizer::loss_scale) were too large.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Whether some passes of a step are done and others are not.
    pub(super) fn is_gathering(&self) -> bool {
        self.passes > 0
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

impl std::fmt::Debug for DistributedOptimizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DistributedOptimizer").field("world", &self.world).field("options", &self.reducer).finish()
    }
}

fn state_problem(problem: &str) -> Error {
    Error::setting(format!("the optimizer's state cannot be shared: {problem}"), "use the same optimizer on all ranks")
}

/// The parameters an optimizer may know, by their identities.
#[derive(Default)]
struct Identities(Vec<i64>);

impl ModuleVisitor for Identities {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if param.is_require_grad() {
            self.0.push(param.id.val().cast_signed());
        }
    }
}
