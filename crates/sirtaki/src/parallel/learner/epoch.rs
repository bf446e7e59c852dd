//! One epoch of Burn's learner, in step with all other ranks.

use burn::{
    data::dataloader::{DataLoader, Progress},
    module::{Module, ModuleVisitor, Param},
    optim::{GradientsAccumulator, GradientsParams},
    tensor::Tensor,
    train::{
        EventProcessorTraining, InferenceStep, Interrupter, Learner, LearnerEvent, LearnerModel,
        SupervisedTrainingEventProcessor, TrainStep, TrainingItem,
    },
};

use super::{rounds::LearnerRounds, update::LearnerUpdate};
use crate::{Result, Update, World, parallel::gradients::Reducer};

/// Where events go: to Burn's metrics and displays on one rank, nowhere on the others.
pub(super) type Events<'a, M> = Option<&'a mut SupervisedTrainingEventProcessor<M>>;

/// What an epoch needs, besides the learner.
pub(super) struct EpochContext<'a> {
    pub(super) world: &'a World,
    pub(super) reducer: Reducer,
    pub(super) interrupter: &'a Interrupter,
    /// Batches whose gradients are added up for a step.
    pub(super) passes: usize,
}

impl EpochContext<'_> {
    /// Trains with this rank's part of the data; `items` is how many all ranks have.
    pub(super) fn train<M: LearnerModel>(
        &mut self,
        learner: &mut Learner<M>,
        part: &dyn DataLoader<<M as TrainStep>::Input>,
        items: usize,
        mut events: Events<'_, M>,
    ) -> Result<()> {
        let mut rounds = LearnerRounds::new(self.world, Some(part), self.interrupter);
        let mut gathered = GradientsAccumulator::new();
        let (mut passes, mut seen, mut iteration) = (0, 0, 0);
        loop {
            let (batch, asked) = rounds.begin();
            let output = batch.map(|(batch, count)| (learner.train_step(batch), count as f64));
            let all = rounds.end(asked)?;
            if all.stop {
                return Ok(());
            }
            if all.items == 0.0 {
                break;
            }
            (seen, iteration, passes) = (seen + all.items as usize, iteration + 1, passes + 1);
            let item = output.map(|(output, count)| {
                let model = learner.model();
                // Batches differ in size at the end of a part. A mean over all items weighs them.
                gathered.accumulate(&model, scaled(&model, output.grads, count / all.items));
                output.item
            });
            if passes == self.passes {
                self.step(learner, gathered.grads())?;
                passes = 0;
            }
            if let (Some(events), Some(item)) = (&mut events, item) {
                let progress = Progress::new(seen.min(items), items, Some("items".into()));
                let item = TrainingItem::new(item, progress, Some(iteration), Some(learner.lr_current()));
                self.interrupter.fail_on_error(events.process_train(LearnerEvent::ProcessedItem(item)));
            }
        }
        if passes > 0 { self.step(learner, gathered.grads()) } else { Ok(()) }
    }

    /// One step of all ranks. A rank without gradients takes the same step as the others.
    fn step<M: LearnerModel>(&mut self, learner: &mut Learner<M>, gradients: GradientsParams) -> Result<()> {
        let (rate, model) = (learner.lr_current(), learner.model());
        LearnerUpdate { world: self.world, reducer: &mut self.reducer, learner }.step(rate, model, gradients.into())?;
        Ok(())
    }

    /// Makes the model what is validated and saved.
    pub(super) fn settle<M: LearnerModel>(&mut self, learner: &mut Learner<M>) -> Result<()> {
        let model = learner.model();
        LearnerUpdate { world: self.world, reducer: &mut self.reducer, learner }.settle(model)?;
        Ok(())
    }

    /// Validates with this rank's part of the data, if it has one; `items` is how many all ranks have.
    pub(super) fn validate<M: LearnerModel>(
        &self,
        learner: &Learner<M>,
        part: Option<&dyn DataLoader<<M as InferenceStep>::Input>>,
        items: usize,
        mut events: Events<'_, M>,
    ) -> Result<()> {
        let model = learner.model().valid();
        let mut rounds = LearnerRounds::new(self.world, part, self.interrupter);
        let (mut seen, mut iteration) = (0, 0);
        loop {
            let (batch, asked) = rounds.begin();
            let item = batch.map(|(batch, _)| InferenceStep::step(&model, batch));
            let all = rounds.end(asked)?;
            if all.stop || all.items == 0.0 {
                return Ok(());
            }
            (seen, iteration) = (seen + all.items as usize, iteration + 1);
            if let (Some(events), Some(item)) = (&mut events, item) {
                let progress = Progress::new(seen.min(items), items, Some("items".into()));
                let item = TrainingItem::new(item, progress, Some(iteration), None);
                self.interrupter.fail_on_error(events.process_valid(LearnerEvent::ProcessedItem(item)));
            }
        }
    }
}

/// The gradients times a factor.
fn scaled<M: Module>(module: &M, gradients: GradientsParams, factor: f64) -> GradientsParams {
    if factor == 1.0 {
        return gradients;
    }
    let mut scale = Scale { from: gradients, to: GradientsParams::new(), factor };
    module.visit(&mut scale);
    scale.to
}

struct Scale {
    from: GradientsParams,
    to: GradientsParams,
    factor: f64,
}

impl ModuleVisitor for Scale {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.from.remove::<D>(param.id) {
            self.to.register(param.id, gradient.mul_scalar(self.factor));
        }
    }
}
