//! Burn's own training loop on several processes: the same weights as on one, and one that talks.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{fs, path::Path, sync::Arc};

use burn::{
    data::{
        dataloader::{DataLoader, DataLoaderBuilder, batcher::Batcher},
        dataset::{Dataset, DatasetError},
    },
    lr_scheduler::constant::ConstantLr,
    module::{Module, ModuleVisitor, Param},
    nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig},
    optim::{SgdConfig, momentum::MomentumConfig},
    tensor::{Device, Tensor, TensorData, activation::tanh},
    train::{
        ExecutionStrategy, InferenceStep, Interrupter, Learner, LearningResult, RegressionOutput, SupervisedTraining,
        TrainOutput, TrainStep, TrainingStrategy, metric::LossMetric,
    },
};
use sirtaki::{Result, Strategy, World, launch};

const ITEMS: usize = 25;
/// Of one rank.
const BATCH: usize = 4;
const EPOCHS: usize = 3;

#[derive(Module, Debug)]
struct Model {
    first: Linear,
    norm: Option<BatchNorm>,
    second: Linear,
}

impl Model {
    fn new(device: &Device, seed: u64, norm: bool) -> Self {
        device.seed(seed);
        let first = LinearConfig::new(3, 8).init(device);
        let norm = norm.then(|| BatchNormConfig::new(8).init(device));
        Self { first, norm, second: LinearConfig::new(8, 1).init(device) }
    }

    fn output(&self, (values, targets): (Tensor<2>, Tensor<2>)) -> RegressionOutput {
        let hidden = self.first.forward(values);
        let hidden = self.norm.as_ref().map_or(hidden.clone(), |norm| norm.forward(hidden));
        let output = self.second.forward(tanh(hidden));
        let loss = (output.clone() - targets.clone()).square().mean();
        RegressionOutput::new(loss, output, targets)
    }
}

impl TrainStep for Model {
    type Input = (Tensor<2>, Tensor<2>);
    type Output = RegressionOutput;

    fn step(&self, batch: Self::Input) -> TrainOutput<RegressionOutput> {
        let output = self.output(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Model {
    type Input = (Tensor<2>, Tensor<2>);
    type Output = RegressionOutput;

    fn step(&self, batch: Self::Input) -> RegressionOutput {
        self.output(batch)
    }
}

/// Numbered items in some order; reading one of them may have consequences.
struct Items {
    order: Vec<usize>,
    fatal: Option<(usize, Fate)>,
}

#[derive(Clone)]
enum Fate {
    Stop(Interrupter),
    Fail,
}

impl Items {
    fn ordered(order: Vec<usize>) -> Self {
        Self { order, fatal: None }
    }
}

impl Dataset<usize> for Items {
    fn get(&self, index: usize) -> std::result::Result<usize, DatasetError> {
        match &self.fatal {
            Some((item, Fate::Stop(interrupter))) if *item == index => interrupter.stop(Some("enough")),
            Some((item, Fate::Fail)) if *item == index => {
                return Err(DatasetError::new(std::io::Error::other("unreadable")));
            }
            _ => {}
        }
        Ok(self.order[index])
    }

    fn len(&self) -> usize {
        self.order.len()
    }
}

struct ToTensors;

impl Batcher<usize, (Tensor<2>, Tensor<2>)> for ToTensors {
    fn batch(&self, items: Vec<usize>, device: &Device) -> (Tensor<2>, Tensor<2>) {
        let count = items.len();
        let values: Vec<f32> = items
            .iter()
            .flat_map(|&item| [1, 2, 3].map(|input| ((item * 5 + input * 3) as f32 * 0.37).sin()))
            .collect();
        let targets = values.chunks(3).map(|row| row[0] * row[1] + row[2]).collect();
        let tensor = |elements: Vec<f32>, width| Tensor::from_data(TensorData::new(elements, [count, width]), device);
        (tensor(values, 3), tensor(targets, 1))
    }
}

type Loader = Arc<dyn DataLoader<(Tensor<2>, Tensor<2>)>>;

fn loader(items: Items, batch: usize) -> Loader {
    DataLoaderBuilder::new(ToTensors).batch_size(batch).build(items)
}

struct Run<'a> {
    folder: &'a Path,
    train: Loader,
    strategy: TrainingStrategy<Model>,
    passes: usize,
    interrupter: Interrupter,
}

impl Run<'_> {
    fn fit(self, model: Model) -> LearningResult<Model> {
        let momentum = MomentumConfig { momentum: 0.9, dampening: 0.0, nesterov: false };
        let optimizer = SgdConfig::new().with_momentum(Some(momentum)).init();
        SupervisedTraining::new(self.folder, self.train, loader(Items::ordered((0..10).collect()), 5))
            .metrics((LossMetric::new(),))
            .with_default_checkpointers()
            .with_application_logger(None)
            .with_interrupter(self.interrupter)
            .with_training_strategy(self.strategy)
            .grads_accumulation(self.passes)
            .num_epochs(EPOCHS)
            .launch(Learner::new(model, optimizer, ConstantLr::from(0.05)))
    }
}

/// The items of each step of all ranks, one after the other.
fn together(ranks: usize) -> Vec<usize> {
    let part = |rank: usize| (ITEMS * rank / ranks..ITEMS * (rank + 1) / ranks).collect::<Vec<_>>();
    let parts: Vec<Vec<usize>> = (0..ranks).map(part).collect();
    let step = |step: usize| parts.iter().filter_map(move |part| part.chunks(BATCH).nth(step)).flatten().copied();
    (0..ITEMS).flat_map(step).collect()
}

fn ours(world: &World, folder: &Path, passes: usize, norm: bool) -> LearningResult<Model> {
    let train = loader(Items::ordered((0..ITEMS).collect()), BATCH);
    let strategy = Strategy::new(world).into();
    let run = Run { folder, train, strategy, passes, interrupter: Interrupter::new() };
    run.fit(Model::new(&world.device().autodiff(), world.rank() as u64, norm))
}

/// Burn's own strategy, with all ranks' batches as one.
fn alone(world: &World, folder: &Path, passes: usize) -> Vec<f32> {
    let (device, ranks) = (world.device().autodiff(), world.size());
    let train = loader(Items::ordered(together(ranks)), BATCH * ranks);
    let strategy = TrainingStrategy::Default(ExecutionStrategy::single(device.clone()));
    let run = Run { folder, train, strategy, passes, interrupter: Interrupter::new() };
    weights(&run.fit(Model::new(&device, 0, false)).model)
}

/// All numbers of a module.
fn weights(model: &Model) -> Vec<f32> {
    struct Weights(Vec<f32>);
    impl ModuleVisitor for Weights {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.extend(param.val().into_data().try_to_vec::<f32>().unwrap());
        }
    }
    let mut weights = Weights(Vec::new());
    model.visit(&mut weights);
    weights.0
}

