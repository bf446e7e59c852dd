//! What is reported during a run and at its end.

use std::{f64::consts::LN_2, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::data_sets::Domain;

/// Follows a run, and may end it. Called on every rank, at the same points.
pub trait Observer {
    /// Everything is ready: once, or in every round where workers come and go.
    fn begins(&mut self, _: &Start) {}
    /// An epoch is done, and the model was tested.
    fn epoch_ends(&mut self, _: &Epoch) {}
    /// A round of a benchmark is done, with so many samples per second of all workers.
    fn bench_round(&mut self, _number: usize, _samples_per_second: f64) {}
    /// Samples could not be read, and others took their places: why, for each that was not told before.
    fn replaced(&mut self, _: &[String]) {}
    /// Asked in every step: whether the run should end after it, with a checkpoint. One rank that wants it is enough; where
    /// workers come and go, it leaves and the others go on, unless all of them want it.
    fn wants_to_stop(&mut self) -> bool {
        false
    }
}

impl Observer for () {}

/// A run before its first step.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// The network's name.
    pub model: &'static str,
    /// What it is trained on.
    pub domain: Domain,
    /// How many weights it has.
    pub parameters: usize,
    /// How many workers there are.
    pub workers: usize,
    /// Which one of them this is.
    pub rank: usize,
    /// Whether the run had begun before, among other workers.
    pub goes_on: bool,
    /// How many copies of the network they have.
    pub copies: usize,
    /// Samples per step of one of these.
    pub batch_per_worker: usize,
    /// Samples to train with, and to test with.
    pub samples: (usize, usize),
    /// Epochs there will be.
    pub epochs: u64,
    /// The data set that was found, in one line.
    pub found: String,
    /// Its files or lines that were left out because they could not be read, and why.
    pub unreadable: Vec<String>,
    /// The checkpoint that the run resumes from, and its step.
    pub resumed: Option<(PathBuf, u64)>,
    /// Why newer checkpoints could not be used.
    pub refused: Vec<String>,
    /// Whether there is nothing left to train, so that the model is only tested.
    pub is_finished: bool,
}

/// The results of an epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Epoch {
    /// Its number, from 1.
    pub epoch: u64,
    /// Seconds from the beginning of the run to the end of this epoch's test.
    pub seconds: f64,
    /// Mean loss of its steps.
    pub train_loss: f64,
    /// Share of its samples that were recognised in training.
    pub train_accuracy: f64,
    /// Mean loss of the test samples.
    pub test_loss: f64,
    /// Share of the test samples that were recognised.
    pub test_accuracy: f64,
    /// How well text was predicted.
    #[serde(flatten)]
    pub prediction: Option<Prediction>,
    /// Samples per second of all workers, tests not counted.
    pub samples_per_second: f64,
    /// The checkpoint that holds the result.
    pub checkpoint: Option<PathBuf>,
}

/// How well the characters of a text were predicted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Bits that a character takes if the likelier ones are written shorter.
    pub bits_per_character: f64,
    /// Among how many equally likely characters it would be as hard to choose.
    pub perplexity: f64,
}

impl Prediction {
    /// That of a network with this mean loss; none for images.
    pub(super) fn new(domain: Domain, loss: f64) -> Option<Self> {
        let prediction = Self { bits_per_character: loss / LN_2, perplexity: loss.exp() };
        (domain == Domain::Text).then_some(prediction)
    }
}

/// How a network did that was divided among workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PipelineReport {
    /// Workers with stages of the network, one after the other.
    pub workers: usize,
    /// Workers that shared each layer.
    pub parts: usize,
    /// Micro-batches of a step in each pipeline.
    pub micro_batches: usize,
    /// The name of the schedule.
    pub schedule: String,
    /// Share of the time in which workers waited for other stages, mean over workers.
    pub bubble: f64,
}

/// What workers exchanged in order to learn together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExchangeReport {
    /// Bytes of gradients, weights and state that a worker sent and received, counted as the algorithms move them that
    /// move least; mean over workers.
    pub bytes: f64,
    /// The same if all gradients had been averaged in every step, as data parallelism does.
    pub bytes_of_data_parallelism: f64,
    /// Bytes of weights that are in memory once per host instead of once per worker.
    pub shared: u64,
    /// Seconds in which a worker waited for others, with what was done to combine what they have; mean over workers.
    pub waited: f64,
    /// The same of each worker.
    pub waited_each: Vec<f64>,
    /// Seconds in which each worker did anything else.
    pub computed_each: Vec<f64>,
    /// How many steps of all workers were made with weights that lacked 0, 1, 2 … steps of the slowest; empty where none can
    /// be lacking.
    pub staleness: Vec<u64>,
}

