//! An optimizer whose state is split over workers does what one with the whole state does.

#![allow(clippy::unwrap_used, reason = "tests")]

mod convolution;

use std::path::Path;

use burn::{
    grad_clipping::GradientClippingConfig,
    module::{Module, ModuleMapper, Param},
    optim::{AdamConfig, AdamWConfig, GradientsParams, ModuleOptimizer, SgdConfig, momentum::MomentumConfig},
    tensor::Tensor,
};
use convolution::{Bits, Folder, Network, SAMPLES, bits, difference, momentum, samples, worker};
use sirtaki::{
    Compression, DistributedOptimizer, Result, Update, World,
    checkpoint::Manifest,
    data::{FixedShards, Partition, Plan, Position},
    lars::{Lars, LarsSgd},
    launch,
};

const BATCH: usize = 12;
const OPTIMIZERS: [fn() -> ModuleOptimizer; 3] = [momentum, adam, adamw];

fn adam() -> ModuleOptimizer {
    AdamConfig::new().with_amsgrad(true).init()
}

fn adamw() -> ModuleOptimizer {
    AdamWConfig::new().with_weight_decay(0.05).init()
}

/// The optimizer for all workers, with its state whole or split.
fn update(world: &World, optimizer: fn() -> ModuleOptimizer, split: bool) -> Box<dyn Update<Network>> {
    let optimizer = DistributedOptimizer::new(world, optimizer()).clip(0.7);
    if split { Box::new(optimizer.shard()) } else { Box::new(optimizer) }
}

/// The same with weights that the workers of a host have in common.
fn central(world: &World, optimizer: fn() -> ModuleOptimizer) -> Result<Box<dyn Update<Network>>> {
    Ok(Box::new(DistributedOptimizer::new(world, optimizer()).clip(0.7).shard().central()?))
}

fn exact(world: &World, optimizer: fn() -> ModuleOptimizer, split: bool, steps: usize, folder: &Path) -> Result<Bits> {
    go_on(world, update(world, optimizer, split), steps, folder)
}

/// Goes on from where the folder says, for some steps of an epoch, and saves there.
fn go_on(world: &World, mut update: Box<dyn Update<Network>>, steps: usize, folder: &Path) -> Result<Bits> {
    let network = Network::new(&world.device().autodiff(), 10, 0.3);
    let (mut network, resumed) = world.resume(folder, "network", network, update.as_mut())?;
    let position = resumed.map_or(Position::start(3), |resumed| resumed.manifest.position);
    let plan = FixedShards::new(SAMPLES, position, worker(world), 12, BATCH)?;
    let steps = steps.min(plan.steps());
    for step in 0..steps {
        network = update.step_shards(0.02, network, &plan, step, |network, shard| {
            Ok::<_, sirtaki::Error>(network.gradients(&samples(&plan, shard.batch), 1.0))
        })?;
    }
    network = update.settle(network)?;
    world.save(folder, 0, Manifest::new("network", steps as u64, plan.position(steps)), &network, update.as_ref())?;
    Ok(bits(&network))
}

/// What some numbers of workers, one after the other, make of it; all ranks of each have to agree.
#[track_caller]
fn chain(optimizer: fn() -> ModuleOptimizer, runs: &[(usize, bool, usize)]) -> Bits {
    let folder = Folder::new();
    let mut last = Bits::default();
    for &(workers, split, steps) in runs {
        let ranks = launch(workers, |world| exact(world, optimizer, split, steps, &folder.0)).unwrap();
        assert!(ranks.iter().all(|rank| rank == &ranks[0]), "ranks of {workers} differ");
        last = ranks.into_iter().next().unwrap();
    }
    last
}

#[test]
fn reproducible_steps_have_the_same_bits() {
    for (number, optimizer) in OPTIMIZERS.into_iter().enumerate() {
        let whole = chain(optimizer, &[(1, false, usize::MAX)]);
        for workers in [1, 2, 3, 4] {
            let split = chain(optimizer, &[(workers, true, usize::MAX)]);
            assert!(split == whole, "optimizer {number} on {workers} workers");
        }
    }
}

