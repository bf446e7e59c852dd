//! Networks in stages: the bits of one process, whatever the schedule, the stages and the number of workers.

#![allow(clippy::unwrap_used, reason = "tests")]

mod checkpoints;
#[path = "../folder/mod.rs"]
mod folder;
mod lent;

use std::ops::Range;

use burn::{
    module::{Module, ModuleVisitor, Param},
    nn::{BatchNorm, BatchNormConfig, Embedding, EmbeddingConfig, Linear, LinearConfig},
    optim::{AdamConfig, GradientsParams, ModuleOptimizer, SgdConfig, momentum::MomentumConfig},
    tensor::{Device, Int, Tensor, TensorData, activation::tanh},
};
use sirtaki::{
    Chain, DistributedOptimizer, Error, Flow, Layer, Pipeline, Result, ShardDropout, Update, World,
    data::{FixedShards, Plan, Position, Shard},
    launch,
    pipeline::PipelineSchedule,
};

const WORDS: usize = 7;
const WIDTH: usize = 6;
const LAYERS: usize = 8;
const SAMPLES: usize = 44;

/// Layers with everything that makes pipelines hard: a weight used at both ends, a skip connection over several layers,
/// running statistics, random numbers.
#[derive(Module, Debug)]
enum Part {
    /// Words to vectors; its weight goes along, for the scores.
    Words(Embedding),
    /// Passes on its input for a later layer.
    Branch(Linear),
    Dense(Linear),
    Norm(BatchNorm),
    Drop(ShardDropout),
    /// Adds what the branch passed on.
    Merge(Linear),
    /// Compares with the vectors of all words.
    Scores(Linear),
}

fn part(number: usize, device: &Device) -> Result<Part> {
    let dense = || LinearConfig::new(WIDTH, WIDTH).init(device);
    Ok(match number {
        0 => Part::Words(EmbeddingConfig::new(WORDS, WIDTH).init(device)),
        1 => Part::Branch(dense()),
        2 => Part::Norm(BatchNormConfig::new(WIDTH).init(device)),
        3 => Part::Drop(ShardDropout::new("drop", 0.3)?),
        5 => Part::Merge(dense()),
        7 => Part::Scores(dense()),
        _ => Part::Dense(dense()),
    })
}

impl Layer for Part {
    fn forward(&self, mut flow: Flow) -> Result<Flow> {
        if let Part::Words(layer) = self {
            let vectors = layer.forward(flow.take::<Tensor<2, Int>>()?).squeeze_dim::<2>(1);
            return Ok(Flow::new().with(vectors).with(layer.weight.val()));
        }
        let values: Tensor<2> = flow.take()?;
        let weight: Tensor<2> = flow.take()?;
        let skipped = if flow.is_empty() { None } else { Some(flow.take::<Tensor<2>>()?) };
        let mut skip = skipped;
        let values = match self {
            Part::Words(_) => values,
            Part::Branch(layer) => {
                skip = Some(values.clone());
                tanh(layer.forward(values))
            }
            Part::Dense(layer) => tanh(layer.forward(values)),
            Part::Norm(layer) => layer.forward(values),
            Part::Drop(layer) => layer.forward(values),
            Part::Merge(layer) => layer.forward(values) + skip.take().unwrap(),
            Part::Scores(layer) => return Ok(Flow::new().with(layer.forward(values).matmul(weight.transpose()))),
        };
        let flow = Flow::new().with(values).with(weight);
        Ok(match skip {
            Some(skip) => flow.with(skip),
            None => flow,
        })
    }
}

fn word(index: u32, shift: u32) -> i64 {
    i64::from((index * 5 + shift * 3) % WORDS as u32)
}

fn indices(plan: &FixedShards, shard: Shard) -> Vec<u32> {
    let mut indices = Vec::new();
    plan.indices(shard.batch, &mut indices);
    indices
}

fn input(plan: &FixedShards, shard: Shard, device: &Device) -> Flow {
    let words: Vec<i64> = indices(plan, shard).into_iter().map(|index| word(index, 0)).collect();
    Flow::new().with(Tensor::<2, Int>::from_data(TensorData::new(words, [shard.samples, 1]), device))
}

fn loss(plan: &FixedShards, shard: Shard, mut flow: Flow) -> Result<Tensor<1>> {
    let scores: Tensor<2> = flow.take()?;
    let wanted: Vec<i64> = indices(plan, shard).into_iter().map(|index| word(index, 1)).collect();
    let wanted = Tensor::<1, Int>::from_data(TensorData::new(wanted, [shard.samples]), &scores.device());
    Ok(burn::nn::loss::CrossEntropyLossConfig::new().init(&scores.device()).forward(scores, wanted))
}

