//! LARS as a Burn optimizer.

use burn::{
    optim::{
        LearningRate, Optimizer,
        momentum::{Momentum, MomentumConfig, MomentumState},
    },
    tensor::{Device, Tensor, TensorData},
};

use crate::lars::Lars;

/// Gradient descent with momentum and a rate for each tensor, after the paper:
///
/// ```text
/// v ← momentum · v + rate · trust · (g + decay · w)
/// w ← w − v
/// ```
///
/// Biases and the parameters of norms, tensors of one dimension, use the rate as it is, and no decay.
///
/// ```no_run
/// # fn main() -> sirtaki::Result<()> {
/// use sirtaki::{DistributedOptimizer, lars::{Lars, LarsSgd}};
///
/// let world = sirtaki::init()?;
/// let lars = LarsSgd { lars: Lars { trust: 0.001, decay: 0.0001 }, momentum: 0.9 };
/// let optimizer = DistributedOptimizer::new(&world, lars);
/// # let _ = optimizer;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LarsSgd {
    /// Trust and weight decay.
    pub lars: Lars,
    /// How much of a step the next one repeats.
    pub momentum: f64,
}

impl Optimizer for LarsSgd {
    type State<const D: usize> = MomentumState<D>;

    fn step<const D: usize>(
        &self,
        rate: LearningRate,
        tensor: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<MomentumState<D>>,
    ) -> (Tensor<D>, Option<MomentumState<D>>) {
        let step = if D == 1 {
            gradient.mul_scalar(rate)
        } else {
            let ratio = self.lars.ratio(&numbers(&tensor), &numbers(&gradient));
            gradient.add(tensor.clone().mul_scalar(self.lars.decay)).mul_scalar(rate * ratio)
        };
        let momentum = MomentumConfig { momentum: self.momentum, dampening: 0.0, nesterov: false };
        let (velocity, state) = Momentum::new(&momentum).transform(step, state);
        (tensor.sub(velocity), Some(state))
    }

    fn to_device<const D: usize>(state: MomentumState<D>, device: &Device) -> MomentumState<D> {
        state.to_device(device)
    }
}

fn numbers<const D: usize>(tensor: &Tensor<D>) -> Vec<f32> {
    let data: TensorData = tensor.to_data();
    data.iter::<f32>().collect()
}

#[cfg(test)]
mod tests {
    use burn::tensor::Tolerance;

    use super::*;

    fn step<const D: usize>(
        weights: TensorData,
        gradients: TensorData,
        state: Option<MomentumState<D>>,
    ) -> (Tensor<D>, Option<MomentumState<D>>) {
        let lars = LarsSgd { lars: Lars { trust: 0.02, decay: 0.1 }, momentum: 0.5 };
        let device = Device::flex();
        lars.step(2.0, Tensor::from_data(weights, &device), Tensor::from_data(gradients, &device), state)
    }

    #[test]
    fn two_steps_by_hand() {
        // |w| = 5, |g| = 0.5: the ratio is 0.02 · 5 / (0.5 + 0.1 · 5) = 0.1, the step 2 · 0.1 · (g + 0.1 w).
        let (weights, state) = step::<2>([[3.0, -4.0]].into(), [[-0.5, 0.0]].into(), None);
        let close = Tolerance::<f32>::absolute(1e-6);
        weights.to_data().assert_approx_eq(&TensorData::from([[3.04, -3.92]]), close);
        // No gradient, no ratio: the step is 2 · 0.1 w, after half of the step before, which was [-0.04, -0.08].
        let (weights, _) = step::<2>([[1.0, 2.0]].into(), [[0.0, 0.0]].into(), state);
        weights.to_data().assert_approx_eq(&TensorData::from([[0.82, 1.64]]), close);
    }

    #[test]
    fn biases_have_the_rate_as_it_is() {
        let (weights, _) = step::<1>([3.0, -4.0].into(), [-0.5, 0.25].into(), None);
        weights.to_data().assert_eq(&TensorData::from([4.0_f32, -4.5]), true);
    }
}
