//! A network while it is trained: what one batch changes, and how well it does.

use std::sync::Arc;

use burn::{
    module::{ModuleMapper, ModuleVisitor, Param},
    nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig},
    optim::{AdamConfig, AdamWConfig, GradientsParams, ModuleOptimizer, SgdConfig, momentum::MomentumConfig},
    tensor::{DType, Device, Int, Tensor},
};

use sha2::{Digest as _, Sha256};
use sirtaki_engine::Phase;

use super::{
    meter::Score,
    networks::Network,
    settings::{Method, Precision, Settings},
};
use crate::{
    Compression, DistributedOptimizer, Result, Update, World,
    checkpoint::hex,
    data::{Ahead, Batch, Loader, Memory, Partition, Position, Samples},
    lars::{Lars, LarsSgd},
};

/// Samples that are tested at a time.
const TESTED: usize = 500;

/// How batches go through a network.
#[derive(Debug, Clone)]
pub(super) struct Passes {
    world: World,
    pub(super) device: Device,
    pub(super) precision: Precision,
    criterion: CrossEntropyLoss,
}

/// What losses are multiplied by if gradients would be too small for `f16`.
const LOSS_SCALE: f64 = 1024.0;

impl Passes {
    /// On this device, which keeps gradients if it is for training.
    pub(super) fn new(world: &World, device: Device, precision: Precision) -> Self {
        let criterion = CrossEntropyLossConfig::new().init(&device);
        Self { world: world.clone(), device, precision, criterion }
    }

    /// The gradients of a batch, of its mean loss times `weight`. An empty batch has none.
    pub(super) fn train<N: Network>(&self, network: &N, batch: Batch, weight: f64) -> Result<(Score, GradientsParams)> {
        if batch.count() == 0 {
            return Ok((Score::default(), GradientsParams::new()));
        }
        let forward = self.world.engine().phase(Phase::Forward);
        let (loss, score) = match self.dtype() {
            DType::F32 => self.forward(network, batch)?,
            // Gradients go through the conversion, to the weights in 32 bits.
            dtype => self.forward(&network.clone().map(&mut Cast(dtype)), batch)?,
        };
        drop(forward);
        let _backward = self.world.engine().phase(Phase::Backward);
        let scale = if self.precision == Precision::F16 { LOSS_SCALE } else { 1.0 };
        let gradients = loss.mul_scalar(weight * scale).backward();
        Ok((score, GradientsParams::from_grads(gradients, network)))
    }

    /// How well the network does on some samples, of which each rank takes its part.
    pub(super) fn test<N: Network>(&self, network: &N, samples: &Arc<Memory>) -> Result<Score> {
        let world = &self.world;
        let plan = Partition::new(samples.count(), Position::start(0), world.worker(), TESTED)?;
        let mut sum = Score::default();
        for batch in Loader::new(Arc::<Memory>::clone(samples), plan, Ahead::default())? {
            let batch = batch?;
            if batch.count() > 0 {
                sum.add(self.forward(network, batch)?.1);
            }
        }
        let [loss, right, count] = world.sums("test", sum.to_array())?;
        Ok(Score { loss, right, count })
    }

    fn forward<N: Network>(&self, network: &N, batch: Batch) -> Result<(Tensor<1>, Score)> {
        let count = batch.count() as f64;
        let (images, labels) = batch.into_tensors::<4>(&self.device)?;
        let output = network.forward(images.cast(self.dtype())).cast(DType::F32);
        let guesses = output.clone().argmax(1).flatten::<1>(0, 1);
        let right = recognised(guesses, labels.clone());
        let loss = self.criterion.forward(output, labels);
        let mean: f32 = loss.clone().into_scalar();
        Ok((loss, Score { loss: f64::from(mean) * count, right, count }))
    }

    fn dtype(&self) -> DType {
        match self.precision {
            Precision::F32 => DType::F32,
            Precision::BF16 => DType::BF16,
            Precision::F16 => DType::F16,
        }
    }
}

fn recognised(guesses: Tensor<1, Int>, labels: Tensor<1, Int>) -> f64 {
    let right: i64 = guesses.equal(labels).int().sum().into_scalar();
    right as f64
}

/// The optimizer of that name, for all ranks.
pub(super) fn update<N: Network>(world: &World, settings: &Settings) -> Box<dyn Update<N>> {
    let optimizer = DistributedOptimizer::new(world, optimizer(settings.method));
    // What is exact, or goes to the worker that has the elements, is not compressed.
    let compressed = |optimizer: DistributedOptimizer, to: Compression| match settings.shards {
        None if !settings.shard_optimizer => optimizer.compress(to),
        _ => optimizer,
    };
    let optimizer = match settings.precision {
        Precision::F32 => optimizer,
        Precision::BF16 => compressed(optimizer, Compression::BF16),
        Precision::F16 => compressed(optimizer, Compression::F16).loss_scale(LOSS_SCALE),
    };
    if settings.shard_optimizer { Box::new(optimizer.shard()) } else { Box::new(optimizer) }
}

/// The optimizer of that name, for one rank.
pub(super) fn optimizer(method: Method) -> ModuleOptimizer {
    match method {
        Method::Sgd => {
            let momentum = MomentumConfig::new().with_momentum(0.9).with_dampening(0.0);
            SgdConfig::new().with_momentum(Some(momentum)).init()
        }
        Method::Adam => AdamConfig::new().init(),
        Method::AdamW => AdamWConfig::new().init(),
        Method::Lars => LarsSgd { lars: Lars { trust: 0.02, decay: 0.0001 }, momentum: 0.9 }.into(),
    }
}

/// A checksum of all weights, by which equal networks are recognised.
pub(super) fn digest<N: Network>(network: &N) -> String {
    let mut digest = Digest(Sha256::new());
    network.visit(&mut digest);
    hex(&digest.0.finalize())
}

struct Digest(Sha256);

impl ModuleVisitor for Digest {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.update(param.val().into_data().as_bytes());
    }
}

/// The sum of all weights: not a finite number if one of them is not.
pub(super) fn sum_of_weights<N: Network>(network: &N) -> f64 {
    let mut sum = Sum(0.0);
    network.visit(&mut sum);
    sum.0
}

struct Sum(f64);

impl ModuleVisitor for Sum {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0 += param.val().into_data().iter::<f64>().sum::<f64>();
    }
}

/// Parameters as another type.
struct Cast(DType);

impl ModuleMapper for Cast {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        Param::from_mapped_value(id, tensor.cast(self.0), mapper)
    }
}
