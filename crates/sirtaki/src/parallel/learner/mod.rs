//! Burn's own training loop on many processes.
//!
//! Burn lets a program bring its own strategy for where and how an epoch is computed, and keeps everything around it:
//! metrics, logs, checkpoints, early stopping. This strategy runs the epoch on all ranks and everything around it on
//! rank 0. What is private to Burn cannot be shared: the learner's optimizer starts afresh on every rank or, when
//! training is resumed, with the state in the checkpoint, which every rank reads. A model's outputs can have any type,
//! so metrics are computed from rank 0's outputs.

mod epoch;
mod rounds;
mod update;

use std::sync::Arc;

use burn::{
    data::dataloader::DataLoader,
    module::Module,
    tensor::Device,
    train::{
        EventProcessorTraining, Interrupter, Learner, LearnerEvent, LearnerModel, LearningResult,
        SupervisedLearningStrategy, SupervisedTrainingEventProcessor, TrainLoader, TrainingComponents, TrainingError,
        TrainingStrategy, ValidLoader, train::WorkerFailure,
    },
};
use sirtaki_engine::Compression;

use self::{
    epoch::{EpochContext, Events},
    rounds::stops,
};
use super::gradients::Reducer;
use crate::{Error, Result, World};

/// Makes Burn's `SupervisedTraining` train on all ranks, with one line:
///
/// ```ignore
/// let training = SupervisedTraining::new(folder, train, valid)
///     .with_training_strategy(sirtaki::Strategy::new(&world).into());
/// ```
///
/// Every rank makes the same loaders for all the data. Each reads its own part, a run of neighbouring items, and
/// shuffles within it; a sorted data set has to be shuffled beforehand. All ranks start with rank 0's model. A step
/// uses the gradients of all ranks, each weighted by its number of items, so it equals that of one process with a batch
/// as many times as large; gradient accumulation adds these gradients. The loss is assumed to be a mean over the batch.
/// Running statistics are averaged before validation.
///
/// Only rank 0 computes metrics, shows, logs, saves, and decides when to stop early. It validates with all the data,
/// unless [`Strategy::split_validation`] says otherwise; its training metrics are those of its part. A rank that is
/// interrupted, or cannot read its data, stops all of them. When ranks cannot work together any more, the result's
/// `error` says why.
#[derive(Debug, Clone)]
pub struct Strategy {
    world: World,
    reducer: Reducer,
    split_validation: bool,
}

impl Strategy {
    /// For these ranks. Every rank makes one, with the same options.
    pub fn new(world: &World) -> Self {
        Self { world: world.clone(), reducer: Reducer::new("learner gradient", false), split_validation: false }
    }

    /// Gradients of type `f32` are sent as a smaller type.
    #[must_use]
    pub fn compress(mut self, compression: Compression) -> Self {
        self.reducer.compression = Some(compression);
        self
    }

    /// Gradients are scaled down where the norm of all of them together is larger than this.
    #[must_use]
    pub fn clip(mut self, largest: f64) -> Self {
        self.reducer.clip = Some(largest);
        self
    }

    /// Every rank validates with a part of the data. That is as many times as fast, but metrics are those of rank 0's
    /// part.
    #[must_use]
    pub fn split_validation(mut self) -> Self {
        self.split_validation = true;
        self
    }

    /// This rank's part of what a loader has.
    fn part<T>(&self, loader: &Arc<dyn DataLoader<T>>) -> Arc<dyn DataLoader<T>> {
        let (rank, size, items) = (self.world.rank(), self.world.size(), loader.num_items());
        if size == 1 {
            return Arc::clone(loader);
        }
        loader.slice(items * rank / size, items * (rank + 1) / size)
    }

    fn leads(&self) -> bool {
        self.world.rank() == 0
    }
}

impl<M: LearnerModel> From<Strategy> for TrainingStrategy<M> {
    fn from(strategy: Strategy) -> Self {
        TrainingStrategy::Custom(Arc::new(strategy))
    }
}

impl<M: LearnerModel> SupervisedLearningStrategy<M> for Strategy {
    fn train(
        &self,
        learner: Learner<M>,
        train: TrainLoader<M>,
        valid: ValidLoader<M>,
        components: TrainingComponents<M>,
    ) -> LearningResult<M> {
        if self.leads() {
            return Leader(self).train(learner, train, valid, components);
        }
        let (interrupter, starting_epoch) = (components.interrupter.clone(), components.checkpoint.unwrap_or(0) + 1);
        let (model, events) = self.fit(components, learner, train, valid, starting_epoch);
        let (interrupted, error) = (interrupter.interruption(), interrupter.error());
        LearningResult { model: model.valid(), renderer: events.renderer(), interrupted, error }
    }

    fn fit(
        &self,
        mut components: TrainingComponents<M>,
        mut learner: Learner<M>,
        train: TrainLoader<M>,
        valid: ValidLoader<M>,
        starting_epoch: usize,
    ) -> (M, SupervisedTrainingEventProcessor<M>) {
        let interrupter = components.interrupter.clone();
        if let Err(error) = self.run(&mut components, &mut learner, &Data { train, valid }, starting_epoch) {
            fail(&interrupter, self.world.rank(), &error);
        }
        (learner.model(), components.event_processor)
    }
}

