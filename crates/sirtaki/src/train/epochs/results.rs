//! What is told of a run: at its beginning, on its way and at its end.

use std::collections::{BTreeMap, BTreeSet};

use sirtaki_comm::Reduction;
use sirtaki_engine::{
    Operation, Request, Tensor as EngineTensor,
    telemetry::{self, largest_memory},
};

use super::{
    super::{
        meter::Score,
        report::{ExchangeReport, PipelineReport, Prediction, Report, Start},
        single_worker::Alone,
    },
    Course,
    so_far::Spent,
};
use crate::{Layer, Result, elastic::Rounds, world::elements};

impl<L: Layer> Course<'_, L> {
    pub(super) fn start(&self, parameters: usize) -> Start {
        let resumed = self.resumed.as_ref();
        Start {
            model: self.settings.model.name(),
            domain: self.data.domain,
            parameters,
            workers: self.world.size(),
            rank: self.world.rank(),
            goes_on: self.joined,
            copies: self.layout.copies().size(),
            batch_per_worker: self.sizes.0,
            samples: (self.data.train.count(), self.data.test.count()),
            epochs: self.settings.epochs,
            found: self.data.found.clone(),
            unreadable: self.data.unreadable.clone(),
            resumed: resumed.map(|resumed| (resumed.path.clone(), resumed.manifest.step)),
            refused: resumed.map_or(Vec::new(), |resumed| resumed.refused.clone()),
            is_finished: self.is_done(),
        }
    }

    /// What a report has to contain: the settings, and which part of the whole training this run is, if it is not all of it.
    pub(super) fn described(&self) -> BTreeMap<String, String> {
        let mut told = self.settings.report_settings(self.layout.copies().size(), &self.data, self.sizes);
        let limit = self.settings.most_steps.filter(|most| *most < self.all_steps());
        told.extend(limit.map(|most| ("max_steps".to_owned(), most.to_string())));
        let resumed = self.resumed.as_ref().map(|resumed| resumed.manifest.step);
        told.extend(resumed.map(|step| ("resumed_step".to_owned(), step.to_string())));
        told
    }

    /// Steps of all epochs.
    fn all_steps(&self) -> u64 {
        self.settings.epochs * self.data.train.count().div_ceil(self.sizes.1) as u64
    }

    /// Tells the launcher and the folder of the run how far the run has come.
    pub(super) fn say(&self, news: telemetry::Progress) {
        let all = self.all_steps();
        self.world.engine().progress(&telemetry::Progress {
            step: self.so_far.step,
            steps: Some(self.settings.most_steps.map_or(all, |most| most.min(all))),
            epoch: Some(self.epochs_done()),
            epochs: Some(self.settings.epochs),
            samples: Some(self.so_far.seen as u64),
            ..news
        });
    }

    /// What could not be read since this was last asked, on any worker. All of them call it.
    pub(super) fn newly_replaced(&mut self) -> Result<Vec<String>> {
        let parts = self.data.replaced.iter().zip(&mut self.replaced);
        let mine: Vec<String> = parts.flat_map(|(part, known)| part.news(known)).collect();
        if self.world.sum(mine.len() as f64)? == 0.0 {
            return Ok(Vec::new());
        }
        let (name, bytes) = ("unreadable samples", format!("\n{}", mine.join("\n")).into_bytes());
        let request = Request::new(name, Operation::AllGather, sirtaki_comm::DType::U8, &[bytes.len()]);
        let all = self.world.engine().submit(request, EngineTensor::from_vec(bytes)).wait_one()?;
        let text = String::from_utf8_lossy(&elements::<u8>(name, all)?).into_owned();
        let lines: BTreeSet<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        Ok(lines.into_iter().map(str::to_owned).collect())
    }

    pub(super) fn report(&self, parameters: usize, load: Option<f64>, alone: &Alone) -> Result<Report> {
        let (world, settings, so_far, spent) = (self.world, self.settings, &self.so_far, self.spent());
        let one_worker = alone.median();
        let target = so_far.epochs.iter().find(|epoch| epoch.test_accuracy >= settings.target);
        let training = so_far.training.time().as_secs_f64().max(f64::MIN_POSITIVE);
        let speed = so_far.seen as f64 / training;
        let memory = self.of_each("memory", largest_memory() as f64)?;
        Ok(Report {
            model: settings.model.name().into(),
            domain: self.data.domain,
            parameters,
            workers: world.size(),
            batch_per_worker: self.sizes.0,
            global_batch: self.sizes.1,
            optimizer: settings.method.name().into(),
            strategy: settings.strategy.name().into(),
            exchange: self.exchange(&spent, training)?,
            precision: settings.precision.name().into(),
            seed: settings.seed,
            shards: settings.shards,
            steps: so_far.step,
            rounds: self.rounds.map_or(0, Rounds::number),
            interrupted: so_far.interrupted,
            test_accuracy: so_far.tested.map_or(0.0, Score::accuracy),
            prediction: so_far.tested.and_then(|test| Prediction::new(self.data.domain, test.mean_loss())),
            target_accuracy: settings.target,
            seconds_to_target: target.map(|epoch| epoch.seconds),
            seconds: so_far.whole.time().as_secs_f64(),
            samples_per_second: speed,
            samples_per_second_one_worker: one_worker,
            turns_of_one_worker: alone.rates.clone(),
            load,
            speedup: one_worker.map(|one| speed / one),
            communication_share: world.average(spent.waited / training)?,
            peak_memory: memory.into_iter().map(|bytes| bytes as u64).collect(),
            pipeline: self.layout.bubble()?.zip(settings.stages).map(|(bubble, stages)| PipelineReport {
                workers: stages.workers,
                parts: stages.parts,
                micro_batches: stages.micros,
                schedule: stages.schedule.name().into(),
                bubble,
            }),
            weights: self.layout.digest(self.network())?,
            skipped: spent.skipped,
            checkpoint: so_far.checkpoint.clone(),
            export: settings.export.clone().filter(|_| !so_far.interrupted),
            epochs: so_far.epochs.clone(),
        })
    }

    /// What workers exchanged while they trained for this long, in seconds. All of them call it.
    fn exchange(&self, spent: &Spent, training: f64) -> Result<ExchangeReport> {
        let (world, cost) = (self.world, &spent.cost);
        let sums = [cost.bytes as f64, cost.bytes_of_data_parallelism as f64];
        let [bytes, bytes_of_data_parallelism] =
            world.sums("cost of steps", sums)?.map(|sum| sum / world.size() as f64);
        let waited_each = self.of_each("time waited", spent.waited)?;
        Ok(ExchangeReport {
            bytes,
            bytes_of_data_parallelism,
            shared: cost.shared,
            waited: waited_each.iter().sum::<f64>() / waited_each.len() as f64,
            computed_each: self.of_each("time computed", training - spent.waited)?,
            waited_each,
            staleness: self.staleness(&cost.staleness)?,
        })
    }

    /// A number of each rank, on all of them.
    fn of_each(&self, name: &str, value: f64) -> Result<Vec<f64>> {
        let mut values = vec![0.0; self.world.size()];
        values[self.world.rank()] = value;
        self.world.reduce(name, Reduction::SUM, values)
    }

    /// How many steps of all ranks were so far behind.
    fn staleness(&self, own: &[u64]) -> Result<Vec<u64>> {
        let lengths = self.of_each("length of staleness", own.len() as f64)?;
        let mut counts: Vec<f64> = own.iter().map(|&count| count as f64).collect();
        counts.resize(lengths.into_iter().fold(0.0, f64::max) as usize, 0.0);
        match counts.is_empty() {
            true => Ok(Vec::new()),
            false => {
                Ok(self.world.reduce("staleness", Reduction::SUM, counts)?.iter().map(|&sum| sum as u64).collect())
            }
        }
    }
}
