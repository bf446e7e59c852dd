//! What the layers of a network cost, measured.

use std::time::Instant;

use burn::{
    module::{Module, ModuleVisitor, Param},
    tensor::{Device, Tensor, TensorData},
};

use super::{
    chain::{Chain, Layer},
    flow::Flow,
};
use crate::{Result, pipeline::LayerCost};

/// Passes through each layer; the median counts.
const PASSES: usize = 5;
/// Parameter, gradient, and two numbers of an optimizer such as Adam.
const COPIES: u64 = 4;

impl<L: Layer> Chain<L> {
    /// What each of these layers costs for one micro-batch, forward and backward, to [cut](crate::pipeline::cut) the
    /// network. Memory is that of parameters with gradients and the state of Adam, and of what the layer gives. It is
    /// measured here and now, so one worker measures and tells the others.
    ///
    /// Layers are made one after the other and are gone before the next one is made, so that a network can be measured
    /// that no worker could hold.
    pub fn costs(
        numbers: impl IntoIterator<Item = usize>,
        device: &Device,
        mut input: Flow,
        mut layer: impl FnMut(usize) -> Result<L>,
    ) -> Result<Vec<LayerCost>> {
        let mut costs = Vec::new();
        for number in numbers {
            let (cost, output) = cost(&layer(number)?, &input)?;
            costs.push(cost);
            input = Flow::from_data(output, device)?;
        }
        Ok(costs)
    }
}

/// What a layer costs, and what it gives.
fn cost(layer: &impl Layer, input: &Flow) -> Result<(LayerCost, Vec<TensorData>)> {
    let (mut times, mut output) = (Vec::new(), Vec::new());
    for _ in 0..PASSES {
        let begun = Instant::now();
        let flow = layer.forward(input.again())?;
        output = flow.data();
        let gradients = output.iter().filter(|data| data.dtype().is_float()).cloned().map(Some).collect();
        if let Some(loss) = flow.pull(gradients) {
            drop(loss.backward());
        }
        times.push(begun.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    let given: u64 = output.iter().map(|data| data.as_bytes().len() as u64).sum();
    Ok((LayerCost { time: times[PASSES / 2], memory: COPIES * parameters(layer) + given }, output))
}

/// The bytes of all parameters.
fn parameters(layer: &impl Module) -> u64 {
    struct Bytes(u64);
    impl ModuleVisitor for Bytes {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let tensor = param.val();
            self.0 += (tensor.shape().num_elements() * tensor.dtype().size()) as u64;
        }
    }
    let mut bytes = Bytes(0);
    layer.visit(&mut bytes);
    bytes.0
}
