//! State that is split over workers takes that much less of each worker's memory, and a network that is measured takes that
//! of one layer, counted byte by byte. What a worker has no memory for, by order of the kernel, several train together.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use burn::{
    module::{Module, Param, ParamId},
    nn::{Linear, LinearConfig},
    optim::{AdamConfig, GradientsParams},
    tensor::{Device, Tensor, TensorData},
};
use rustix::process::{Resource, Rlimit, setrlimit};
use sirtaki::{
    Chain, DistributedOptimizer, Error, Flow, Layer, Pipeline, Result, Update, World,
    checkpoint::Manifest,
    data::{FixedShards, Position},
    launch,
    pipeline::PipelineSchedule,
};

/// Counts what is allocated.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator, unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MOST.fetch_max(LIVE.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        // SAFETY: as promised to this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as promised to this function.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static MEMORY: Counting = Counting;

const ROWS: usize = 1 << 9;
const PARAMETERS: usize = 10;
/// Bytes of all parameters; a block has at most 4 MiB.
const WEIGHTS: usize = PARAMETERS * ROWS * ROWS * 4;
const BLOCK: usize = 4 << 20;
/// What names, requests and the like may take.
const REST: usize = 1 << 20;

#[derive(Module, Debug)]
struct Large {
    layers: Vec<Param<Tensor<2>>>,
}

fn large(device: &Device) -> Large {
    let layer = |number: usize| {
        let tensor = Tensor::full([ROWS, ROWS], 0.1 * number as f32, device).require_grad();
        Param::initialized(ParamId::from(number as u64 + 1), tensor)
    };
    Large { layers: (0..PARAMETERS).map(layer).collect() }
}

fn gradients(large: &Large) -> GradientsParams {
    let mut gradients = GradientsParams::new();
    for layer in &large.layers {
        let data = TensorData::new(vec![0.01_f32; ROWS * ROWS], [ROWS, ROWS]);
        gradients.register(layer.id, Tensor::<2>::from_data(data, &layer.device().inner()));
    }
    gradients
}

/// How many bytes more are in use after two steps than before, and how many more were at most while saving.
fn grown(world: &World, mut update: Box<dyn Update<Large>>, folder: &Path) -> Result<(usize, usize)> {
    let mut module = large(&world.device().autodiff());
    let before = LIVE.load(Relaxed);
    for _ in 0..2 {
        let gradients = gradients(&module);
        module = update.step(0.001.into(), module, gradients.into())?;
    }
    let after = LIVE.load(Relaxed);
    MOST.store(LIVE.load(Relaxed), Relaxed);
    let saving = LIVE.load(Relaxed);
    world.save(folder, 1, Manifest::new("large", 2, Position::start(0)), &module, update.as_ref())?;
    Ok((after.saturating_sub(before), MOST.load(Relaxed).saturating_sub(saving)))
}

