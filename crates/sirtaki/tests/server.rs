//! Weights on parameter servers: in step, the bits of data parallelism; otherwise bounded delays.

#![allow(clippy::unwrap_used, reason = "tests")]

mod convolution;

use std::path::Path;

use burn::{module::Module, optim::AdamWConfig, tensor::Tensor};
use convolution::{Bits, Folder, Network, SAMPLES, adam, bits, momentum, samples, worker};
use sirtaki::{
    DistributedOptimizer, Result, ServerOptimizer, ServerOptions, Update, World,
    checkpoint::Manifest,
    data::{FixedShards, Position},
    launch,
    server::{Delay, RuleSpec},
};

const BATCH: usize = 12;

/// Who changes weights.
#[derive(Debug, Clone, Copy)]
enum Who {
    Ranks,
    Servers(usize, usize),
}

#[derive(Debug, Clone, Copy)]
enum Method {
    Momentum,
    Adam,
    AdamW,
}

fn update(world: &World, method: Method, who: Who) -> Result<Box<dyn Update<Network>>> {
    let (beta_1, beta_2, epsilon) = (0.9, 0.999, 1e-5);
    let (optimizer, rule) = match method {
        Method::Momentum => (momentum(), RuleSpec::momentum(0.9)),
        Method::Adam => (adam(), RuleSpec::Adam { beta_1, beta_2, epsilon, weight_decay: 0.0 }),
        Method::AdamW => (
            AdamWConfig::new().with_weight_decay(0.05).init(),
            RuleSpec::AdamW { beta_1, beta_2, epsilon, weight_decay: 0.05 },
        ),
    };
    Ok(match who {
        Who::Ranks => Box::new(DistributedOptimizer::new(world, optimizer)),
        Who::Servers(servers, copies) => {
            let options = ServerOptions { delay: Delay::Bounded(0), servers, copies };
            Box::new(ServerOptimizer::new(world, rule, options)?)
        }
    })
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
fn chain(method: Method, runs: &[(usize, Who, usize)]) -> Bits {
    let folder = Folder::new();
    let mut last = Bits::default();
    for &(workers, who, steps) in runs {
        let ranks = launch(workers, |world| go_on(world, update(world, method, who)?, steps, &folder.0)).unwrap();
        assert!(ranks.iter().all(|rank| rank == &ranks[0]), "ranks of {workers} differ");
        last = ranks.into_iter().next().unwrap();
    }
    last
}

#[test]
fn workers_in_step_have_the_bits_of_data_parallelism() {
    for method in [Method::Momentum, Method::Adam, Method::AdamW] {
        let alone = chain(method, &[(1, Who::Ranks, usize::MAX)]);
        for (workers, servers, copies) in [(1, 1, 1), (2, 2, 1), (3, 2, 2)] {
            let served = chain(method, &[(workers, Who::Servers(servers, copies), usize::MAX)]);
            assert!(served == alone, "{method:?}, {workers} workers, {servers} servers");
        }
    }
}

#[test]
fn checkpoints_go_to_any_number_of_servers_and_to_none() {
    let alone = chain(Method::Adam, &[(1, Who::Ranks, usize::MAX)]);
    let runs = [
        (2, Who::Servers(2, 1), 1),
        (3, Who::Servers(3, 2), 1),
        (2, Who::Ranks, 1),
        (2, Who::Servers(1, 1), usize::MAX),
    ];
    assert!(chain(Method::Adam, &runs) == alone);
    let alone = chain(Method::Momentum, &[(1, Who::Ranks, usize::MAX)]);
    let runs = [(1, Who::Ranks, 2), (2, Who::Servers(2, 2), 1), (1, Who::Ranks, usize::MAX)];
    assert!(chain(Method::Momentum, &runs) == alone);
}

#[test]
fn delays_are_kept_and_settled_weights_are_equal() {
    for delay in [Delay::Bounded(2), Delay::Unbounded] {
        let ranks = launch(3, |world| -> Result<(Vec<u32>, f32, Vec<u64>, u64)> {
            let options = ServerOptions { delay, servers: 2, copies: 1 };
            let mut optimizer = ServerOptimizer::new(world, RuleSpec::sgd(), options)?;
            let mut network = world.broadcast(Network::new(&world.device().autodiff(), 10, 0.0), 0)?;
            let own: Vec<u32> = (0..6).map(|sample| 6 * world.rank() as u32 + sample).collect();
            let before: f32 = network.loss(&own).into_scalar();
            for _ in 0..12 {
                let gradients = network.gradients(&own, 1.0);
                network = optimizer.step(0.05, network, gradients)?;
            }
            let network = Update::settle(&mut optimizer, network)?;
            let after: f32 = network.loss(&own).into_scalar();
            let cost = Update::<Network>::cost(&optimizer);
            Ok((bits(&network).learned, after / before, cost.staleness, cost.bytes))
        });
        let ranks = ranks.unwrap();
        for (weights, shrunk, staleness, bytes) in &ranks {
            assert!(*weights == ranks[0].0, "weights differ with {delay}");
            assert!(*shrunk < 0.9, "the loss is {shrunk} of what it was");
            assert_eq!(staleness.iter().sum::<u64>(), 12, "one for each step");
            assert!(delay == Delay::Unbounded || staleness.len() <= 3, "{staleness:?}");
            assert!(*bytes > 12 * 2 * 4 * weights.len() as u64, "gradients go and weights come");
        }
    }
}

#[test]
fn mistakes_are_named_on_all_ranks() {
    let said = launch(2, |world| -> Result<Vec<String>> {
        let words = |error: sirtaki::Error| format!("{error}; {}", error.hint().unwrap_or_default());
        let copies = ServerOptions { copies: 2, ..ServerOptions::default() };
        let mut said = vec![words(ServerOptimizer::new(world, RuleSpec::sgd(), copies).unwrap_err())];

        let delayed = ServerOptions { delay: Delay::Bounded(1), ..ServerOptions::default() };
        let mut optimizer = ServerOptimizer::new(world, RuleSpec::sgd(), delayed)?;
        let network = world.broadcast(Network::new(&world.device().autodiff(), 4, 0.0), 0)?;
        let plan = FixedShards::new(SAMPLES, Position::start(3), worker(world), 12, BATCH)?;
        let update: &mut dyn Update<Network> = &mut optimizer;
        let shards = update.step_shards(0.1, network.clone(), &plan, 0, |network, shard| {
            Ok::<_, sirtaki::Error>(network.gradients(&samples(&plan, shard.batch), 1.0))
        });
        said.push(words(shards.unwrap_err()));

        let gradients = network.gradients(&[1, 2], 1.0);
        let network = optimizer.step(0.1, network, gradients)?;
        let frozen = optimizer.step(0.1, network.no_grad(), burn::optim::GradientsParams::new());
        said.push(words(frozen.unwrap_err()));

        let half = burn::nn::LinearConfig::new(2, 2).init(&world.device().autodiff());
        let half = half.map(&mut Half);
        let mut optimizer = ServerOptimizer::new(world, RuleSpec::sgd(), ServerOptions::default())?;
        let loss = half.forward(Tensor::<2>::ones([1, 2], &world.device().autodiff()).cast(burn::tensor::DType::F16));
        let gradients = burn::optim::GradientsParams::from_grads(loss.sum().backward(), &half);
        said.push(words(optimizer.step(0.1, half, gradients).unwrap_err()));
        Ok(said)
    });
    for said in said.unwrap() {
        assert!(said[0].contains("1 servers, 2 workers and 2 copies"), "{}", said[0]);
        assert!(said[1].contains("delay of 1") && said[1].contains("use a delay of 0"), "{}", said[1]);
        assert!(said[2].contains("other parameters are trained"), "{}", said[2]);
        assert!(said[3].contains("\"weight\" is of type F16") && said[3].contains("32 bits"), "{}", said[3]);
    }
}

/// Parameters in 16 bits.
struct Half;

impl burn::module::ModuleMapper for Half {
    fn map_float<const D: usize>(&mut self, param: burn::module::Param<Tensor<D>>) -> burn::module::Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        let tensor = tensor.inner().cast(burn::tensor::DType::F16);
        burn::module::Param::from_mapped_value(id, Tensor::from_inner(tensor).require_grad(), mapper)
    }
}
