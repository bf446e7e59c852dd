//! Burn's modules on several processes: the same numbers as on one, whatever the number of processes.

#![allow(clippy::unwrap_used, reason = "tests")]

mod network;

use burn::{
    optim::{
        AdamConfig, GradientsParams, ModuleOptimizer, SgdConfig, decay::WeightDecayConfig, momentum::MomentumConfig,
    },
    tensor::Tensor,
};
use network::{BATCH, Network, Part, loss, samples, weights};
use sirtaki::{DistributedOptimizer, Result, World, launch};

const STEPS: usize = 100;

fn network(world: &World, seed: u64) -> Result<Network> {
    let device = world.device().autodiff();
    device.seed(seed);
    world.broadcast(Network::new(&device), 0)
}

fn gradients(network: &Network, step: usize, part: Part) -> (f64, GradientsParams) {
    let (values, targets) = samples(step, part, &network.device());
    let loss = loss(network.forward(values), targets);
    let value = loss.clone().into_scalar::<f32>();
    (f64::from(value), GradientsParams::from_grads(loss.backward(), network))
}

fn part(world: &World) -> Part {
    Part { rank: world.rank(), size: world.size() }
}

fn sgd() -> ModuleOptimizer {
    SgdConfig::new().with_momentum(Some(MomentumConfig { momentum: 0.9, dampening: 0.0, nesterov: false })).init()
}

/// The largest difference, relative to numbers above one.
fn difference(some: &[f32], others: &[f32]) -> f32 {
    assert_eq!(some.len(), others.len());
    some.iter().zip(others).map(|(one, other)| (one - other).abs() / one.abs().max(1.0)).fold(0.0, f32::max)
}

fn train(world: &World) -> Result<(Vec<f64>, Vec<f32>)> {
    let mut network = network(world, 7)?;
    let mut optimizer = DistributedOptimizer::new(world, sgd());
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let (loss, gradients) = gradients(&network, step, part(world));
        losses.push(world.average(loss)?);
        network = optimizer.step(0.05, network, gradients)?;
    }
    Ok((losses, weights(&network)))
}

#[test]
fn any_number_of_workers_follows_the_same_path() {
    let mut alone: Option<(Vec<f64>, Vec<f32>)> = None;
    for workers in 1..=4 {
        let ranks = launch(workers, train).unwrap();
        assert!(ranks.iter().all(|rank| rank == &ranks[0]), "ranks of {workers} differ");
        let (losses, weights) = &ranks[0];
        assert!(losses[STEPS - 1] < 0.5 * losses[0], "it does not learn: {losses:?}");
        let (first, expected) = alone.get_or_insert_with(|| ranks[0].clone());
        for (step, (loss, wanted)) in losses.iter().zip(first).enumerate() {
            assert!((loss - *wanted).abs() <= 1e-5 * *wanted, "{workers} workers, step {step}: {loss}, not {wanted}");
        }
        assert!(difference(weights, expected) <= 1e-5, "{workers} workers");
    }
}

#[test]
fn gradients_are_those_of_a_single_process() {
    let differences = launch(3, |world| -> Result<f32> {
        let network = network(world, 3)?;
        let whole = gradients(&network, 0, Part { rank: 0, size: 1 }).1;
        let (_, part) = gradients(&network, 0, part(world));
        // Plain descent at rate 1 subtracts the gradient.
        let alone = SgdConfig::new().init().step(1.0, network.clone(), whole);
        let together = DistributedOptimizer::new(world, SgdConfig::new().init()).step(1.0, network, part)?;
        Ok(difference(&weights(&together), &weights(&alone)))
    });
    assert!(differences.unwrap().iter().all(|&difference| difference <= 1e-6));
}

