//! A small network and samples for it, the same on every process.

use burn::{
    module::{Module, ModuleVisitor, Param},
    nn::{
        Linear, LinearConfig,
        loss::{MseLoss, Reduction},
    },
    optim::GradientsParams,
    tensor::{Device, Tensor, TensorData, activation::tanh},
};

/// Samples of a step, over all ranks; can be divided by 1, 2, 3, 4 and 6.
pub(crate) const BATCH: usize = 24;
const INPUTS: usize = 5;

#[derive(Module, Debug)]
pub(crate) struct Network {
    first: Linear,
    second: Linear,
    /// Not in `forward`; for tests that use it on some ranks.
    pub(crate) branch: Linear,
    /// Used by nobody.
    pub(crate) spare: Linear,
}

impl Network {
    pub(crate) fn new(device: &Device) -> Self {
        Self {
            first: LinearConfig::new(INPUTS, 16).init(device),
            second: LinearConfig::new(16, 2).init(device),
            branch: LinearConfig::new(INPUTS, 2).init(device),
            spare: LinearConfig::new(3, 3).init(device),
        }
    }

    pub(crate) fn forward(&self, values: Tensor<2>) -> Tensor<2> {
        self.second.forward(tanh(self.first.forward(values)))
    }

    pub(crate) fn device(&self) -> Device {
        self.first.weight.device()
    }
}

/// One of several equal pieces of a batch.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) rank: usize,
    pub(crate) size: usize,
}

/// A piece of the batch of a step, and what the network should make of it.
pub(crate) fn samples(step: usize, part: Part, device: &Device) -> (Tensor<2>, Tensor<2>) {
    let count = BATCH / part.size;
    let first = step * BATCH + part.rank * count;
    let value = |sample: usize, input: usize| ((sample * 7 + input * 3) as f32 * 0.37).sin();
    let values: Vec<f32> =
        (first..first + count).flat_map(|sample| (0..INPUTS).map(move |input| value(sample, input))).collect();
    let target = |row: &[f32]| [row[0] * row[1] + row[2], (row[3] - row[4]).cos()];
    let targets: Vec<f32> = values.chunks(INPUTS).flat_map(target).collect();
    let tensor = |elements: Vec<f32>, width| Tensor::from_data(TensorData::new(elements, [count, width]), device);
    (tensor(values, INPUTS), tensor(targets, 2))
}

pub(crate) fn loss(output: Tensor<2>, targets: Tensor<2>) -> Tensor<1> {
    MseLoss::new().forward(output, targets, Reduction::Mean)
}

/// All numbers of a module.
pub(crate) fn weights<M: Module>(module: &M) -> Vec<f32> {
    struct Weights(Vec<f32>);
    impl ModuleVisitor for Weights {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.extend(param.val().into_data().try_to_vec::<f32>().unwrap());
        }
    }
    let mut weights = Weights(Vec::new());
    module.visit(&mut weights);
    weights.0
}

/// The same gradients once more.
pub(crate) fn clone_gradients<M: Module>(module: &M, gradients: &GradientsParams) -> GradientsParams {
    struct Cloning<'a>(&'a GradientsParams, GradientsParams);
    impl ModuleVisitor for Cloning<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(gradient) = self.0.get::<D>(param.id) {
                self.1.register(param.id, gradient);
            }
        }
    }
    let mut cloning = Cloning(gradients, GradientsParams::new());
    module.visit(&mut cloning);
    cloning.1
}