/// The numbers of each tensor, by the number of its layer.
#[derive(Default)]
struct Numbers {
    layer: String,
    depth: usize,
    found: Vec<(String, Vec<u32>)>,
}

impl ModuleVisitor for Numbers {
    fn enter_module(&mut self, name: &str, _: &str) {
        if self.depth == 0 {
            self.layer = name.to_owned();
        }
        self.depth += 1;
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.depth -= 1;
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let bits = param.val().into_data().iter::<f32>().map(f32::to_bits).collect();
        self.found.push((self.layer.clone(), bits));
    }
}

fn numbers(chain: &Chain<Part>) -> Vec<(String, Vec<u32>)> {
    let mut numbers = Numbers::default();
    // Running statistics set their newest value aside until it is needed.
    drop(chain.valid());
    chain.visit(&mut numbers);
    numbers.found
}

fn momentum() -> ModuleOptimizer {
    SgdConfig::new().with_momentum(Some(MomentumConfig::new().with_momentum(0.9).with_dampening(0.0))).init()
}

fn adam() -> ModuleOptimizer {
    AdamConfig::new().init()
}

/// What is trained, and how.
#[derive(Clone, Copy)]
struct Run {
    shards: usize,
    optimizer: fn() -> ModuleOptimizer,
    clip: f64,
}

const STEPS: usize = 4;

fn plan(run: Run, world: &World) -> Result<FixedShards> {
    FixedShards::new(SAMPLES, Position::start(5), world.worker(), run.shards, 12)
}

/// One process with the whole network.
fn whole(alone: &World, run: Run) -> Result<Vec<(String, Vec<u32>)>> {
    let device = alone.device().autodiff();
    let mut chain = Chain::new(0..LAYERS, &device, 9, |number| part(number, &device))?;
    let mut optimizer = DistributedOptimizer::new(alone, (run.optimizer)()).clip(run.clip);
    let plan = plan(run, alone)?;
    for step in 0..plan.steps().min(STEPS) {
        chain = optimizer.step_shards(0.05, chain, &plan, step, |chain, shard| {
            let loss = loss(&plan, shard, chain.forward(input(&plan, shard, &device))?)?;
            Ok::<_, Error>(GradientsParams::from_grads(loss.backward(), chain))
        })?;
    }
    Ok(numbers(&chain))
}

/// The first steps of a plan.
fn steps(
    pipeline: &mut Pipeline,
    update: &mut dyn Update<Chain<Part>>,
    mut chain: Chain<Part>,
    plan: &FixedShards,
    count: usize,
) -> Result<Chain<Part>> {
    let device = update.world().device().autodiff();
    for step in 0..count {
        chain = pipeline.step(
            update,
            0.05,
            chain,
            (plan, step),
            |shard| Ok::<_, Error>(input(plan, shard, &device)),
            |shard, flow| loss(plan, shard, flow),
        )?;
    }
    Ok(chain)
}

/// The same in stages.
fn staged(
    (data, pipe): (&World, &World),
    run: Run,
    schedule: PipelineSchedule,
    stages: Vec<Range<usize>>,
    recompute: bool,
) -> Result<Vec<(String, Vec<u32>)>> {
    let device = data.device().autodiff();
    let plan = plan(run, data)?;
    let pipeline = Pipeline::new(pipe, schedule, plan.per_step(), stages)?;
    let mut pipeline = if recompute { pipeline.recompute() } else { pipeline };
    let chain = Chain::new(pipeline.layers(), &device, 9, |number| part(number, &device))?;
    let optimizer = DistributedOptimizer::new(data, (run.optimizer)()).clip(run.clip);
    // Both keep the state of the same parameters, one of them only a part of it on each worker.
    let mut update: Box<dyn Update<Chain<Part>>> =
        if recompute { Box::new(optimizer.shard()) } else { Box::new(optimizer) };
    let chain = steps(&mut pipeline, update.as_mut(), chain, &plan, plan.steps().min(STEPS))?;
    if schedule == PipelineSchedule::OneForwardOneBackward {
        // Stage s of p keeps the activations of at most p - s micro-batches.
        assert!(pipeline.most_held() <= pipe.size() - pipe.rank(), "{} of {}", pipe.rank(), pipe.size());
    }
    Ok(numbers(&chain))
}

/// As many stages, as equal as possible.
fn even(stages: usize) -> Vec<Range<usize>> {
    (0..stages).map(|stage| stage * LAYERS / stages..(stage + 1) * LAYERS / stages).collect()
}

