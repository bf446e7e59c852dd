//! Training in shards ends with the same bits on any number of workers, and after a stop on others.

#![allow(clippy::unwrap_used, reason = "tests")]

mod convolution;

use std::path::Path;

use burn::optim::{ModuleOptimizer, SgdConfig};
use convolution::{Bits, Folder, Network, SAMPLES, adam, bits, difference, momentum, samples, worker};
use sirtaki::{
    Compression, DistributedOptimizer, Result, World,
    checkpoint::Manifest,
    data::{FixedShards, Partition, Plan, Position, Worker},
    launch, mirrored,
    train::{self, BatchSize, LearningStrategy, Method, Model, Precision, Settings},
};

const BATCH: usize = 12;
const EPOCHS: u64 = 2;

/// What is trained, and until when.
#[derive(Clone, Copy)]
struct Run {
    shards: usize,
    optimizer: fn() -> ModuleOptimizer,
    rate: f64,
    dropout: f64,
    /// The steps of one process; the whole is longer than that.
    steps: usize,
}

const MOMENTUM: Run = Run { shards: 4, optimizer: momentum, rate: 0.05, dropout: 0.3, steps: usize::MAX };
const ADAM: Run = Run { optimizer: adam, rate: 0.01, ..MOMENTUM };

/// Trains from where the folder says to the end, or for some steps, and saves there.
fn train(world: &World, run: Run, folder: &Path) -> Result<Bits> {
    let network = Network::new(&world.device().autodiff(), 10, run.dropout);
    let mut optimizer = DistributedOptimizer::new(world, (run.optimizer)()).clip(0.7);
    let (mut network, resumed) = world.resume(folder, "network", network, &mut optimizer)?;
    let (mut position, mut done) =
        resumed.map_or((Position::start(3), 0), |resumed| (resumed.manifest.position, resumed.manifest.step as usize));
    let last = done.saturating_add(run.steps);
    while position.epoch < EPOCHS && done < last {
        let plan = FixedShards::new(SAMPLES, position, worker(world), run.shards, BATCH)?;
        let steps = plan.steps().min(last - done);
        for step in 0..steps {
            network = optimizer.step_shards(run.rate, network, &plan, step, |network, shard| {
                Ok::<_, sirtaki::Error>(network.gradients(&samples(&plan, shard.batch), 1.0))
            })?;
        }
        done += steps;
        position = plan.position(steps);
    }
    world.save(folder, 0, Manifest::new("network", done as u64, position), &network, &optimizer)?;
    Ok(bits(&network))
}

/// What one number of workers after the other makes of it, each going on where the one before stopped.
#[track_caller]
fn trained(runs: &[(usize, Run)]) -> Bits {
    let folder = Folder::new();
    let mut last = Bits::default();
    for &(workers, run) in runs {
        let ranks = launch(workers, |world| train(world, run, &folder.0)).unwrap();
        assert!(ranks.iter().all(|rank| rank == &ranks[0]), "ranks of {workers} differ");
        last = ranks.into_iter().next().unwrap();
    }
    last
}

#[test]
fn momentum_on_one_two_and_four_workers() {
    let alone = trained(&[(1, MOMENTUM)]);
    assert!(alone.learned.iter().all(|&bits| f32::from_bits(bits).is_finite()) && alone.still.len() == 12);
    for workers in [2, 4] {
        assert!(trained(&[(workers, MOMENTUM)]) == alone, "{workers} workers");
    }
}

#[test]
fn adam_stopped_and_continued_on_other_numbers_of_workers() {
    let alone = trained(&[(1, ADAM)]);
    let some = |steps| Run { steps, ..ADAM };
    assert!(trained(&[(2, some(3)), (4, some(4)), (1, ADAM)]) == alone);
}

#[test]
fn workers_whose_shards_are_not_a_branch_of_the_tree() {
    let six = |run: Run| Run { shards: 6, ..run };
    let alone = trained(&[(1, six(MOMENTUM))]);
    for workers in [2, 3] {
        assert!(trained(&[(workers, six(MOMENTUM))]) == alone, "{workers} workers");
    }
    let alone = trained(&[(1, six(ADAM))]);
    assert!(trained(&[(3, Run { steps: 4, ..six(ADAM) }), (2, six(ADAM))]) == alone);
}

/// A network with dropout, on a text in this folder.
fn transformer(folder: &Path, strategy: LearningStrategy) -> Result<Settings> {
    let text = folder.join("text.txt");
    std::fs::write(&text, "left and right and ".repeat(40)).unwrap();
    Ok(Settings {
        model: Model::named("transformer")?,
        data: Some(text),
        synthetic: None,
        image_size: None,
        context: Some(4),
        patch: None,
        size: None,
        epochs: 1,
        most_steps: Some(3),
        batch: BatchSize::Global(8),
        rate: None,
        warmup: 0.0,
        method: Method::AdamW,
        strategy,
        precision: Precision::F32,
        target: 0.5,
        seed: 1,
        shards: Some(4),
        stages: None,
        checkpoints: None,
        resume: false,
        checkpoint_every: None,
        keep: 1,
        allow_nan: false,
        export: None,
    })
}

