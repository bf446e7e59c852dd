//! The parts of all ranks as one tensor, that gradients flow through.
//!
//! All ranks go on to compute the same with the result, so their gradients of it are equal, and a rank takes its part of
//! its own: the backward pass needs no communication.

use std::{ops::Range, sync::Arc};

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
    tensor::{Shape, Slice, Tensor, TensorData, read_sync},
};
use sirtaki_engine::Operation;

use super::convert::{inbound, outbound};
use crate::{Result, World};

/// Rows of all ranks one after another, by the name under which they find each other.
#[derive(Debug, Clone)]
pub(super) struct Gather {
    world: World,
    name: Arc<str>,
    /// How many rows there are in all, and which of them are this rank's.
    total: usize,
    own: Range<usize>,
}

impl Gather {
    pub(super) fn new(world: &World, name: &str, total: usize, own: Range<usize>) -> Self {
        Self { world: world.clone(), name: name.into(), total, own }
    }

    /// All ranks' parts along a dimension. All ranks call it.
    ///
    /// # Panics
    /// If ranks cannot work together any more: a module cannot return an error.
    pub(super) fn along<const D: usize>(&self, dimension: usize, tensor: Tensor<D>) -> Tensor<D> {
        let rows = tensor.swap_dims(0, dimension);
        let rows = <Dispatch as GatherOverRanks>::gather_over_ranks(rows.into_dispatch(), self.clone());
        Tensor::<D>::from_dispatch(rows).swap_dims(0, dimension)
    }

    fn run(&self, data: TensorData) -> Result<TensorData> {
        let mut shape: Vec<usize> = data.shape().to_vec();
        shape[0] = self.total;
        let dtype = data.dtype();
        let (request, tensor) = outbound(&self.name, Operation::AllGather, data);
        inbound(&self.name, self.world.engine().submit(request, tensor).wait_one()?, Shape::from(shape), dtype)
    }

    fn primitive<B: Backend>(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        if self.world.size() == 1 {
            return tensor;
        }
        let device = tensor.device();
        let data = read_sync(B::float_into_data(tensor)).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let data = self.run(data).unwrap_or_else(|error| panic!("{error}"));
        B::float_from_data(data, &device)
    }

    /// This rank's part.
    fn part<B: Backend>(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        let mut slices: Vec<Slice> = tensor.shape().iter().map(|&extent| Slice::from(0..extent)).collect();
        slices[0] = Slice::from(self.own.clone());
        B::float_slice(tensor, &slices)
    }
}

#[backend_extension(Autodiff, Flex, Cube: cfg(feature = "cuda"))]
trait GatherOverRanks: Backend {
    fn gather_over_ranks(tensor: FloatTensor<Self>, gather: Gather) -> FloatTensor<Self>;
}

impl GatherOverRanks for Flex {
    fn gather_over_ranks(tensor: FloatTensor<Self>, gather: Gather) -> FloatTensor<Self> {
        gather.primitive::<Self>(tensor)
    }
}

#[cfg(feature = "cuda")]
impl GatherOverRanks for burn::backend::Cube {
    fn gather_over_ranks(tensor: FloatTensor<Self>, gather: Gather) -> FloatTensor<Self> {
        gather.primitive::<Self>(tensor)
    }
}

impl<B: GatherOverRanks, C: CheckpointStrategy> GatherOverRanks for Autodiff<B, C> {
    fn gather_over_ranks(tensor: FloatTensor<Self>, gather: Gather) -> FloatTensor<Self> {
        #[derive(Debug)]
        struct Back;

        impl<B: GatherOverRanks> Backward<B, 1> for Back {
            type State = Gather;

            fn backward(self, ops: Ops<Gather, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
                let gather = ops.state;
                unary::<B, _>(ops.parents, ops.node, gradients, |gradient| gather.part::<B>(gradient));
            }
        }

        let (primitive, node) = tensor.into_parts();
        let result = B::gather_over_ranks(primitive, gather.clone());
        // Never recomputed in the backward pass to save memory: other ranks would have to recompute it, too.
        match Back.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(gather, result),
            OpsKind::UnTracked(prepared) => prepared.finish(result),
        }
    }
}
