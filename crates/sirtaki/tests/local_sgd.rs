//! Weights that are averaged every few steps.

#![allow(clippy::unwrap_used, reason = "tests")]

mod folder;
#[allow(dead_code, reason = "this one does not need all of it")]
mod network;

use std::path::Path;

use burn::optim::{AdamConfig, GradientsParams, ModuleOptimizer, SgdConfig, momentum::MomentumConfig};
use folder::Folder;
use network::{Network, Part, loss, samples, weights};
use sirtaki::{DistributedOptimizer, LocalSgd, Result, Update, World, checkpoint::Manifest, data::Position, launch};

const RATE: f64 = 0.05;

fn sgd() -> ModuleOptimizer {
    SgdConfig::new().init()
}

fn momentum() -> ModuleOptimizer {
    SgdConfig::new().with_momentum(Some(MomentumConfig { momentum: 0.9, dampening: 0.0, nesterov: false })).init()
}

fn network(world: &World) -> Result<Network> {
    let device = world.device().autodiff();
    device.seed(7);
    world.broadcast(Network::new(&device), 0)
}

fn gradients(network: &Network, step: usize, part: Part) -> GradientsParams {
    let (values, targets) = samples(step, part, &network.device());
    GradientsParams::from_grads(loss(network.forward(values), targets).backward(), network)
}

fn part(world: &World) -> Part {
    Part { rank: world.rank(), size: world.size() }
}

fn train(world: &World, steps: std::ops::Range<usize>, update: &mut dyn Update<Network>) -> Result<Network> {
    steps.into_iter().try_fold(network(world)?, |network, step| {
        let gradients = gradients(&network, step, part(world));
        update.step(RATE.into(), network, gradients.into())
    })
}

/// The largest difference, relative to numbers above one.
fn difference(some: &[f32], others: &[f32]) -> f32 {
    assert_eq!(some.len(), others.len());
    some.iter().zip(others).map(|(one, other)| (one - other).abs() / one.abs().max(1.0)).fold(0.0, f32::max)
}

fn local(world: &World, optimizer: ModuleOptimizer) -> Result<LocalSgd> {
    LocalSgd::new(DistributedOptimizer::new(world, optimizer))
}

#[test]
fn an_average_after_every_step_is_data_parallelism() {
    for workers in [1, 2, 3] {
        let ranks = launch(workers, |world| {
            let together = train(world, 0..10, &mut DistributedOptimizer::new(world, sgd()))?;
            let apart = train(world, 0..10, &mut local(world, sgd())?.every(1))?;
            Ok::<_, sirtaki::Error>((weights(&together), weights(&apart)))
        });
        for (together, apart) in ranks.unwrap() {
            assert!(difference(&together, &apart) < 1e-5, "{workers} workers");
        }
    }
}

#[test]
fn ranks_step_alone_within_a_window_and_are_equal_after_it() {
    let ranks = launch(2, |world| {
        let inside = weights(&train(world, 0..2, &mut local(world, sgd())?.every(3))?);
        let behind = weights(&train(world, 0..3, &mut local(world, sgd())?.every(3))?);
        let in_common = weights(&train(world, 0..4, &mut local(world, momentum())?.every(3).after(4))?);
        let together = weights(&train(world, 0..4, &mut DistributedOptimizer::new(world, momentum()))?);
        let mut update = local(world, momentum())?.every(30);
        let network = train(world, 0..4, &mut update)?;
        let settled = weights(&Update::settle(&mut update, network)?);
        Ok::<_, sirtaki::Error>([inside, behind, in_common, together, settled])
    });
    let [one, other]: [_; 2] = ranks.unwrap().try_into().unwrap();
    assert_ne!(one[0], other[0], "within a window");
    assert_eq!(one[1], other[1], "after a window");
    assert_eq!(one[2], one[3], "steps in common");
    assert_eq!(one[4], other[4], "settled");
}

/// One rank's weights after steps by itself, from where a window began.
fn alone(mut network: Network, steps: std::ops::Range<usize>, part: Part) -> Network {
    let mut optimizer = sgd();
    for step in steps {
        let gradients = gradients(&network, step, part);
        network = optimizer.step(RATE, network, gradients);
    }
    network
}

#[test]
fn an_outer_step_follows_what_windows_changed() {
    const EVERY: usize = 3;
    let ranks = launch(2, |world| {
        let mut update = local(world, sgd())?.every(EVERY as u64).outer(0.7, 0.9);
        let first = weights(&train(world, 0..EVERY, &mut update)?);
        let start = network(world)?;
        let mean: Vec<f32> = {
            let each = (0..2).map(|rank| weights(&alone(start.clone(), 0..EVERY, Part { rank, size: 2 })));
            let each: Vec<_> = each.collect();
            each[0].iter().zip(&each[1]).map(|(one, other)| (one + other) / 2.0).collect()
        };
        // The first step has no speed yet: the rate, times one and the momentum, of the mean change.
        let expected: Vec<f32> =
            weights(&start).iter().zip(mean).map(|(from, to)| from - 0.7 * 1.9 * (from - to)).collect();
        Ok::<_, sirtaki::Error>((first, expected))
    });
    for (got, expected) in ranks.unwrap() {
        assert!(difference(&got, &expected) < 1e-5);
    }
}

/// Goes on from what the folder has, for some steps, and saves there.
fn part_of_a_run(world: &World, folder: &Path, steps: u64) -> Result<Vec<f32>> {
    let mut update = local(world, AdamConfig::new().init())?.every(3).after(2).outer(0.7, 0.9);
    let (mut network, resumed) = world.resume(folder, "network", network(world)?, &mut update)?;
    let begin = resumed.map_or(0, |resumed| resumed.manifest.step);
    for step in begin..begin + steps {
        let gradients = gradients(&network, step as usize, part(world));
        network = update.step(RATE, network, gradients)?;
        if step == 6 || step == 10 {
            network = Update::settle(&mut update, network)?;
            let manifest = Manifest::new("network", step + 1, Position::start(0));
            world.save(folder, 0, manifest, &network, &update)?;
        }
    }
    Ok(weights(&network))
}

#[test]
fn a_run_that_was_stopped_goes_on_exactly() {
    let (whole, parts) = (Folder::new(), Folder::new());
    let undisturbed = launch(2, |world| part_of_a_run(world, &whole.0, 16)).unwrap();
    launch(2, |world| part_of_a_run(world, &parts.0, 7)).unwrap();
    let resumed = launch(2, |world| part_of_a_run(world, &parts.0, 9)).unwrap();
    assert_eq!(undisturbed, resumed);
}

#[test]
fn a_checkpoint_in_the_middle_of_a_window_is_refused() {
    let folder = Folder::new();
    let errors = launch(2, |world| {
        let mut update = local(world, sgd())?.every(3);
        let network = train(world, 0..1, &mut update)?;
        let manifest = Manifest::new("network", 1, Position::start(0));
        Ok::<_, sirtaki::Error>(world.save(&folder.0, 0, manifest, &network, &update).unwrap_err().to_string())
    });
    for error in errors.unwrap() {
        assert!(error.contains("middle of a window"), "{error}");
    }
}
