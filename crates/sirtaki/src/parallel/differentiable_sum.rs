//! A sum over all ranks that gradients flow through.
//!
//! Where every rank goes on to compute something of its own with the result, the gradient of a summand is the sum of all
//! ranks' gradients of the result: the backward pass is a sum over all ranks as well. Where all ranks go on to compute the
//! same, as between layers that are split over ranks, only one of the two directions is a sum; see [`Sum::leaving`] and
//! [`Sum::entering`]. It is a separate operation in Burn's graph, once for tensors and once for tensors that are tracked. Burn walks back through a graph in an order that follows from the graph alone, so
//! ranks that computed the same layers ask for the same sums in the same order and none waits for another.

use std::sync::Arc;

use burn::{
    backend::{
        Autodiff, Backend, Dispatch, Flex, TensorMetadata,
        autodiff::{
            checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
            grads::Gradients,
            ops::{Backward, Ops, OpsKind, unary},
        },
        backend_extension,
        tensor::FloatTensor,
    },
    tensor::{Tensor, TensorData, read_sync},
};
use sirtaki_comm::Reduction;
use sirtaki_engine::Operation;

use super::convert::{inbound, outbound};
use crate::{Result, World};

/// A sum over ranks, by the name under which they find each other.
#[derive(Debug, Clone)]
pub(super) struct Sum {
    world: World,
    name: Arc<str>,
    forward: bool,
    backward: bool,
}

impl Sum {
    /// A sum after which ranks compute different things.
    pub(super) fn new(world: &World, name: &str) -> Self {
        Self { world: world.clone(), name: name.into(), forward: true, backward: true }
    }

    /// What all ranks have in common before each computes a part of something: as it is; gradients are summed.
    pub(super) fn entering(world: &World, name: &str) -> Self {
        Self { forward: false, ..Self::new(world, name) }
    }

    /// The sum of ranks' parts, with which all of them go on to compute the same: their gradients are already equal.
    pub(super) fn leaving(world: &World, name: &str) -> Self {
        Self { backward: false, ..Self::new(world, name) }
    }

    /// The sum of all ranks' tensors. All ranks call it with the same shape, and either all or none run the backward
    /// pass through it.
    ///
    /// # Panics
    /// If ranks cannot work together any more: neither a module nor the backward pass can return an error.
    pub(super) fn of<const D: usize>(&self, tensor: Tensor<D>) -> Tensor<D> {
        Tensor::from_dispatch(<Dispatch as SumOverRanks>::sum_over_ranks(tensor.into_dispatch(), self.clone()))
    }

    /// The sum of the backward pass.
    fn back(&self) -> Self {
        let name = format!("{} back", self.name).into();
        Self { world: self.world.clone(), name, forward: self.backward, backward: self.forward }
    }

    fn run(&self, data: TensorData) -> Result<TensorData> {
        let (shape, dtype) = (data.shape().clone(), data.dtype());
        let (request, tensor) = outbound(&self.name, Operation::AllReduce(Reduction::SUM), data);
        inbound(&self.name, self.world.engine().submit(request, tensor).wait_one()?, shape, dtype)
    }

    fn primitive<B: Backend>(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        if !self.forward || self.world.size() == 1 {
            return tensor;
        }
        let device = tensor.device();
        let data = read_sync(B::float_into_data(tensor)).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let data = self.run(data).unwrap_or_else(|error| panic!("{error}"));
        B::float_from_data(data, &device)
    }
}

#[backend_extension(Autodiff, Flex, Cube: cfg(feature = "cuda"))]
trait SumOverRanks: Backend {
    fn sum_over_ranks(tensor: FloatTensor<Self>, sum: Sum) -> FloatTensor<Self>;
}

impl SumOverRanks for Flex {
    fn sum_over_ranks(tensor: FloatTensor<Self>, sum: Sum) -> FloatTensor<Self> {
        sum.primitive::<Self>(tensor)
    }
}

#[cfg(feature = "cuda")]
impl SumOverRanks for burn::backend::Cube {
    fn sum_over_ranks(tensor: FloatTensor<Self>, sum: Sum) -> FloatTensor<Self> {
        sum.primitive::<Self>(tensor)
    }
}

impl<B: SumOverRanks, C: CheckpointStrategy> SumOverRanks for Autodiff<B, C> {
    fn sum_over_ranks(tensor: FloatTensor<Self>, sum: Sum) -> FloatTensor<Self> {
        #[derive(Debug)]
        struct Back;

        impl<B: SumOverRanks> Backward<B, 1> for Back {
            type State = Sum;

            fn backward(self, ops: Ops<Sum, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
                let sum = ops.state.back();
                unary::<B, _>(ops.parents, ops.node, gradients, |gradient| B::sum_over_ranks(gradient, sum));
            }
        }

        let (primitive, node) = tensor.into_parts();
        let result = B::sum_over_ranks(primitive, sum.clone());
        // Never recomputed in the backward pass to save memory: other ranks would have to recompute it, too.
        match Back.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(sum, result),
            OpsKind::UnTracked(prepared) => prepared.finish(result),
        }
    }
}