fn files(folder: &Path) -> usize {
    let count = |entry: fs::DirEntry| if entry.path().is_dir() { files(&entry.path()) } else { 1 };
    fs::read_dir(folder).map_or(0, |entries| entries.map(|entry| count(entry.unwrap())).sum())
}

#[test]
fn any_number_of_ranks_learns_what_one_process_does_and_rank_0_alone_writes() {
    for ranks in 1..=3 {
        let results = launch(ranks, |world| -> Result<(Vec<f32>, f32, usize)> {
            let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let mut largest = 0.0_f32;
            let mut last = Vec::new();
            for passes in [1, 2] {
                let result = ours(world, here.path(), passes, false);
                assert!(result.error.is_none() && result.interrupted.is_none());
                last = weights(&result.model);
                let expected = alone(world, there.path(), passes);
                let differences = last.iter().zip(&expected).map(|(one, other)| (one - other).abs());
                largest = differences.fold(largest, f32::max);
            }
            Ok((last, largest, files(here.path())))
        });
        for (rank, (weights, difference, files)) in results.as_ref().unwrap().iter().enumerate() {
            assert_eq!(*weights, results.as_ref().unwrap()[0].0, "rank {rank} of {ranks} has other weights");
            assert!(*difference < 1e-5, "rank {rank} of {ranks}: {difference}");
            assert_eq!(*files > 0, rank == 0, "rank {rank} of {ranks} wrote {files} files");
        }
    }
}

#[test]
fn running_statistics_are_those_of_all_ranks() {
    let results = launch(2, |world| -> Result<Vec<f32>> {
        let folder = tempfile::tempdir().unwrap();
        Ok(weights(&ours(world, folder.path(), 1, true).model))
    });
    let results = results.unwrap();
    assert_eq!(results[0], results[1]);
}

#[test]
fn what_stops_one_rank_stops_all() {
    let ends = launch(3, |world| -> Result<Vec<(bool, bool)>> {
        let mut ends = Vec::new();
        for fails in [false, true] {
            let (folder, interrupter) = (tempfile::tempdir().unwrap(), Interrupter::new());
            let fate = if fails { Fate::Fail } else { Fate::Stop(interrupter.clone()) };
            // An item of rank 1's part.
            let items = Items { fatal: Some((13, fate)), ..Items::ordered((0..ITEMS).collect()) };
            let strategy = Strategy::new(world).into();
            let run = Run { folder: folder.path(), train: loader(items, BATCH), strategy, passes: 1, interrupter };
            let result = run.fit(Model::new(&world.device().autodiff(), 0, false));
            ends.push((result.interrupted.is_some(), result.error.is_some()));
        }
        Ok(ends)
    });
    let (stopped, failed) = ((true, false), (false, true));
    assert_eq!(ends.unwrap(), [[stopped, stopped], [stopped, failed], [stopped, stopped]]);
}