#[test]
fn state_is_divided_by_the_number_of_workers() {
    let folder = launch(1, |_| tempfile::tempdir().map(|folder| folder.keep())).unwrap().remove(0);
    let optimizer = |world: &World| DistributedOptimizer::new(world, AdamConfig::new().init());
    let whole = launch(2, |world| grown(world, Box::new(optimizer(world)), &folder)).unwrap();
    for (grown, _) in whole {
        assert!((2 * WEIGHTS..2 * WEIGHTS + REST).contains(&grown), "{grown} of {WEIGHTS}");
    }
    for workers in [2, 4] {
        let split = launch(workers, |world| grown(world, Box::new(optimizer(world).shard()), &folder)).unwrap();
        for (grown, saving) in split {
            // Adam keeps two numbers for each weight.
            let share = 2 * WEIGHTS / workers;
            assert!((share..share + BLOCK).contains(&(grown + REST / 2)), "{grown} on {workers} workers");
            // Its own part once more as Burn hands it out, the weights, and one tensor of the state at a time.
            assert!(saving < WEIGHTS + 2 * share + 3 * BLOCK, "{saving} to save on {workers} workers");
        }
    }
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn weights_are_in_no_workers_own_memory_if_a_host_has_them() {
    for workers in [1, 4] {
        let grown = launch(workers, |world| -> Result<(usize, u64)> {
            let before = LIVE.load(Relaxed);
            let mut module = large(&world.device().autodiff());
            let mut update = DistributedOptimizer::new(world, AdamConfig::new().init()).shard().central()?;
            for _ in 0..2 {
                let gradients = gradients(&module);
                module = update.step(0.001, module, gradients)?;
            }
            Ok((LIVE.load(Relaxed).saturating_sub(before), Update::<Large>::cost(&update).shared))
        });
        for (grown, shared) in grown.unwrap() {
            // The state, of which Adam keeps two numbers for each weight, and nothing of the weights.
            let share = 2 * WEIGHTS / workers;
            assert!((share..share + BLOCK).contains(&(grown + REST / 2)), "{grown} on {workers} workers");
            assert_eq!(shared, WEIGHTS as u64);
        }
    }
}

impl Layer for Large {
    fn forward(&self, mut flow: Flow) -> Result<Flow> {
        let values = self.layers.iter().fold(flow.take::<Tensor<2>>()?, |values, layer| values.matmul(layer.val()));
        Ok(Flow::new().with(values))
    }
}

#[test]
fn a_network_is_measured_layer_by_layer() {
    // In a process of its own, whose memory is that of this alone.
    let grown = launch(1, |world| {
        let device = world.device().autodiff();
        let input = Flow::new().with(Tensor::<2>::ones([1, ROWS], &device));
        let before = LIVE.load(Relaxed);
        MOST.store(before, Relaxed);
        let costs = Chain::costs(0..4, &device, input, |_| Ok(large(&device)))?;
        assert!(costs.iter().all(|cost| cost.memory == (4 * WEIGHTS + ROWS * 4) as u64), "{costs:?}");
        Ok::<_, sirtaki::Error>(MOST.load(Relaxed) - before)
    });
    // A layer, its gradients, and some that are computed from others; four layers have four times as many weights.
    let grown = grown.unwrap()[0];
    assert!((2 * WEIGHTS..3 * WEIGHTS).contains(&grown), "{grown} of {WEIGHTS}");
}

/// A layer with 8 MiB of weights.
#[derive(Module, Debug)]
struct Wide {
    layers: [Linear; 2],
}

impl Layer for Wide {
    fn forward(&self, mut flow: Flow) -> Result<Flow> {
        let values = flow.take::<Tensor<2>>()?;
        Ok(Flow::new().with(self.layers.iter().fold(values, |values, layer| layer.forward(values).tanh())))
    }
}

const WIDTH: usize = 1 << 10;
const LAYERS: usize = 8;
const MICROS: usize = 4;
/// What a worker may allocate for the network: weights, gradients and Adam's state take 256 MiB.
const ALLOWED: u64 = 200 << 20;

/// The kernel refuses this process more than so many bytes of memory of its own, from now on.
fn limit(more: u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let data = status.lines().find_map(|line| line.strip_prefix("VmData:")).unwrap();
    let now: u64 = data.trim().trim_end_matches(" kB").parse().unwrap();
    let limit = Rlimit { current: Some((now << 10) + more), maximum: Some((now << 10) + more) };
    setrlimit(Resource::Data, limit).unwrap();
}

/// The losses of three steps with the network in as many stages as there are workers, on the last of them.
fn losses(world: &World, allowed: Option<u64>) -> Result<Vec<u32>> {
    let device = world.device().autodiff();
    let copies = world.split(world.rank() as u64)?;
    let each = LAYERS / world.size();
    let stages = (0..world.size()).map(|stage| stage * each..(stage + 1) * each).collect();
    let mut pipeline = Pipeline::new(world, PipelineSchedule::OneForwardOneBackward, MICROS, stages)?;
    allowed.into_iter().for_each(limit);
    let linear = || LinearConfig::new(WIDTH, WIDTH).init(&device);
    let mut chain = Chain::new(pipeline.layers(), &device, 7, |_| Ok(Wide { layers: [linear(), linear()] }))?;
    let mut update = DistributedOptimizer::new(&copies, AdamConfig::new().init());
    let plan = FixedShards::new(24, Position::start(7), copies.worker(), MICROS, 8)?;
    let mut losses = Vec::new();
    for step in 0..plan.steps() {
        chain = pipeline.step(
            &mut update,
            0.001,
            chain,
            (&plan, step),
            |shard| Ok::<_, Error>(Flow::new().with(Tensor::<2>::ones([shard.samples, WIDTH], &device))),
            |_, mut flow| {
                let loss = (flow.take::<Tensor<2>>()? - 0.5).square().mean();
                losses.push(loss.clone().into_scalar::<f32>().to_bits());
                Ok(loss)
            },
        )?;
    }
    Ok(losses)
}

#[test]
fn a_network_that_fits_no_worker_is_trained_by_four() {
    let whole = launch(1, |world| losses(world, None)).unwrap().remove(0);
    let first_and_last = [whole[0], whole[whole.len() - 1]].map(f32::from_bits);
    assert!(first_and_last[1] < 0.9 * first_and_last[0], "nothing was learnt: {first_and_last:?}");
    let alone = launch(1, |world| losses(world, Some(ALLOWED))).unwrap_err().to_string();
    assert!(alone.contains("SIGABRT"), "not for want of memory: {alone}");
    let stages = launch(4, |world| losses(world, Some(ALLOWED))).unwrap();
    assert_eq!(stages[3], whole, "not the bits of one process");
}

/// How many bytes a worker has more at the end of three steps than before it made the network, and at most on the way. Every
/// worker keeps some rows of each parameter.
fn lent(world: &World) -> Result<(usize, usize)> {
    let (device, alone) = (world.device().autodiff(), world.split(world.rank() as u64)?);
    let stages = (0..DEEP).map(|layer| layer..layer + 1).collect();
    let mut pipeline = Pipeline::new(&alone, PipelineSchedule::GPipe, 1, stages)?;
    let before = LIVE.load(Relaxed);
    MOST.store(before, Relaxed);
    let layer = |_| Ok(Dense { linear: LinearConfig::new(ROWS, ROWS).init(&device) });
    let mut chain = Chain::shard_over(world, pipeline.layers(), &device, 7, layer)?;
    let mut update = DistributedOptimizer::new(&alone, AdamConfig::new().init());
    let plan = FixedShards::new(24, Position::start(7), world.worker(), world.size(), 8)?;
    for step in 0..plan.steps() {
        chain = pipeline.step(
            &mut update,
            0.001,
            chain,
            (&plan, step),
            |shard| Ok::<_, Error>(Flow::new().with(Tensor::<2>::ones([shard.samples, ROWS], &device))),
            |_, mut flow| Ok((flow.take::<Tensor<2>>()? - 0.5).square().mean()),
        )?;
    }
    Ok((LIVE.load(Relaxed).saturating_sub(before), MOST.load(Relaxed).saturating_sub(before)))
}

/// A layer with 1 MiB of weights.
#[derive(Module, Debug)]
struct Dense {
    linear: Linear,
}

impl Layer for Dense {
    fn forward(&self, mut flow: Flow) -> Result<Flow> {
        Ok(Flow::new().with(self.linear.forward(flow.take::<Tensor<2>>()?).tanh()))
    }
}

const DEEP: usize = 24;

#[test]
fn parameters_are_divided_by_the_number_of_workers() {
    let layer = (ROWS * ROWS + ROWS) * 4;
    for workers in [2, 4] {
        for (kept, most) in launch(workers, lent).unwrap() {
            // Weights and Adam's two numbers for each, and what Burn's graph and the engine keep of the last stages.
            let share = 3 * DEEP * layer / workers;
            assert!(kept < share + 3 * layer + REST, "{kept} bytes kept on {workers} workers, a share is {share}");
            // Besides, its part of the gradients, once as sums and once for the optimizer, and a few layers: at work,
            // asked for, with gradients, on the way.
            let room = 2 * DEEP * layer / workers + 10 * layer;
            assert!(most < share + room, "{most} bytes at most on {workers} workers, a share is {share}");
        }
    }
}