/// Trains in all schedules on these axes, and compares with one process.
fn compare(world: &World, data: usize, pipe: usize) -> Result<()> {
    let mesh = world.mesh(&[("data", data), ("pipe", pipe)])?;
    let axes = (mesh.axis("data")?, mesh.axis("pipe")?);
    let alone = world.split(world.rank() as u64)?;
    let runs = [
        Run { shards: data, optimizer: momentum, clip: 0.5 },
        Run { shards: 4 * data, optimizer: momentum, clip: f64::MAX },
        Run { shards: 6 * data, optimizer: adam, clip: f64::MAX },
    ];
    for (number, run) in runs.into_iter().filter(|run| 12 % run.shards == 0).enumerate() {
        let expected = whole(&alone, run)?;
        let mut schedules = vec![
            (PipelineSchedule::GPipe, 1, false),
            (PipelineSchedule::OneForwardOneBackward, 1, false),
            (PipelineSchedule::OneForwardOneBackward, 1, true),
        ];
        if 2 * pipe <= LAYERS {
            schedules.push((PipelineSchedule::Interleaved, 2, number == 1));
        }
        for (schedule, chunks, recompute) in schedules {
            for (layer, bits) in staged(axes, run, schedule, even(chunks * pipe), recompute)? {
                let found = expected.iter().any(|(other, other_bits)| *other == layer && *other_bits == bits);
                assert!(found, "{schedule:?} with {} shards on {data} x {pipe}: layer {layer}", run.shards);
            }
        }
        lent::compare(axes, run, &expected)?;
    }
    Ok(())
}

#[test]
fn one_worker_has_all_stages() {
    launch(1, |world| compare(world, 1, 1)).unwrap();
}

#[test]
fn two_workers_are_one_process() {
    launch(2, |world| {
        compare(world, 1, 2)?;
        compare(world, 2, 1)
    })
    .unwrap();
}

#[test]
fn four_workers_are_one_process() {
    launch(4, |world| {
        compare(world, 1, 4)?;
        compare(world, 2, 2)?;
        compare(world, 4, 1)
    })
    .unwrap();
}

#[test]
fn samples_pass_through_all_stages() {
    launch(2, |world| {
        let device = world.device();
        let chain = Chain::new(0..LAYERS, &device, 9, |number| part(number, &device))?;
        let words = |batch: usize| {
            let words = TensorData::new((0..=batch).map(|at| word(at as u32, 0)).collect(), [batch + 1, 1]);
            Flow::new().with(Tensor::<2, Int>::from_data(words, &device))
        };
        let mut pipeline = Pipeline::new(world, PipelineSchedule::Interleaved, 1, even(4))?;
        let mine = Chain::new(pipeline.layers(), &device, 9, |number| part(number, &device))?;
        let mut results = Vec::new();
        let take = |mut flow: Flow| flow.take::<Tensor<2>>().map(Tensor::into_data);
        pipeline.forward(
            &mine,
            5,
            |batch| Ok::<_, Error>(words(batch)),
            |_, flow| {
                results.push(take(flow)?);
                Ok(())
            },
        )?;
        let last = world.rank() == 1;
        assert_eq!(results.len(), if last { 5 } else { 0 });
        for (batch, result) in results.into_iter().enumerate() {
            assert_eq!(result, take(chain.forward(words(batch))?)?);
        }
        Ok::<_, Error>(())
    })
    .unwrap();
}

#[test]
fn layers_are_measured_and_cut() {
    let device = Device::flex().autodiff();
    let words = Tensor::<2, Int>::from_data(TensorData::new(vec![1_i64, 2, 3], [3, 1]), &device);
    let costs = Chain::costs(0..LAYERS, &device, Flow::new().with(words), |number| part(number, &device)).unwrap();
    assert_eq!(costs.len(), LAYERS);
    assert!(costs.iter().all(|cost| cost.time > 0.0));
    let weights = (4 * WORDS * WIDTH * 4 + 3 * WIDTH * 4 + WORDS * WIDTH * 4) as u64;
    assert_eq!(costs[0].memory, weights);
    let stages = sirtaki::pipeline::cut(&costs, 2, u64::MAX).unwrap().stages;
    assert_eq!((stages.len(), stages[0].start, stages[1].end), (2, 0, LAYERS));
}

#[test]
fn mistakes_are_refused_on_all_workers() {
    launch(2, |world| {
        let new = |stages| Pipeline::new(world, PipelineSchedule::GPipe, 2, stages).map(drop).unwrap_err();
        assert_eq!(new(even(3)).to_string(), "3 stages cannot be shared equally by 2 workers");
        assert_eq!(new(vec![0..2, 3..4]).to_string(), "stage 1 has the layers 3..4, and should begin with layer 2");
        let different = new(if world.rank() == 0 { vec![0..2, 2..4] } else { vec![0..1, 1..4] });
        assert!(different.to_string().starts_with("worker 1 of the pipeline has another schedule"), "{different}");
        Ok::<_, Error>(())
    })
    .unwrap();
}
