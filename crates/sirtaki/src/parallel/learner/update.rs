//! How gradients become weights in Burn's learner, which keeps module, optimizer and rates to itself.

use std::time::Duration;

use burn::{
    optim::{GradientsParams, lr_scheduler::module_lr_scheduler::ModuleLearningRate},
    train::{Learner, LearnerModel},
};

use crate::{Error, Gradients, OptimizerState, Result, Update, World, parallel::gradients::Reducer};

/// The learner's own optimizer, with reduced gradients.
pub(super) struct LearnerUpdate<'a, M: LearnerModel> {
    pub(super) world: &'a World,
    pub(super) reducer: &'a mut Reducer,
    pub(super) learner: &'a mut Learner<M>,
}

impl<M: LearnerModel> Update<M> for LearnerUpdate<'_, M> {
    fn world(&self) -> &World {
        self.world
    }

    /// The next rate and the module are the learner's own, so those that are given do not matter.
    fn step(&mut self, _: ModuleLearningRate, module: M, gradients: Gradients) -> Result<M> {
        let gradients = match gradients {
            Gradients::Own(gradients) => self.reducer.reduce(self.world, &module, gradients)?,
            Gradients::Leaves(sums) => {
                let (module, gradients) = self.reducer.reduce_leaves(self.world, module, *sums)?;
                self.learner.load_model(module.into_record());
                gradients
            }
        };
        self.learner.lr_step();
        // Losses are not scaled here, so there always are gradients.
        self.learner.optimizer_step(gradients.unwrap_or_else(GradientsParams::new));
        Ok(self.learner.model())
    }

    fn settle(&mut self, module: M) -> Result<M> {
        let module = self.world.average_statistics(module)?;
        self.learner.load_model(module.clone().into_record());
        Ok(module)
    }

    fn save(&self, _: &M) -> Result<OptimizerState<'_>> {
        Err(kept_by_burn())
    }

    fn restore(&mut self, _: &M, _: OptimizerState<'_>) -> Result<()> {
        Err(kept_by_burn())
    }

    fn is_sum(&self) -> bool {
        !self.reducer.mean
    }

    fn waited(&self) -> Duration {
        Duration::ZERO
    }
}

fn kept_by_burn() -> Error {
    Error::setting(
        "the state of a learner's optimizer is not handed out",
        "use the checkpoints of Burn's training loop",
    )
}