/// The strategy of rank 0, with everything that Burn does around it.
struct Leader<'a>(&'a Strategy);

impl<M: LearnerModel> SupervisedLearningStrategy<M> for Leader<'_> {
    fn fit(
        &self,
        components: TrainingComponents<M>,
        learner: Learner<M>,
        train: TrainLoader<M>,
        valid: ValidLoader<M>,
        starting_epoch: usize,
    ) -> (M, SupervisedTrainingEventProcessor<M>) {
        self.0.fit(components, learner, train, valid, starting_epoch)
    }
}

/// What all ranks together learn from.
struct Data<M: LearnerModel> {
    train: TrainLoader<M>,
    valid: ValidLoader<M>,
}

impl Strategy {
    fn run<M: LearnerModel>(
        &self,
        components: &mut TrainingComponents<M>,
        learner: &mut Learner<M>,
        data: &Data<M>,
        starting_epoch: usize,
    ) -> Result<()> {
        let device = training_device(&learner.model());
        learner.fork(&device);
        learner.load_model(self.world.broadcast(learner.model(), 0)?.into_record());
        let train = self.part(&data.train).to_device(&device);
        let valid = if self.split_validation { self.part(&data.valid) } else { Arc::clone(&data.valid) };
        let valid = (self.leads() || self.split_validation).then(|| valid.to_device(&device.inner()));
        let interrupter = components.interrupter.clone();
        let passes = components.grad_accumulation.unwrap_or(1);
        let mut epoch =
            EpochContext { world: &self.world, reducer: self.reducer.clone(), interrupter: &interrupter, passes };
        for number in starting_epoch..=components.num_epochs {
            let items = data.train.num_items();
            let mut events: Events<'_, M> = self.leads().then_some(&mut components.event_processor);
            begin::<M>(&mut events, &interrupter, false, number, items);
            epoch.train(learner, train.as_ref(), items, events.as_deref_mut())?;
            end::<M>(&mut events, &interrupter, false, number);
            if stops(&self.world, &interrupter)? {
                return Ok(());
            }
            epoch.settle(learner)?;
            let items = data.valid.num_items();
            begin::<M>(&mut events, &interrupter, true, number, items);
            epoch.validate(learner, valid.as_deref(), items, events.as_deref_mut())?;
            end::<M>(&mut events, &interrupter, true, number);
            if self.close(components, learner, number)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// What follows an epoch, on rank 0: a checkpoint, and the decision whether to stop.
    fn close<M: LearnerModel>(
        &self,
        components: &mut TrainingComponents<M>,
        learner: &Learner<M>,
        number: usize,
    ) -> Result<bool> {
        let interrupter = components.interrupter.clone();
        let mut enough = false;
        if self.leads() {
            let events = &mut components.event_processor;
            interrupter.fail_on_error(events.process_train(LearnerEvent::EndEpoch(number)));
            interrupter.fail_on_error(events.flush());
            if !interrupter.should_stop() {
                if let Some(checkpointer) = &mut components.checkpointer {
                    checkpointer.checkpoint(learner, number, &components.event_store);
                }
                let early = components.early_stopping.as_mut();
                enough = early.is_some_and(|early| early.should_stop(number, &components.event_store));
            }
        }
        // Stopping early is not an interruption, so the two are distinguished.
        let enough = self.world.average(if enough { 1.0 } else { 0.0 })? > 0.0;
        Ok(stops(&self.world, &interrupter)? || enough)
    }
}

/// Says that a part of an epoch begins.
fn begin<M: LearnerModel>(
    events: &mut Events<'_, M>,
    interrupter: &Interrupter,
    validation: bool,
    epoch_number: usize,
    total_items: usize,
) {
    let Some(events) = events else { return };
    interrupter.fail_on_error(if validation {
        events.process_valid(LearnerEvent::StartSplit { epoch_number, total_items })
    } else {
        events.process_train(LearnerEvent::StartSplit { epoch_number, total_items })
    });
}

/// Says that it has ended.
fn end<M: LearnerModel>(events: &mut Events<'_, M>, interrupter: &Interrupter, validation: bool, epoch: usize) {
    let Some(events) = events else { return };
    interrupter.fail_on_error(if validation {
        events.process_valid(LearnerEvent::EndSplit(epoch))
    } else {
        events.process_train(LearnerEvent::EndSplit(epoch))
    });
}

/// The model's own device, where gradients are computed.
fn training_device<M: Module>(model: &M) -> Device {
    let device = model.devices().into_iter().next().unwrap_or_default();
    if device.is_autodiff() { device } else { device.autodiff() }
}

/// Reports the error through Burn, which has a place for workers that fail.
fn fail(interrupter: &Interrupter, rank: usize, error: &Error) {
    let hint = error.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
    let failure = WorkerFailure { device_id: rank, message: format!("{error}{hint}") };
    interrupter.fail(TrainingError::Workers(vec![failure]));
}
