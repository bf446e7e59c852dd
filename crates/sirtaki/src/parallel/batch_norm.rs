//! Batch norm over the batch of all ranks.
//!
//! With few samples per rank, mean and variance of a rank's own batch say little. Here they are computed over all
//! ranks' samples, and so are gradients: mean and variance depend on every sample of every rank. Built of Burn's tensor
//! operations around a sum over ranks that gradients flow through. The variance is summed around the common mean, which
//! takes a second sum: the mean of squares minus the square of the mean would lose precision.

use burn::{
    module::{Flag, Module, Param, RunningState},
    nn::BatchNorm,
    tensor::Tensor,
};

use super::differentiable::Collective;
use crate::World;

/// Batch norm whose statistics are those of all ranks' samples, however many each has.
///
/// It takes the place of Burn's `BatchNorm` in a module and has the same fields, so a record of one can be loaded into
/// the other:
///
/// ```no_run
/// # fn main() -> sirtaki::Result<()> {
/// use burn::nn::BatchNormConfig;
///
/// let world = sirtaki::init()?;
/// let device = world.device().autodiff();
/// let norm = sirtaki::SyncBatchNorm::new(&world, BatchNormConfig::new(32).init(&device));
/// # let _ = norm;
/// # Ok(())
/// # }
/// ```
///
/// All ranks make their layers in the same order, and go forward and backward through them together. Outside training
/// it is Burn's `BatchNorm`.
#[derive(Module, Debug)]
pub struct SyncBatchNorm {
    /// The factor of each feature.
    pub gamma: Param<Tensor<1>>,
    /// The offset of each feature.
    pub beta: Param<Tensor<1>>,
    /// Whether this layer is trained.
    pub training: Param<Flag>,
    /// The mean of earlier batches.
    pub running_mean: RunningState<Tensor<1>>,
    /// The variance of earlier batches.
    pub running_var: RunningState<Tensor<1>>,
    /// How much a batch changes them.
    pub momentum: f64,
    /// Keeps the variance away from zero.
    pub epsilon: f64,
    #[module(skip)]
    sums: Sums,
}

#[derive(Debug, Clone)]
struct Sums {
    mean: Collective,
    variance: Collective,
}

impl SyncBatchNorm {
    /// The layer with the statistics of all ranks of this world.
    pub fn new(world: &World, norm: BatchNorm) -> Self {
        let BatchNorm { gamma, beta, training, running_mean, running_var, momentum, epsilon } = norm;
        let number = world.next_layer();
        let sum = |what: &str| Collective::sum(Some(world), &format!("batch norm {number} {what}"));
        let sums = Sums { mean: sum("mean"), variance: sum("variance") };
        Self { gamma, beta, training, running_mean, running_var, momentum, epsilon, sums }
    }

    /// The layer with the statistics of one process.
    pub fn into_inner(self) -> BatchNorm {
        let Self { gamma, beta, training, running_mean, running_var, momentum, epsilon, .. } = self;
        BatchNorm { gamma, beta, training, running_mean, running_var, momentum, epsilon }
    }

    /// Normalises an input of shape `[samples, features, ...]`, of which this rank has some samples.
    ///
    /// # Panics
    /// If the input has a different shape, or if ranks cannot work together any more.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        if input.device().is_autodiff() && self.training.is_enabled() {
            return self.train(input);
        }
        self.clone().into_inner().forward(input)
    }

    fn train<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let (shape, [features]) = (input.dims(), self.gamma.dims());
        assert!(D >= 2 && shape[1] == features, "an input of shape {shape:?} does not have {features} features");
        let values = shape.iter().product::<usize>() / features;
        let mut wide = [1; D];
        wide[1] = features;
        let device = input.device();
        let sum = |tensor: Tensor<D>| tensor.swap_dims(0, 1).reshape([features, values]).sum_dim(1).reshape([features]);
        let count = Tensor::<1>::full([1], values as f64, (&device, input.dtype()));
        let sums = self.sums.mean.of(Tensor::cat(vec![sum(input.clone()), count], 0));
        let count = sums.clone().narrow(0, features, 1).detach();
        let mean = sums.narrow(0, 0, features).div(count.clone());
        let centred = input.sub(mean.clone().reshape(wide));
        let variance = self.sums.variance.of(sum(centred.clone().square())).div(count);
        self.remember(&self.running_mean, mean);
        self.remember(&self.running_var, variance.clone());
        let factor = self.gamma.val().div(variance.add_scalar(self.epsilon).sqrt());
        centred.mul(factor.reshape(wide)).add(self.beta.val().reshape(wide))
    }

    fn remember(&self, running: &RunningState<Tensor<1>>, batch: Tensor<1>) {
        let earlier = running.value_sync().to_device(&batch.device()).mul_scalar(1.0 - self.momentum);
        running.update(earlier.add(batch.detach().mul_scalar(self.momentum)).detach());
    }
}