#[test]
fn several_passes_clipping_and_sums_do_what_they_say() {
    let results = launch(2, |world| -> Result<[f32; 3]> {
        let network = network(world, 5)?;
        let (rank, size) = (world.rank(), world.size());
        let whole = || gradients(&network, 0, Part { rank: 0, size: 1 }).1;
        let step = |optimizer: DistributedOptimizer, pieces: usize| -> Result<Vec<f32>> {
            let (mut optimizer, mut stepped) = (optimizer, network.clone());
            for piece in 0..pieces {
                let part = Part { rank: rank * pieces + piece, size: size * pieces };
                let before = weights(&stepped);
                stepped = optimizer.step(0.1, stepped, gradients(&network, 0, part).1)?;
                assert_eq!(weights(&stepped) == before, piece + 1 < pieces);
            }
            Ok(weights(&stepped))
        };
        let plain = || DistributedOptimizer::new(world, SgdConfig::new().init());
        let alone = |rate: f64| weights(&SgdConfig::new().init().step(rate, network.clone(), whole()));
        let passes = difference(&step(plain().passes(3), 3)?, &alone(0.1));
        let sum = difference(&step(plain().sum(), 1)?, &alone(0.2));
        // A norm of 0.01 at a rate of 0.1 moves the weights by 0.001.
        let clipped = step(plain().clip(0.01), 1)?;
        let moved = clipped.iter().zip(weights(&network)).map(|(new, old)| (new - old).powi(2)).sum::<f32>().sqrt();
        Ok([passes, sum, (moved - 0.001).abs() / 0.001])
    });
    for [passes, sum, clip] in results.unwrap() {
        assert!(passes <= 1e-6 && sum <= 1e-6 && clip <= 1e-3, "{passes} {sum} {clip}");
    }
}

#[test]
fn halves_on_the_wire_are_close() {
    let differences = launch(2, |world| -> Result<Vec<f32>> {
        let network = network(world, 5)?;
        let alone =
            SgdConfig::new().init().step(0.1, network.clone(), gradients(&network, 0, Part { rank: 0, size: 1 }).1);
        let compressions = [sirtaki::Compression::F16, sirtaki::Compression::BF16];
        let stepped = compressions.map(|compression| {
            let mut optimizer = DistributedOptimizer::new(world, SgdConfig::new().init()).compress(compression);
            optimizer.step(0.1, network.clone(), gradients(&network, 0, part(world)).1)
        });
        stepped.into_iter().map(|stepped| Ok(difference(&weights(&stepped?), &weights(&alone)))).collect()
    });
    let differences = differences.unwrap();
    assert_eq!(differences[0], differences[1]);
    assert!(differences[0].iter().all(|&difference| difference > 0.0 && difference < 1e-2), "{differences:?}");
}

#[test]
fn parameters_without_a_gradient_on_some_or_all_ranks_block_nobody() {
    let results = launch(2, |world| -> Result<(Vec<f32>, bool)> {
        let network = network(world, 9)?;
        let (values, targets) = samples(0, part(world), &network.device());
        // The branch is used by rank 1 alone, the spare layer by nobody.
        let output = network.forward(values.clone());
        let output = if world.rank() == 1 { output + network.branch.forward(values) } else { output };
        let gradients = GradientsParams::from_grads(loss(output, targets).backward(), &network);
        let mut alone = gradients_of(&network, &gradients);
        alone.iter_mut().for_each(|gradient| *gradient *= 0.5);
        let decay = SgdConfig::new().with_weight_decay(Some(WeightDecayConfig { penalty: 0.1 })).init();
        let (spare, branch) = (network.spare.weight.val(), network.branch.weight.val());
        let mut plain = DistributedOptimizer::new(world, SgdConfig::new().init());
        let stepped = plain.step(1.0, network.clone(), clone(&network, &gradients))?;
        let moved = (branch - stepped.branch.weight.val()).into_data().try_to_vec::<f32>().unwrap();
        if world.rank() == 1 {
            assert!(difference(&moved, &alone) < 1e-6, "{moved:?} {alone:?}");
        }
        let decayed = DistributedOptimizer::new(world, decay).step(1.0, network, gradients)?;
        let untouched = decayed.spare.weight.val().into_data() == spare.into_data();
        Ok((weights(&stepped), untouched))
    });
    let results = results.unwrap();
    assert_eq!(results[0], results[1]);
    assert!(results[0].1, "a parameter that nobody used was changed");
}

