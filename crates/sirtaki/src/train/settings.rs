//! The settings of a training run. All ranks have the same.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    data_sets::{DataSet, Domain},
    networks::Model,
    strategy::LearningStrategy,
};
use crate::{Error, Result, pipeline::PipelineSchedule};

/// What the text of the grammar is called.
const MADE: &str = "made by a grammar";

/// Everything that decides how a run goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The network.
    pub model: Model,
    /// The folder or file with the data set; none for the text that a grammar makes.
    pub data: Option<PathBuf>,
    /// Made-up samples instead of a data set.
    pub synthetic: Option<Synthetic>,
    /// Height and width of images that differ, if they are not the usual ones.
    pub image_size: Option<usize>,
    /// How many characters a sequence of text has, if it is not the usual number.
    pub context: Option<usize>,
    /// How many voxels a patch of a volume has along each axis, if it is not the usual number.
    pub patch: Option<usize>,
    /// How large the network is, if that can be chosen.
    pub size: Option<NetworkSize>,
    /// How many times all samples are seen.
    pub epochs: u64,
    /// Ends the run early, after this many steps since its very beginning.
    pub most_steps: Option<u64>,
    /// How many samples a step has.
    pub batch: BatchSize,
    /// The learning rate of one worker, or of all together if the batch is [`BatchSize::Global`]; a good one if not given.
    pub rate: Option<f64>,
    /// Over how many epochs the rate grows to its full value.
    pub warmup: f64,
    /// How weights follow from gradients.
    pub method: Method,
    /// How workers learn together.
    pub strategy: LearningStrategy,
    /// What is computed with.
    pub precision: Precision,
    /// The share of test samples to recognise; the time until then is reported.
    pub target: f64,
    /// Decides initial weights, order of samples and all other random numbers.
    pub seed: u64,
    /// Cut every batch into this many shards, so that the number of workers does not change a single bit of the result.
    pub shards: Option<usize>,
    /// How the network is divided among workers; none if every worker has all of it.
    pub stages: Option<Stages>,
    /// Where checkpoints are written, if anywhere.
    pub checkpoints: Option<PathBuf>,
    /// Whether to go on from the newest of them.
    pub resume: bool,
    /// Also write a checkpoint every this many steps, besides those after each epoch.
    pub checkpoint_every: Option<u64>,
    /// How many are kept.
    pub keep: usize,
    /// Whether to go on when the loss is not a finite number any more.
    pub allow_nan: bool,
    /// Where the network is written at the end, as an ONNX file, if anywhere.
    pub export: Option<PathBuf>,
}

/// How large a network is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkSize {
    /// Layers.
    pub depth: usize,
    /// Maps of each of them.
    pub width: usize,
}

/// Made-up samples: what goes into a network is as large as that of a data set, and says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Synthetic {
    /// Channels, height and width.
    pub shape: [usize; 3],
    /// How many classes there are.
    pub classes: usize,
}

/// A network in stages, or with layers that are split over workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stages {
    /// How many stages' workers there are, one after the other.
    pub workers: usize,
    /// How many workers share each layer.
    pub parts: usize,
    /// Micro-batches of a step in each pipeline.
    pub micros: usize,
    /// Who does what when.
    pub schedule: PipelineSchedule,
    /// Whether every copy keeps only some rows of each parameter, and borrows the others while it needs them.
    pub shard_parameters: bool,
}

/// What a benchmark of training measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bench {
    /// Steps before the first round.
    pub warm: usize,
    /// Steps of a round.
    pub steps: usize,
    /// How many rounds there are.
    pub rounds: usize,
}

/// How many samples a step has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BatchSize {
    /// On each worker: more workers, larger steps.
    Worker(usize),
    /// On all workers together: more workers, less for each; some have one sample more than others where the number of
    /// workers does not divide it.
    Global(usize),
}

impl BatchSize {
    /// Samples per step of a worker, the one that has most, and of all.
    pub fn sizes(self, workers: usize) -> Result<(usize, usize)> {
        let (each, all) = match self {
            BatchSize::Worker(each) => (each, each.checked_mul(workers)),
            BatchSize::Global(all) => (all.div_ceil(workers.max(1)), Some(all)),
        };
        match all {
            Some(all) if each > 0 && all >= workers => Ok((each, all)),
            _ => {
                let problem = format!("{self} cannot be shared by {workers} workers");
                Err(Error::setting(problem, "take at least one sample per worker"))
            }
        }
    }
}

impl std::fmt::Display for BatchSize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BatchSize::Worker(size) => write!(f, "a batch of {size} on each worker"),
            BatchSize::Global(size) => write!(f, "a global batch of {size}"),
        }
    }
}

/// How weights follow from gradients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Method {
    /// Descent with momentum 0.9.
    Sgd,
    /// Adam.
    Adam,
    /// Adam with decoupled weight decay.
    AdamW,
    /// A rate for each layer, for very large batches.
    Lars,
}

