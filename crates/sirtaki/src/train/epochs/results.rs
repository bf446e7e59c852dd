//! What is told of a run: at its beginning, on its way and at its end.

use std::time::Duration;

use sirtaki_comm::Reduction;
use sirtaki_engine::telemetry::{self, largest_memory};

use super::{
    super::{
        meter::Score,
        report::{ExchangeReport, PipelineReport, Prediction, Report, Start},
    },
    Course,
};
use crate::{Layer, Result};

impl<L: Layer> Course<'_, L> {
    pub(super) fn start(&self, parameters: usize, one_worker: Option<f64>) -> Start {
        let resumed = self.resumed.as_ref();
        Start {
            model: self.settings.model.name(),
            domain: self.data.domain,
            parameters,
            workers: self.world.size(),
            copies: self.layout.copies().size(),
            batch_per_worker: self.sizes.0,
            samples: (self.data.train.count(), self.data.test.count()),
            epochs: self.settings.epochs,
            one_worker,
            resumed: resumed.map(|resumed| (resumed.path.clone(), resumed.manifest.step)),
            refused: resumed.map_or(Vec::new(), |resumed| resumed.refused.clone()),
            is_finished: self.is_done(),
        }
    }

    /// Tells the launcher and the folder of the run how far the run has come.
    pub(super) fn say(&self, news: telemetry::Progress) {
        let samples = self.data.train.count().max(1) as f64;
        let all = self.settings.epochs * (self.data.train.count().div_ceil(self.sizes.1)) as u64;
        self.world.engine().progress(&telemetry::Progress {
            step: self.step,
            steps: Some(self.settings.most_steps.map_or(all, |most| most.min(all))),
            epoch: Some(self.position.epoch as f64 + self.position.seen as f64 / samples),
            epochs: Some(self.settings.epochs),
            samples: Some(self.seen as u64),
            ..news
        });
    }

    pub(super) fn report(self, parameters: usize, one_worker: Option<f64>) -> Result<Report> {
        let (world, settings) = (self.world, self.settings);
        let target = self.epochs.iter().find(|epoch| epoch.test_accuracy >= settings.target);
        let training = self.training.time();
        let speed = self.seen as f64 / training.as_secs_f64().max(f64::MIN_POSITIVE);
        let waited = share(self.update.waited(), training);
        let mut memory = vec![0.0; world.size()];
        memory[world.rank()] = largest_memory() as f64;
        Ok(Report {
            model: settings.model.name().into(),
            domain: self.data.domain,
            parameters,
            workers: world.size(),
            batch_per_worker: self.sizes.0,
            global_batch: self.sizes.1,
            optimizer: settings.method.name().into(),
            strategy: settings.strategy.name().into(),
            exchange: self.exchange()?,
            precision: settings.precision.name().into(),
            seed: settings.seed,
            shards: settings.shards,
            steps: self.step,
            interrupted: self.interrupted,
            test_accuracy: self.tested.map_or(0.0, Score::accuracy),
            prediction: self.tested.and_then(|test| Prediction::new(self.data.domain, test.mean_loss())),
            target_accuracy: settings.target,
            seconds_to_target: target.map(|epoch| epoch.seconds),
            seconds: self.begun.elapsed().as_secs_f64(),
            samples_per_second: speed,
            samples_per_second_one_worker: one_worker,
            speedup: one_worker.map(|one| speed / one),
            communication_share: world.average(waited)?,
            peak_memory: world
                .reduce("memory", Reduction::SUM, memory)?
                .into_iter()
                .map(|bytes| bytes as u64)
                .collect(),
            pipeline: self.layout.bubble()?.zip(settings.stages).map(|(bubble, stages)| PipelineReport {
                workers: stages.workers,
                parts: stages.parts,
                micro_batches: stages.micros,
                schedule: stages.schedule.name().into(),
                bubble,
            }),
            weights: self.layout.digest(self.network())?,
            skipped: self.update.skipped(),
            checkpoint: self.checkpoint,
            epochs: self.epochs,
        })
    }

    /// What workers exchanged. All of them call it.
    fn exchange(&self) -> Result<ExchangeReport> {
        let cost = self.update.cost();
        let sums = [cost.bytes as f64, cost.bytes_of_data_parallelism as f64, self.update.waited().as_secs_f64()];
        let sums = self.world.sums("cost of steps", sums)?;
        let [bytes, bytes_of_data_parallelism, waited] = sums.map(|sum| sum / self.world.size() as f64);
        Ok(ExchangeReport { bytes, bytes_of_data_parallelism, shared: cost.shared, waited, staleness: cost.staleness })
    }
}

fn share(part: Duration, whole: Duration) -> f64 {
    part.as_secs_f64() / whole.as_secs_f64().max(f64::MIN_POSITIVE)
}