#[test]
fn checkpoints_go_from_any_layout_to_any_other() {
    let alone = chain(adam, &[(1, false, usize::MAX)]);
    assert!(chain(adam, &[(4, true, 1), (3, true, 1), (2, false, 1), (2, true, 1), (1, false, usize::MAX)]) == alone);
    let alone = chain(momentum, &[(1, false, usize::MAX)]);
    assert!(chain(momentum, &[(1, false, 2), (3, true, 1), (1, true, 1), (4, false, usize::MAX)]) == alone);
}

#[test]
fn weights_of_a_host_have_the_same_bits_and_go_on_from_any_checkpoint() {
    let alone = chain(adam, &[(1, false, usize::MAX)]);
    for workers in [1, 3, 4] {
        let folder = Folder::new();
        let first = launch(workers, |world| go_on(world, central(world, adam)?, 2, &folder.0)).unwrap();
        assert!(first.iter().all(|rank| rank == &first[0]), "ranks of {workers} differ");
        launch(2, |world| exact(world, adam, false, 1, &folder.0)).unwrap();
        let last = launch(workers, |world| go_on(world, central(world, adam)?, usize::MAX, &folder.0)).unwrap();
        assert!(last.iter().all(|rank| rank == &alone), "{workers} workers");
    }
}

#[test]
fn weights_of_a_host_are_not_written_to_by_who_computes_with_them() {
    // Statistics of batches are each rank's own, and clones of a module have them in common.
    let ranks = launch(2, |world| -> Result<(bool, Vec<u32>, u64)> {
        let network = world.broadcast(Network::new(&world.device().autodiff(), 10, 0.0), 0)?;
        let mut update = central(world, momentum)?;
        let gradients = network.gradients(&[world.rank() as u32, 7], 1.0);
        let network = update.step(0.02.into(), network, gradients.into())?;
        let before = bits(&network).learned;
        // A change on one rank, where memory of its own would have been changed in place.
        let other = network.clone();
        if world.rank() == 1 {
            drop(other.map(&mut Zero));
        }
        world.sum(0.0)?;
        Ok((bits(&network).learned == before, before, update.cost().shared))
    });
    let ranks = ranks.unwrap();
    for (same, weights, shared) in &ranks {
        assert!(*same, "one rank has changed what another computes with");
        assert!(*weights == ranks[0].1 && *shared > 0);
    }
}

/// Parameters as zeros.
struct Zero;

impl ModuleMapper for Zero {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| tensor.mul_scalar(0.0))
    }
}

/// Some steps in the usual way.
fn usual(world: &World, optimizer: fn() -> ModuleOptimizer, split: bool) -> Result<Bits> {
    let mut network = world.broadcast(Network::new(&world.device().autodiff(), 10, 0.0), 0)?;
    let mut update = update(world, optimizer, split);
    let plan = Partition::new(SAMPLES, Position::start(3), worker(world), BATCH / world.size())?;
    for step in 0..plan.batches() {
        let mine = samples(&plan, step);
        let weight = (mine.len() * world.size()) as f64 / plan.together(step) as f64;
        let gradients = match mine.len() {
            0 => GradientsParams::new(),
            _ => network.gradients(&mine, weight),
        };
        network = update.step(0.02.into(), network, gradients.into())?;
    }
    network = update.settle(network)?;
    Ok(bits(&network))
}

#[test]
fn usual_steps_are_as_close_as_rounding_allows() {
    for workers in [1, 2, 3, 4] {
        let ranks = launch(workers, |world| -> Result<Vec<[Bits; 2]>> {
            OPTIMIZERS
                .iter()
                .map(|&optimizer| Ok([usual(world, optimizer, false)?, usual(world, optimizer, true)?]))
                .collect()
        });
        let ranks = ranks.unwrap();
        for rank in &ranks {
            for ([whole, split], [_, first]) in rank.iter().zip(&ranks[0]) {
                let apart = difference(&whole.learned, &split.learned);
                assert!(apart <= 1e-6, "{workers} workers: {apart}");
                assert!(split == first, "ranks of {workers} differ");
            }
        }
    }
}

fn lars() -> ModuleOptimizer {
    LarsSgd { lars: Lars { trust: 0.02, decay: 0.0001 }, momentum: 0.9 }.into()
}

fn clipping() -> ModuleOptimizer {
    SgdConfig::new().with_gradient_clipping(Some(GradientClippingConfig::Norm(100.0))).init()
}

