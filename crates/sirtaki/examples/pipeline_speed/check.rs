//! Whether a network that workers share ends with the bits of one process, on as many workers as there are: in stages by
//! all schedules, in stages and copies, and with its parameters split over workers.

use std::{
    collections::BTreeMap,
    fmt::Write,
    hash::{DefaultHasher, Hasher},
};

use burn::{
    module::Module,
    nn::{Linear, LinearConfig},
    optim::AdamConfig,
    tensor::{Device, Tensor, TensorData, activation::tanh},
};
use sirtaki::{
    Chain, DistributedOptimizer, Error, Flow, LaunchError, Layer, Pipeline, Result, ShardDropout, World,
    data::{FixedShards, Position, Shard},
    launch,
    pipeline::PipelineSchedule,
};

use crate::{goals::Goal, options::Options};

/// Fewer than the most workers, so that some of them keep no row of a parameter.
const WIDTH: usize = 12;
const LAYERS: usize = 32;
const SHARDS: usize = 16;
const BATCH: usize = 48;
const STEPS: usize = 4;

/// A dense layer with dropout, around which its input goes along to the layer after the next.
#[derive(Module, Debug)]
struct Skip {
    linear: Linear,
    dropout: ShardDropout,
}

impl Layer for Skip {
    fn forward(&self, mut flow: Flow) -> Result<Flow> {
        let (values, before) = (flow.take::<Tensor<2>>()?, flow.take::<Tensor<2>>()?);
        let next = tanh(self.dropout.forward(self.linear.forward(values.clone()))) + before;
        Ok(Flow::new().with(next).with(values))
    }
}

fn layer(number: usize, device: &Device) -> Result<Skip> {
    let dropout = ShardDropout::new(&format!("dropout {number}"), 0.1)?;
    Ok(Skip { linear: LinearConfig::new(WIDTH, WIDTH).init(device), dropout })
}

fn input(shard: Shard, device: &Device) -> Flow {
    let count = shard.samples * WIDTH;
    let values: Vec<f32> = (0..count).map(|place| ((place * 7 + shard.number * 13) % 17) as f32 / 17.0 - 0.5).collect();
    let values = Tensor::<2>::from_data(TensorData::new(values, [shard.samples, WIDTH]), device);
    Flow::new().with(values.clone()).with(values)
}

/// How workers share the network.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// Copies of the network, each in stages by a schedule with so many of them per worker.
    Stages(usize, PipelineSchedule, usize),
    /// Every layer's parameters split over all workers.
    Parameters,
}

impl Way {
    fn name(self, workers: usize) -> String {
        match self {
            Way::Stages(copies, schedule, _) => {
                format!("{copies} × {} workers with stages, {}", workers / copies, schedule.name())
            }
            Way::Parameters => format!("{workers} workers with parts of all parameters"),
        }
    }

    fn all(workers: usize) -> Vec<Self> {
        use PipelineSchedule::{GPipe, Interleaved, OneForwardOneBackward};

        let mut ways =
            vec![Way::Stages(1, GPipe, 1), Way::Stages(1, OneForwardOneBackward, 1), Way::Stages(1, Interleaved, 2)];
        if workers.is_multiple_of(2) && workers > 2 {
            ways.push(Way::Stages(2, OneForwardOneBackward, 1));
            ways.push(Way::Stages(workers / 2, Interleaved, 2));
        }
        ways.push(Way::Parameters);
        ways
    }
}

/// Checksums of the layers that this rank has, by their numbers, after some steps.
fn trained(world: &World, way: Way) -> Result<Vec<(usize, u64)>> {
    let device = world.device().autodiff();
    let (copies, schedule, count) = match way {
        Way::Stages(copies, schedule, chunks) => (copies, schedule, world.size() / copies * chunks),
        Way::Parameters => (world.size(), PipelineSchedule::GPipe, LAYERS),
    };
    let mesh = world.mesh(&[("data", copies), ("pipe", world.size() / copies)])?;
    let (data, pipe) = (mesh.axis("data")?, mesh.axis("pipe")?);
    let plan = FixedShards::new(STEPS * BATCH - 5, Position::start(3), data.worker(), SHARDS, BATCH)?;
    let stages = (0..count).map(|stage| stage * LAYERS / count..(stage + 1) * LAYERS / count).collect();
    let mut pipeline = Pipeline::new(pipe, schedule, plan.per_step(), stages)?;
    let (mut chain, whose) = match way {
        Way::Stages(..) => (Chain::new(pipeline.layers(), &device, 5, |number| layer(number, &device))?, data.clone()),
        Way::Parameters => {
            let chain = Chain::shard_over(data, pipeline.layers(), &device, 5, |number| layer(number, &device))?;
            (chain, world.split(world.rank() as u64)?)
        }
    };
    let mut optimizer = DistributedOptimizer::new(&whose, AdamConfig::new().init()).clip(0.5);
    for step in 0..STEPS {
        chain = pipeline.step(
            &mut optimizer,
            0.01,
            chain,
            (&plan, step),
            |shard| Ok::<_, Error>(input(shard, &device)),
            |_, mut flow| Ok((flow.take::<Tensor<2>>()? - 0.25).square().mean()),
        )?;
    }
    let mut sums: BTreeMap<usize, DefaultHasher> = BTreeMap::new();
    chain.whole_tensors(|number, bytes| sums.entry(number).or_default().write(bytes))?;
    Ok(sums.into_iter().map(|(number, hasher)| (number, hasher.finish())).collect())
}

/// Everything on these numbers of workers.
pub(crate) fn all(options: &Options) -> std::result::Result<(String, Vec<Goal>), LaunchError> {
    let one = launch(1, |world| trained(world, Way::Stages(1, PipelineSchedule::GPipe, 1)))?.concat();
    let (mut text, mut goals) =
        (format!("{LAYERS} layers with dropout and skip connections, {STEPS} steps"), Vec::new());
    for &workers in options.workers.iter().filter(|&&workers| workers > 1) {
        for way in Way::all(workers) {
            let found = launch(workers, |world| trained(world, way))?.concat();
            let equal = found.iter().filter(|layer| one.contains(layer)).count();
            let name = way.name(workers);
            let _ =
                write!(text, "\n{workers:>7}  {name}: {equal} of {} layers have the bits of one process", found.len());
            goals.push(Goal { is_reached: equal == found.len(), text: format!("{name}: the bits of one process") });
        }
    }
    Ok((text, goals))
}
