//! A small convolutional network with everything that can depend on the number of workers: dropout, batch norm, momentum;
//! and images for it, the same on every process.

#![allow(dead_code, reason = "not every test uses all of it")]

#[path = "../folder/mod.rs"]
mod folder;

use burn::{
    module::{Module, ModuleVisitor, Param},
    nn::{
        BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Linear, LinearConfig,
        conv::{Conv2d, Conv2dConfig},
        loss::CrossEntropyLossConfig,
    },
    optim::{AdamConfig, GradientsParams, ModuleOptimizer, SgdConfig, momentum::MomentumConfig},
    tensor::{Device, Int, Tensor, TensorData, activation::relu},
};
use serde::{Deserialize, Serialize};
use sirtaki::{
    World,
    data::{Plan, Worker},
};

pub(crate) use self::folder::Folder;

const SIDE: usize = 8;
const CLASSES: usize = 4;
/// Not a multiple of any batch, so that the last step of an epoch is short.
pub(crate) const SAMPLES: usize = 50;

#[derive(Module, Debug)]
pub(crate) struct Network {
    convolution: Conv2d,
    norm: BatchNorm,
    dropout: Dropout,
    hidden: Linear,
    last: Linear,
    /// For some batches only, whose first sample decides.
    branch: Linear,
    /// Never used, so never touched.
    spare: Linear,
}

impl Network {
    pub(crate) fn new(device: &Device, hidden: usize, dropout: f64) -> Self {
        device.seed(5);
        Self {
            convolution: Conv2dConfig::new([1, 6], [3, 3]).init(device),
            norm: BatchNormConfig::new(6).init(device),
            dropout: DropoutConfig::new(dropout).init(),
            hidden: LinearConfig::new(6 * (SIDE - 2) * (SIDE - 2), hidden).init(device),
            last: LinearConfig::new(hidden, CLASSES).init(device),
            branch: LinearConfig::new(hidden, CLASSES).init(device),
            spare: LinearConfig::new(2, 2).init(device),
        }
    }

    /// The mean loss of these samples.
    pub(crate) fn loss(&self, samples: &[u32]) -> Tensor<1> {
        let device = self.last.weight.device();
        let pixel = |sample: u32, pixel: usize| (f64::from(sample * 7 + 3) * (pixel as f64 + 0.7) * 0.37).sin() as f32;
        let pixels: Vec<f32> =
            samples.iter().flat_map(|&sample| (0..SIDE * SIDE).map(move |place| pixel(sample, place))).collect();
        let labels: Vec<i64> = samples.iter().map(|&sample| i64::from(sample) % CLASSES as i64).collect();
        let images = Tensor::<4>::from_data(TensorData::new(pixels, [samples.len(), 1, SIDE, SIDE]), &device);
        let labels = Tensor::<1, Int>::from_data(TensorData::new(labels, [samples.len()]), &device);
        let features = self.norm.forward(self.convolution.forward(images));
        let hidden = relu(self.hidden.forward(self.dropout.forward(relu(features)).flatten(1, 3)));
        let output = self.last.forward(hidden.clone());
        let output = if samples[0].is_multiple_of(3) { output + self.branch.forward(hidden) } else { output };
        CrossEntropyLossConfig::new().init(&device).forward(output, labels)
    }

    pub(crate) fn gradients(&self, samples: &[u32], weight: f64) -> GradientsParams {
        GradientsParams::from_grads(self.loss(samples).mul_scalar(weight).backward(), self)
    }
}

pub(crate) fn momentum() -> ModuleOptimizer {
    SgdConfig::new().with_momentum(Some(MomentumConfig { momentum: 0.9, dampening: 0.0, nesterov: false })).init()
}

pub(crate) fn adam() -> ModuleOptimizer {
    AdamConfig::new().init()
}

pub(crate) fn worker(world: &World) -> Worker {
    Worker { rank: world.rank(), world: world.size() }
}

pub(crate) fn samples(plan: &impl Plan, batch: usize) -> Vec<u32> {
    let mut indices = Vec::new();
    plan.indices(batch, &mut indices);
    indices
}

/// The bits of all numbers of a module: of those that learn, and of running statistics.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bits {
    pub(crate) learned: Vec<u32>,
    pub(crate) still: Vec<u32>,
}

impl ModuleVisitor for Bits {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let bits = param.val().into_data().try_to_vec::<f32>().unwrap().into_iter().map(f32::to_bits);
        if param.is_require_grad() { self.learned.extend(bits) } else { self.still.extend(bits) }
    }
}

pub(crate) fn bits<M: Module>(module: &M) -> Bits {
    let mut bits = Bits::default();
    // Brings running statistics up to date.
    drop(module.valid());
    module.visit(&mut bits);
    bits
}

pub(crate) fn difference(some: &[u32], others: &[u32]) -> f32 {
    assert_eq!(some.len(), others.len());
    let pairs = some.iter().zip(others).map(|(&one, &other)| (f32::from_bits(one), f32::from_bits(other)));
    pairs.map(|(one, other)| (one - other).abs()).fold(0.0, f32::max)
}