/// What every rank of two hears.
#[track_caller]
fn refusals(attempt: impl Fn(&World, Network) -> Result<()>) -> String {
    let refusals = launch(2, |world| -> Result<String> {
        let network = Network::new(&world.device().autodiff(), 10, 0.0);
        let error = attempt(world, network).unwrap_err();
        assert!(error.hint().is_some_and(|hint| !hint.is_empty()));
        // The ranks can still work together.
        assert_eq!(world.average(world.rank() as f64)?, 0.5);
        Ok(error.to_string())
    });
    let refusals = refusals.unwrap();
    assert_eq!(refusals[0], refusals[1].trim_start_matches("rank 0: "));
    refusals.into_iter().next().unwrap()
}

fn one_step(network: Network, update: &mut dyn Update<Network>) -> Result<Network> {
    let gradients = network.gradients(&[1, 2, 3], 1.0);
    update.step(0.1.into(), network, gradients.into())
}

#[test]
fn what_cannot_be_split_is_refused_on_all_ranks() {
    for optimizer in [lars, clipping] {
        let refused = refusals(|world, network| {
            one_step(network, &mut DistributedOptimizer::new(world, optimizer()).shard()).map(drop)
        });
        assert_eq!(
            refused,
            "the optimizer needs \"convolution.weight\" as a whole, so its state cannot be split over workers"
        );
    }
    let refused = refusals(|world, network| {
        let optimizer = DistributedOptimizer::new(world, adam()).compress(Compression::F16);
        one_step(network, &mut optimizer.shard()).map(drop)
    });
    assert!(refused.starts_with("gradients are not compressed"), "{refused}");
    let refused = refusals(|world, network| {
        let mut optimizer = DistributedOptimizer::new(world, adam());
        let network = one_step(network, &mut optimizer)?;
        one_step(network, &mut optimizer.shard()).map(drop)
    });
    assert!(refused.starts_with("the optimizer has made steps"), "{refused}");
    let refused = refusals(|world, network| {
        let mut optimizer = DistributedOptimizer::new(world, adam()).shard();
        let network = one_step(network, &mut optimizer)?;
        let gradients = network.gradients(&[1, 2, 3], 1.0);
        optimizer.step(0.1, network.no_grad(), gradients).map(drop)
    });
    assert!(refused.starts_with("other parameters are trained"), "{refused}");
}

#[test]
fn the_state_of_another_optimizer_is_refused() {
    let folder = Folder::new();
    launch(2, |world| exact(world, adam, true, 1, &folder.0)).unwrap();
    let refused = refusals(|world, network| {
        let mut update = update(world, momentum, true);
        world.resume(&folder.0, "network", network, update.as_mut()).map(drop)
    });
    assert!(refused.ends_with("it is the state of another optimizer"), "{refused}");
}

#[test]
fn passes_are_added_and_overflows_left_out() {
    let ranks = launch(3, |world| -> Result<(f32, u64, bool)> {
        let network = Network::new(&world.device().autodiff(), 10, 0.0);
        let sgd = || {
            let momentum = MomentumConfig { momentum: 0.9, dampening: 0.0, nesterov: true };
            DistributedOptimizer::new(world, SgdConfig::new().with_momentum(Some(momentum)).init())
        };
        let (mut whole, mut split) = (sgd().passes(2).loss_scale(8.0), sgd().passes(2).loss_scale(8.0).shard());
        let (mut one, mut other) = (network.clone(), network.clone());
        for pass in 0..4 {
            let batch = [pass, 5 + world.rank() as u32];
            let (left, right) = (one.gradients(&batch, 8.0), other.gradients(&batch, 8.0));
            one = whole.step(0.05, one, left)?;
            other = split.step(0.05, other, right)?;
        }
        let apart = difference(&bits(&one).learned, &bits(&other).learned);
        let before = bits(&other).learned;
        // Too large on one rank only, and yet no rank may take the step.
        let weight = if world.rank() == 1 { f64::from(f32::MAX) } else { 1.0 };
        for _ in 0..2 {
            let gradients = other.gradients(&[7, 8], weight * 1e6);
            other = split.step(0.05, other, gradients)?;
        }
        Ok((apart, Update::<Network>::skipped(&split), bits(&other).learned == before))
    });
    for (apart, skipped, same) in ranks.unwrap() {
        assert!(apart <= 1e-6 && skipped == 1 && same, "{apart} {skipped} {same}");
    }
}