impl Method {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Method::Sgd => "sgd",
            Method::Adam => "adam",
            Method::AdamW => "adamw",
            Method::Lars => "lars",
        }
    }

    /// A good rate for batches of this size.
    fn rate(self, batch: usize, domain: Domain) -> f64 {
        let usual = match (self, domain) {
            (Method::Sgd, _) => 0.01,
            (Method::Adam | Method::AdamW, Domain::Images | Domain::Tables | Domain::Volumes) => 0.001,
            (Method::Adam | Method::AdamW, Domain::Text) => 0.003,
            (Method::Lars, _) => 0.1,
        };
        usual * batch as f64 / domain.usual_batch().0 as f64
    }
}

/// What is computed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Precision {
    /// 32 bits everywhere.
    F32,
    /// Passes and messages in `bf16`; weights are kept and changed in 32 bits.
    BF16,
    /// The same with `f16`; losses are scaled so that small gradients are not lost.
    F16,
}

impl Precision {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::BF16 => "bf16",
            Precision::F16 => "f16",
        }
    }
}

impl Settings {
    /// How many copies of the network this many workers have.
    pub fn copies(&self, workers: usize) -> Result<usize> {
        let Some(stages) = self.stages else { return Ok(workers) };
        let each = stages.workers.saturating_mul(stages.parts);
        if each > 0 && workers.is_multiple_of(each) {
            return Ok(workers / each);
        }
        let problem = format!("{workers} workers cannot share copies of the network with {each} workers each");
        Err(Error::setting(problem, format!("start {each} workers or a multiple of that")))
    }

    /// Samples of a micro-batch.
    pub(super) fn micro_batch(&self, workers: usize) -> Result<usize> {
        let micros = self.stages.map_or(1, |stages| stages.micros);
        Ok((self.batch.sizes(self.copies(workers)?)?.0 / micros).max(1))
    }

    /// The base rate, and the factor to multiply it by: how many times larger the steps are.
    pub(super) fn base_rate(&self, workers: usize) -> (f64, usize) {
        let (size, times) = match self.batch {
            BatchSize::Worker(each) => (each, workers),
            BatchSize::Global(all) => (all, 1),
        };
        (self.rate.unwrap_or_else(|| self.method.rate(size, self.model.domain())), times)
    }

    /// What a report has to contain, by plain names.
    pub(super) fn report_settings(
        &self,
        workers: usize,
        data: &DataSet,
        (each, all): (usize, usize),
    ) -> BTreeMap<String, String> {
        let mut told = self.resume_settings(workers, data);
        told.retain(|name, _| !name.contains("batch"));
        let scaling = if matches!(self.batch, BatchSize::Worker(_)) { "weak" } else { "strong" };
        let more = [
            ("model", self.model.name().to_owned()),
            ("batch_per_worker", each.to_string()),
            ("global_batch", all.to_string()),
            ("scaling", scaling.to_owned()),
            ("target_accuracy", self.target.to_string()),
            ("data", self.data.as_deref().and_then(Path::file_name).map_or(MADE.into(), OsStr::to_string_lossy).into()),
        ];
        told.extend(more.map(|(name, value)| (name.to_owned(), value)));
        told.into_iter().map(|(name, value)| (name.replace('-', "_"), value)).collect()
    }

    /// What must be the same to go on from a checkpoint, by the names that people type.
    pub(super) fn resume_settings(&self, workers: usize, data: &DataSet) -> BTreeMap<String, String> {
        let (rate, _) = self.base_rate(workers);
        let batch = match self.batch {
            BatchSize::Worker(size) => ("batch-size", size),
            BatchSize::Global(size) => ("global-batch", size),
        };
        let entries = [
            (batch.0, batch.1.to_string()),
            ("epochs", self.epochs.to_string()),
            ("lr", rate.to_string()),
            ("warmup-epochs", self.warmup.to_string()),
            ("optimizer", self.method.name().to_owned()),
            ("precision", self.precision.name().to_owned()),
            ("seed", self.seed.to_string()),
            ("shards", self.shards.map_or("none".to_owned(), |shards| shards.to_string())),
            ("samples", data.train.count().to_string()),
        ];
        let size = self.size.map(|size| [("depth", size.depth.to_string()), ("width", size.width.to_string())]);
        entries
            .into_iter()
            .chain(size.into_iter().flatten())
            .chain(self.strategy.told())
            .chain(data.identity.clone())
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_shared_or_refused() {
        assert_eq!(BatchSize::Worker(64).sizes(3).unwrap(), (64, 192));
        assert_eq!(BatchSize::Global(96).sizes(3).unwrap(), (32, 96));
        assert_eq!(BatchSize::Global(100).sizes(3).unwrap(), (34, 100));
        for bad in [BatchSize::Worker(0), BatchSize::Global(2), BatchSize::Worker(usize::MAX)] {
            let error = bad.sizes(3).unwrap_err();
            assert!(error.to_string().contains("3 workers") && error.hint().is_some(), "{error}");
        }
    }
}
