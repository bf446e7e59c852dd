//! Workers that step by themselves and average their weights every few steps.
//!
//! Where the network is slow, or workers wait for each other more than they compute, that divides both by the length of
//! such a window. Between two averages every worker is alone: its inner optimizer sees a world of one rank. Whatever
//! has to be the same on all ranks, such as a test or a checkpoint, ends a window first.
//!
//! - [`weights`]: the weights of a module, averaged over the ranks.
//! - [`outer`]: steps with what a window has changed.
//! - [`state`]: momentum made equal, and checkpoints.

mod outer;
mod state;
mod weights;

use std::time::{Duration, Instant};

use burn::{
    module::Module,
    optim::{GradientsParams, lr_scheduler::module_lr_scheduler::ModuleLearningRate},
};

use self::{outer::Outer, state::WindowState};
use super::{DistributedOptimizer, Gradients, OptimizerState, Update, UpdateCost, gradients::trained_bytes};
use crate::{Error, Result, World};

/// Steps of every rank by itself, with weights averaged every few of them: local SGD.
///
/// Momentum, and any other state of the optimizer, stays each rank's own; [`Update::settle`] averages it too, because a
/// checkpoint has one state for all. With an [outer](LocalSgd::outer) step it is DiLoCo, with steps in common
/// [first](LocalSgd::after) post-local SGD.
///
/// ```no_run
/// # fn main() -> sirtaki::Result<()> {
/// use burn::{nn::LinearConfig, optim::{GradientsParams, SgdConfig}, tensor::Tensor};
///
/// let world = sirtaki::init()?;
/// let device = world.device().autodiff();
/// let mut model = world.broadcast(LinearConfig::new(4, 2).init(&device), 0)?;
/// let optimizer = sirtaki::DistributedOptimizer::new(&world, SgdConfig::new().init());
/// let mut optimizer = sirtaki::LocalSgd::new(optimizer)?.every(8).after(400);
/// let loss = model.forward(Tensor::<2>::ones([8, 4], &device)).mean();
/// let gradients = GradientsParams::from_grads(loss.backward(), &model);
/// model = optimizer.step(0.1, model, gradients)?;
/// # let _ = model;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LocalSgd {
    inner: DistributedOptimizer,
    everybody: World,
    alone: World,
    every: u64,
    after: u64,
    outer: Option<Outer>,
    /// Steps so far, and how many of them since ranks had the same weights.
    steps: u64,
    since: u64,
    waited: Duration,
    cost: UpdateCost,
}

impl LocalSgd {
    /// The optimizer for these ranks, with averages after every 8 steps. All ranks call it.
    pub fn new(optimizer: DistributedOptimizer) -> Result<Self> {
        let everybody = optimizer.world.clone();
        let alone = everybody.split(everybody.rank() as u64)?;
        let (outer, waited, cost) = (None, Duration::ZERO, UpdateCost::default());
        Ok(Self { inner: optimizer, everybody, alone, every: 8, after: 0, outer, steps: 0, since: 0, waited, cost })
    }

    /// Weights are averaged after every so many steps.
    ///
    /// # Panics
    /// If it is zero.
    #[must_use]
    pub fn every(mut self, steps: u64) -> Self {
        assert!(steps > 0, "a window has at least one step");
        self.every = steps;
        self
    }

    /// So many steps with the mean of all gradients come first, while weights change fastest.
    #[must_use]
    pub fn after(mut self, steps: u64) -> Self {
        self.after = steps;
        self
    }

    /// The mean change of a window is not taken as it is, but as a gradient, for a step with this rate and Nesterov's
    /// momentum; 0.7 and 0.9 are good values.
    #[must_use]
    pub fn outer(mut self, rate: f64, momentum: f64) -> Self {
        self.outer = Some(Outer::new(rate, momentum));
        self
    }

    /// One step with the module's gradients here; at the end of a window weights become the same on all ranks.
    pub fn step<M: Module>(
        &mut self,
        rate: impl Into<ModuleLearningRate>,
        module: M,
        gradients: GradientsParams,
    ) -> Result<M> {
        Update::step(self, rate.into(), module, gradients.into())
    }

    /// Ends a window.
    fn average<M: Module>(&mut self, module: M) -> Result<M> {
        let begun = Instant::now();
        let module = match &mut self.outer {
            None => weights::average(&self.everybody, module)?,
            Some(outer) => outer.step(&self.everybody, module)?,
        };
        self.since = 0;
        self.waited += begun.elapsed();
        self.cost.pass(self.everybody.size(), 2 * trained_bytes(&module, None));
        Ok(module)
    }
}

impl<M: Module> Update<M> for LocalSgd {
    fn world(&self) -> &World {
        &self.everybody
    }

    fn step(&mut self, rate: ModuleLearningRate, module: M, gradients: Gradients) -> Result<M> {
        if matches!(gradients, Gradients::Leaves(_)) {
            let problem = "fixed shards have one sum of gradients for all workers, which local SGD does not make";
            return Err(Error::setting(problem, "leave out reproducible mode and stages, or local SGD"));
        }
        let in_common = self.steps < self.after;
        let (ranks, bytes) = (self.everybody.size(), trained_bytes(&module, self.inner.reducer.compression));
        self.cost.step(ranks, bytes);
        self.cost.pass(ranks, if in_common { 2 * bytes } else { 0 });
        if let (false, 0, Some(outer)) = (in_common, self.since, &mut self.outer) {
            outer.begin(&module)?;
        }
        self.inner.world = if in_common { self.everybody.clone() } else { self.alone.clone() };
        let module = Update::step(&mut self.inner, rate, module, gradients)?;
        self.steps += 1;
        self.since += u64::from(!in_common);
        if self.since == self.every { self.average(module) } else { Ok(module) }
    }

    fn settle(&mut self, module: M) -> Result<M> {
        let module = if self.since > 0 { self.average(module)? } else { module };
        if self.steps > self.after {
            let bytes = state::average(&self.everybody, &mut self.inner.optimizer, &module)?;
            self.cost.pass(self.everybody.size(), 2 * bytes);
        }
        self.everybody.average_statistics(module)
    }

    fn save(&self, module: &M) -> Result<OptimizerState<'_>> {
        if self.since > 0 {
            let problem = "a checkpoint in the middle of a window would be that of one worker";
            return Err(Error::setting(problem, "call Update::settle first"));
        }
        let state = Update::save(&self.inner, module)?;
        if self.everybody.rank() > 0 {
            return Ok(state);
        }
        let momentum = self.outer.as_ref().map_or(Ok(Vec::new()), Outer::save)?;
        Ok(WindowState { steps: self.steps, momentum }.add_to(state))
    }

    fn restore(&mut self, module: &M, state: OptimizerState<'_>) -> Result<()> {
        let mut rest = OptimizerState::none();
        let window = self.everybody.on_rank_0("local SGD read", || {
            let (window, others) = WindowState::take_from(state)?;
            rest = others;
            Ok(window)
        })?;
        (self.steps, self.since) = (window.steps, 0);
        if let Some(outer) = &mut self.outer {
            outer.restore(window.momentum);
        }
        self.inner.world = self.everybody.clone();
        Update::restore(&mut self.inner, module, rest)
    }

    fn is_sum(&self) -> bool {
        Update::<M>::is_sum(&self.inner)
    }

    fn waited(&self) -> Duration {
        self.waited + self.inner.waited()
    }

    fn cost(&self) -> UpdateCost {
        self.cost.clone()
    }

    fn skipped(&self) -> u64 {
        self.inner.skipped()
    }
}