/// The results of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The network's name.
    pub model: String,
    /// What it was trained on.
    pub domain: Domain,
    /// How many weights it has.
    pub parameters: usize,
    /// How many workers there were.
    pub workers: usize,
    /// Samples per step of a worker.
    pub batch_per_worker: usize,
    /// Samples per step of all.
    pub global_batch: usize,
    /// The optimizer's name.
    pub optimizer: String,
    /// How workers learned together.
    pub strategy: String,
    /// What that cost them besides computing.
    pub exchange: ExchangeReport,
    /// The precision of the computation.
    pub precision: String,
    /// What all random numbers came from.
    pub seed: u64,
    /// Shards of a batch, in reproducible mode.
    pub shards: Option<usize>,
    /// Steps since the very beginning.
    pub steps: u64,
    /// Rounds there were, where workers come and go; zero where they do not.
    pub rounds: u64,
    /// Whether the run was ended early; the checkpoint contains all of it.
    pub interrupted: bool,
    /// All epochs of this run.
    pub epochs: Vec<Epoch>,
    /// Share of the test samples that were recognised at the end.
    pub test_accuracy: f64,
    /// How well text was predicted at the end.
    #[serde(flatten)]
    pub prediction: Option<Prediction>,
    /// The share to reach.
    pub target_accuracy: f64,
    /// Seconds until a test reached it, tests included; none if none did.
    pub seconds_to_target: Option<f64>,
    /// Seconds of the whole run, including tests but not what came before the first step.
    pub seconds: f64,
    /// Samples per second of all workers, tests not counted.
    pub samples_per_second: f64,
    /// The same of one worker alone on one rank's share of the machine, the median of some turns.
    pub samples_per_second_one_worker: Option<f64>,
    /// What was measured in each of these, half of them before the run and half after it.
    #[serde(default)]
    pub turns_of_one_worker: Vec<f64>,
    /// How many processes wanted a processor of rank 0's machine during the run, on average; none for short runs.
    #[serde(default)]
    pub load: Option<f64>,
    /// How many times faster all workers were than that one.
    pub speedup: Option<f64>,
    /// Share of the training time in which a rank waited for gradients, mean over ranks.
    pub communication_share: f64,
    /// How the network was divided among workers, if it was.
    pub pipeline: Option<PipelineReport>,
    /// Largest memory of every rank, in bytes.
    pub peak_memory: Vec<u64>,
    /// SHA-256 of all weights: the same for the same bits.
    pub weights: String,
    /// Steps that were left out because gradients in `f16` were too large.
    pub skipped: u64,
    /// The newest checkpoint.
    pub checkpoint: Option<PathBuf>,
    /// The ONNX file of the network.
    pub export: Option<PathBuf>,
}

/// The results of a benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BenchReport {
    /// The network's name.
    pub model: String,
    /// What it was trained on.
    pub domain: Domain,
    /// The data set, in one line.
    pub found: String,
    /// How many weights it has.
    pub parameters: usize,
    /// How many workers there were.
    pub workers: usize,
    /// Samples per step of a worker.
    pub batch_per_worker: usize,
    /// Samples per step of all.
    pub global_batch: usize,
    /// The optimizer's name.
    pub optimizer: String,
    /// How workers learned together.
    pub strategy: String,
    /// The precision of the computation.
    pub precision: String,
    /// Steps before the first round.
    pub warm: usize,
    /// Steps of each round.
    pub steps_per_round: usize,
    /// Samples per second of all workers, in each round.
    pub rounds: Vec<f64>,
    /// Share of the time in which a rank waited for gradients, mean over ranks.
    pub communication_share: f64,
    /// Seconds of all steps.
    pub seconds: f64,
    /// How many processes wanted a processor of rank 0's machine meanwhile, on average; none if that was short.
    pub load: Option<f64>,
    /// Whether it was ended early.
    pub interrupted: bool,
}