#[test]
fn threads_end_with_the_bits_of_processes_dropout_included() {
    let folder = Folder::new();
    let weights = |world: &World, strategy| {
        let settings = transformer(&folder.0.join(world.rank().to_string()), strategy)?;
        Ok::<_, sirtaki::Error>(train::run(world, &settings, &mut ())?.weights)
    };
    (0..4).for_each(|rank| std::fs::create_dir_all(folder.0.join(rank.to_string())).unwrap());
    let processes = launch(4, |world| weights(world, LearningStrategy::Data)).unwrap();
    assert!(processes.iter().all(|rank| rank == &processes[0]));
    for (devices, strategy) in [
        (1, LearningStrategy::Data),
        (4, LearningStrategy::Data),
        (4, LearningStrategy::Central),
        (2, LearningStrategy::Sharded),
    ] {
        let threads = mirrored(devices, |world| weights(world, strategy)).unwrap();
        assert!(threads.iter().all(|rank| rank == &processes[0]), "{devices} devices, {strategy:?}");
    }
}

/// As many workers as shards, in the usual way.
fn plain(world: &World) -> Result<Bits> {
    let mut network = Network::new(&world.device().autodiff(), 10, 0.0);
    let mut optimizer = DistributedOptimizer::new(world, momentum()).clip(0.7);
    network = world.broadcast(network, 0)?;
    let plan = Partition::new(SAMPLES, Position::start(3), worker(world), BATCH / world.size())?;
    for step in 0..plan.batches() {
        let mine = samples(&plan, step);
        let weight = (mine.len() * world.size()) as f64 / plan.together(step) as f64;
        let gradients = match mine.len() {
            0 => burn::optim::GradientsParams::new(),
            _ => network.gradients(&mine, weight),
        };
        network = optimizer.step(0.05, network, gradients)?;
    }
    Ok(bits(&network))
}

#[test]
fn it_is_the_usual_training_and_the_order_of_sums_would_show() {
    let one_epoch = Run { dropout: 0.0, steps: SAMPLES.div_ceil(BATCH), ..MOMENTUM };
    let exact = trained(&[(1, one_epoch)]);
    let usual = launch(4, plain).unwrap().remove(0);
    let apart = difference(&exact.learned, &usual.learned);
    assert!(apart < 1e-4, "{apart}");
    assert!(
        exact.learned != usual.learned,
        "sums in another order have the same bits, so nothing is shown by equal ones"
    );
}

/// One step on this rank's shards, with these options.
fn step(world: &World, rate: f64, optimizer: DistributedOptimizer, plan: &FixedShards, step: usize) -> Result<Bits> {
    let (mut optimizer, network) = (optimizer, Network::new(&world.device().autodiff(), 10, 0.0));
    let network = optimizer.step_shards(rate, network, plan, step, |network, shard| {
        Ok::<_, sirtaki::Error>(network.gradients(&samples(plan, shard.batch), 1.0))
    })?;
    Ok(bits(&network))
}

#[test]
fn sums_are_not_means_and_what_cannot_be_exact_is_refused() {
    let results = launch(1, |world| -> Result<(f32, Vec<String>)> {
        let plan = |worker| FixedShards::new(SAMPLES, Position::start(3), worker, 4, BATCH);
        let own = plan(worker(world))?;
        let new = || DistributedOptimizer::new(world, SgdConfig::new().init());
        let sum = step(world, 0.01, new().sum(), &own, 0)?;
        let mean = step(world, 0.04, new(), &own, 0)?;
        let other = plan(Worker { rank: 1, world: 2 })?;
        let refused = [
            step(world, 0.1, new().compress(Compression::F16), &own, 0),
            step(world, 0.1, new().passes(2), &own, 0),
            step(world, 0.1, new(), &other, 0),
            step(world, 0.1, new(), &own, own.steps()),
        ];
        let refused = refused.into_iter().map(|refused| refused.unwrap_err().to_string()).collect();
        Ok((difference(&sum.learned, &mean.learned), refused))
    });
    let (apart, refused) = results.unwrap().remove(0);
    assert!(apart < 1e-6, "{apart}");
    assert_eq!(
        refused,
        [
            "compressed gradients would depend on the number of workers",
            "every shard has a backward pass of its own",
            "the plan of shards is not that of rank 0 of 1",
            "there is no step 5 in a plan of 5",
        ]
    );
}
