//! A network while it is trained: what one batch changes, and how well it does.

use std::collections::BTreeMap;

use burn::{
    module::{Module, ModuleMapper, ModuleVisitor, Param},
    nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig},
    optim::{AdamConfig, AdamWConfig, GradientsParams, ModuleOptimizer, SgdConfig, momentum::MomentumConfig},
    tensor::{DType, Device, Int, Tensor},
};

use sha2::{Digest as _, Sha256};
use sirtaki_engine::Phase;

use super::{
    meter::Score,
    networks::classify,
    settings::{Method, Precision, Settings},
};
use crate::{
    Chain, Compression, DistributedOptimizer, Flow, Layer, Result, Update, World,
    checkpoint::hex,
    data::Batch,
    lars::{Lars, LarsSgd},
    tensor_parallel::SplitCrossEntropy,
};

/// How batches go through a network.
#[derive(Debug, Clone)]
pub(super) struct Passes {
    world: World,
    pub(super) device: Device,
    pub(super) precision: Precision,
    criterion: CrossEntropyLoss,
    /// The loss where every worker has the scores of some classes.
    split: Option<SplitCrossEntropy>,
    tensors: TensorsOf,
}

/// What goes into a network for a batch, and the classes that should come out.
pub(super) type TensorsOf = fn(Batch, &Device, DType) -> Result<(Flow, Tensor<1, Int>)>;

/// What losses are multiplied by if gradients would be too small for `f16`.
const LOSS_SCALE: f64 = 1024.0;

impl Passes {
    /// On this device, which keeps gradients if it is for training.
    pub(super) fn new(world: &World, device: Device, precision: Precision, tensors: TensorsOf) -> Self {
        let criterion = CrossEntropyLossConfig::new().init(&device);
        Self { world: world.clone(), device, precision, criterion, split: None, tensors }
    }

    /// For a network whose last layer gives the scores of some classes on each worker.
    pub(super) fn split(mut self, loss: Option<SplitCrossEntropy>) -> Self {
        self.split = loss;
        self
    }

    /// Without gradients, to test what these train.
    pub(super) fn for_tests(&self) -> Self {
        let device = self.device.clone().without_autodiff();
        Self::new(&self.world, device, Precision::F32, self.tensors).split(self.split.clone())
    }

    /// The gradients of a batch, of its mean loss times `weight`. An empty batch has none.
    pub(super) fn train<L: Layer>(
        &self,
        network: &Chain<L>,
        batch: Batch,
        weight: f64,
    ) -> Result<(Score, GradientsParams)> {
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
        let gradients = self.scaled(loss).mul_scalar(weight).backward();
        Ok((score, GradientsParams::from_grads(gradients, network)))
    }

    /// The loss of a batch, and how well it was classified.
    pub(super) fn forward<L: Layer>(&self, network: &Chain<L>, batch: Batch) -> Result<(Tensor<1>, Score)> {
        let (samples, labels) = self.tensors(batch)?;
        self.judge(classify(network, samples)?, labels)
    }

    /// What goes into the network, and the classes that should come out.
    pub(super) fn tensors(&self, batch: Batch) -> Result<(Flow, Tensor<1, Int>)> {
        (self.tensors)(batch, &self.device, self.dtype())
    }

    /// The loss of what came out, and how well it was classified.
    pub(super) fn judge(&self, output: Tensor<2>, labels: Tensor<1, Int>) -> Result<(Tensor<1>, Score)> {
        let output = output.cast(DType::F32);
        let count = labels.dims()[0] as f64;
        let (loss, right) = match &self.split {
            Some(split) => {
                let (loss, right) = split.forward_judged(output, labels);
                (loss, right as f64)
            }
            None => {
                let guesses = output.clone().argmax(1).flatten::<1>(0, 1);
                let right = recognised(guesses, labels.clone());
                (self.criterion.forward(output, labels), right)
            }
        };
        let mean: f32 = loss.clone().into_scalar();
        Ok((loss, Score { loss: f64::from(mean) * count, right, count }))
    }

    /// The loss whose gradients are computed.
    pub(super) fn scaled(&self, loss: Tensor<1>) -> Tensor<1> {
        if self.precision == Precision::F16 { loss.mul_scalar(LOSS_SCALE) } else { loss }
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

/// How gradients become weights, for all ranks.
pub(super) fn update<L: Layer>(world: &World, settings: &Settings) -> Result<Box<dyn Update<Chain<L>>>> {
    settings.strategy.update(world, settings.method, for_all(world, settings, optimizer(settings.method)))
}

/// An optimizer for all ranks.
pub(super) fn for_all(world: &World, settings: &Settings, optimizer: ModuleOptimizer) -> DistributedOptimizer {
    let optimizer = DistributedOptimizer::new(world, optimizer);
    // What is exact, or goes to those who have the elements, is not compressed.
    let compressed = |optimizer: DistributedOptimizer, to: Compression| match settings.shards {
        None if settings.strategy.compresses() => optimizer.compress(to),
        _ => optimizer,
    };
    match settings.precision {
        Precision::F32 => optimizer,
        Precision::BF16 => compressed(optimizer, Compression::BF16),
        Precision::F16 => compressed(optimizer, Compression::F16).loss_scale(LOSS_SCALE),
    }
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

/// Bytes of what is known of the weights of a layer: its number and their checksum.
pub(super) const DIGEST: usize = 8 + 32;

/// The number of each layer that is here and a checksum of its weights.
pub(super) fn layer_digests<L: Layer>(network: &Chain<L>) -> Result<Vec<Vec<u8>>> {
    let mut digests: BTreeMap<usize, Sha256> = network.numbers().map(|number| (number, Sha256::new())).collect();
    network.whole_tensors(|number, elements| digests.entry(number).or_default().update(elements))?;
    let digest = |(number, digest): (usize, Sha256)| {
        (number as u64).to_be_bytes().into_iter().chain(digest.finalize()).collect()
    };
    Ok(digests.into_iter().map(digest).collect())
}

/// A checksum of all weights of a network, from those of its layers in any order.
pub(super) fn digest_of_layers(mut layers: Vec<Vec<u8>>) -> String {
    layers.sort();
    hex(&Sha256::digest(layers.concat()))
}

/// The sum of all weights: not a finite number if one of them is not.
pub(super) fn sum_of_weights<L: Layer>(network: &Chain<L>) -> f64 {
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
