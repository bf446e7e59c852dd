//! Workers that do not fit together, in stages or as copies: an error on all of them, for the same reason, and no hang.

#![allow(clippy::unwrap_used, reason = "tests")]

mod folder;

use std::fs;

use burn::{
    module::{Module, Param},
    nn::{Initializer, Linear, LinearConfig},
    optim::SgdConfig,
    tensor::{Device, Tensor},
};
use folder::Folder;
use sirtaki::{
    Chain, DistributedOptimizer, Error, Flow, Layer, Pipeline, Result, World,
    data::{FixedShards, Position, Shard},
    launch,
    pipeline::PipelineSchedule,
    train::{self, BatchSize, LearningStrategy, Method, Model, Precision, Settings},
};

const WIDTH: usize = 6;
const MICROS: usize = 4;

#[derive(Module, Debug)]
enum Part {
    /// Takes any width.
    Scale(Param<Tensor<1>>),
    Dense(Linear),
}

impl Layer for Part {
    fn forward(&self, mut flow: Flow) -> Result<Flow> {
        let values: Tensor<2> = flow.take()?;
        Ok(Flow::new().with(match self {
            Part::Scale(scale) => values * scale.val().unsqueeze(),
            Part::Dense(layer) => layer.forward(values),
        }))
    }
}

fn scale(device: &Device) -> Part {
    Part::Scale(Initializer::Ones.init([1], device))
}

fn dense(width: usize, device: &Device) -> Part {
    Part::Dense(LinearConfig::new(width, WIDTH).init(device))
}

/// What this worker says about a step through as many stages as workers, a layer each.
fn fails(
    world: &World,
    schedule: PipelineSchedule,
    layer: impl Fn(usize, &Device) -> Part,
    width: impl Fn(Shard) -> usize,
) -> Result<Error> {
    let device = world.device().autodiff();
    let stages = (0..world.size()).map(|stage| stage..stage + 1).collect();
    let mut pipeline = Pipeline::new(world, schedule, MICROS, stages)?;
    let chain = Chain::new(pipeline.layers(), &device, 1, |number| Ok(layer(number, &device)))?;
    let alone = world.split(world.rank() as u64)?;
    let plan = FixedShards::new(8, Position::start(1), alone.worker(), MICROS, 8)?;
    let step = pipeline.step(
        &mut DistributedOptimizer::new(&alone, SgdConfig::new().init()),
        0.1,
        chain,
        (&plan, 0),
        |shard| Ok::<_, Error>(Flow::new().with(Tensor::<2>::ones([shard.samples, width(shard)], &device))),
        |_, mut flow| Ok(flow.take::<Tensor<2>>()?.mean()),
    );
    // Nobody leaves before all of them have failed, so that this is not what they fail for.
    world.engine().barrier("all have failed")?;
    step.map_or_else(Ok, |_| Err(Error::setting("the step went well", "it should not")))
}

const SCHEDULES: [PipelineSchedule; 2] = [PipelineSchedule::GPipe, PipelineSchedule::OneForwardOneBackward];

#[test]
fn an_output_that_changes_its_shape_is_refused_on_all_workers() {
    for schedule in SCHEDULES {
        let wider = |shard: Shard| if shard.number == 2 { WIDTH + 1 } else { WIDTH };
        let said = launch(3, |world| fails(world, schedule, |_, device| scale(device), wider).map(|it| it.to_string()));
        let expected = "stage 0 gives f32 [samples, 7] for micro-batch 2, and gave f32 [samples, 6] before";
        assert_eq!(said.unwrap(), [expected; 3], "{schedule:?}");
    }
}

#[test]
fn a_worker_with_layers_of_another_network_is_named_on_all_workers() {
    for schedule in SCHEDULES {
        for odd in 1..3 {
            let layer = |number: usize, device: &Device| dense(if number == odd { WIDTH + 1 } else { WIDTH }, device);
            let said = launch(3, |world| {
                let error = fails(world, schedule, layer, |_| WIDTH)?;
                Ok::<_, Error>((error.to_string(), error.hint().unwrap_or_default().to_owned()))
            });
            for (error, hint) in said.unwrap() {
                let expected = format!("stage {odd} cannot compute with ");
                assert!(error.starts_with(&expected) && error.contains("[2, 6]"), "{error}");
                assert!(hint.contains("same network"), "{hint}");
            }
        }
    }
}

#[test]
fn a_worker_whose_samples_cannot_be_read_is_named_on_all_workers() {
    let said = launch(2, |world| {
        let mut pipeline = Pipeline::new(world, PipelineSchedule::GPipe, 1, vec![0..1, 1..2])?;
        let device = world.device();
        let chain = Chain::new(pipeline.layers(), &device, 1, |_| Ok(scale(&device)))?;
        let missing = || Error::setting("there are no samples", "get some");
        let error = pipeline.forward(&chain, 3, |_| Err(missing()), |_, _| Ok(())).unwrap_err();
        world.engine().barrier("all have failed")?;
        Ok::<_, Error>(error.to_string())
    });
    assert_eq!(said.unwrap(), ["there are no samples", "worker 0 of the pipeline failed"]);
}

#[test]
fn workers_with_different_texts_do_not_begin() {
    let folder = Folder::new();
    let said = launch(2, |world| {
        let text = folder.0.join(format!("{}.txt", world.rank()));
        fs::write(&text, ["left ", "right"][world.rank()].repeat(40)).unwrap();
        let settings = Settings {
            model: Model::named("transformer")?,
            data: Some(text),
            synthetic: None,
            image_size: None,
            context: Some(4),
            patch: None,
            size: None,
            epochs: 1,
            most_steps: None,
            batch: BatchSize::Global(4),
            rate: None,
            warmup: 0.0,
            method: Method::Sgd,
            strategy: LearningStrategy::Data,
            precision: Precision::F32,
            target: 0.5,
            seed: 1,
            shards: None,
            stages: None,
            checkpoints: None,
            resume: false,
            checkpoint_every: None,
            keep: 1,
            allow_nan: false,
            export: None,
        };
        Ok::<_, Error>(train::run(world, &settings, &mut ()).map(drop).unwrap_err().to_string())
    });
    let said = said.unwrap();
    let expected = "data: that of rank 1 is another one than that of rank 0";
    assert!(said.iter().all(|error| error.starts_with(expected)) && said[0] != said[1], "{said:?}");
}