/// The gradient of the branch here, zeros where there is none.
fn gradients_of(network: &Network, gradients: &GradientsParams) -> Vec<f32> {
    let weight = &network.branch.weight;
    let gradient: Option<Tensor<2>> = gradients.get(weight.id);
    gradient.map_or(vec![0.0; weight.shape().num_elements()], |gradient| gradient.into_data().try_to_vec().unwrap())
}

fn clone(network: &Network, gradients: &GradientsParams) -> GradientsParams {
    network::clone_gradients(network, gradients)
}

#[test]
fn ranks_may_run_out_of_data_at_different_times() {
    let results = launch(2, |world| -> Result<(Vec<f32>, Vec<f32>)> {
        let network = network(world, 11)?;
        let steps = [1, 3][world.rank()];
        let (mut optimizer, mut together) = (DistributedOptimizer::new(world, sgd()), network.clone());
        for step in 0..steps {
            let gradients = gradients(&together, step, part(world)).1;
            together = optimizer.step(0.1, together, gradients)?;
        }
        together = optimizer.join(together)?;
        // The first step has both halves of the batch, the others that of rank 1.
        let (mut plain, mut alone) = (sgd(), network);
        for (step, part) in
            [Part { rank: 0, size: 1 }, Part { rank: 1, size: 2 }, Part { rank: 1, size: 2 }].into_iter().enumerate()
        {
            let gradients = gradients(&alone, step, part).1;
            alone = plain.step(0.1, alone, gradients);
        }
        // Momentum has come along as well.
        let gradients = gradients(&together, 3, part(world)).1;
        together = optimizer.step(0.1, together, gradients)?;
        let whole = self::gradients(&alone, 3, Part { rank: 0, size: 1 }).1;
        Ok((weights(&together), weights(&plain.step(0.1, alone, whole))))
    });
    let results = results.unwrap();
    assert_eq!(results[0].0, results[1].0);
    for (together, alone) in &results {
        assert!(difference(together, alone) <= 1e-5);
    }
}

#[test]
fn an_optimizers_state_is_shared_after_the_module_is() {
    let results = launch(3, |world| -> Result<(Vec<f32>, String)> {
        let device = world.device().autodiff();
        device.seed(world.rank() as u64);
        let mut own = Network::new(&device);
        let mut optimizer = DistributedOptimizer::new(world, AdamConfig::new().init());
        for step in 0..=world.rank() {
            let gradients = gradients(&own, step, Part { rank: 0, size: 1 }).1;
            own = optimizer.inner_mut().step(0.01, own, gradients);
        }
        let refused = optimizer.broadcast(&own, 1).unwrap_err();
        let mut network = world.broadcast(own, 1)?;
        optimizer.broadcast(&network, 1)?;
        let gradients = gradients(&network, 5, Part { rank: 0, size: 1 }).1;
        network = optimizer.inner_mut().step(0.01, network, gradients);
        assert_eq!(BATCH % world.size(), 0);
        Ok((weights(&network), refused.hint().unwrap_or_default().to_owned()))
    });
    let results = results.unwrap();
    assert!(results.iter().all(|(weights, hint)| *weights == results[0].0 && hint.contains("World::broadcast")));
}

#[test]
fn a_world_of_some_ranks_trains_alone() {
    let results = launch(3, |world| -> Result<Vec<Vec<f32>>> {
        let Some(some) = world.subset("pair", &[0, 2])? else { return Ok(Vec::new()) };
        let network = network(&some, 3)?;
        let step = |optimizer: DistributedOptimizer| -> Result<Vec<f32>> {
            let (mut optimizer, gradients) = (optimizer, gradients(&network, 0, part(&some)).1);
            Ok(weights(&optimizer.step(1.0, network.clone(), gradients)?))
        };
        let plain = || DistributedOptimizer::new(&some, SgdConfig::new().init());
        let whole = gradients(&network, 0, Part { rank: 0, size: 1 }).1;
        let alone = weights(&SgdConfig::new().init().step(1.0, network.clone(), whole));
        Ok(vec![alone, step(plain())?])
    });
    let results = results.unwrap();
    assert_eq!((&results[1], &results[0]), (&Vec::new(), &results[2]));
    assert!(difference(&results[0][1], &results[0][0]) <= 1e-6);
}
