//! Collectives that gradients flow through.
//!
//! Each is one step forward and another one backward, and which ones depends on what ranks go on to compute. Where every
//! rank computes something of its own with a sum, the gradient of a summand is the sum of all ranks' gradients of the
//! result. Where all ranks compute the same with it, as between layers that are split over ranks, their gradients are
//! already equal, and only one of the two directions communicates.
//!
//! It is a separate operation in Burn's graph, once for tensors and once for tensors that are tracked. Burn walks back
//! through a graph in an order that follows from the graph alone, so ranks that computed the same layers ask for the same
//! collectives in the same order and none waits for another.

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
use sirtaki_comm::Reduction;
use sirtaki_engine::{Operation, decide::request::shares};

use super::convert::{inbound, outbound};
use crate::{Result, World};

/// What happens to a tensor in one direction.
#[derive(Debug, Clone)]
enum Step {
    /// Nothing.
    Keep,
    /// It becomes the sum of all ranks' tensors.
    Sum,
    /// The rows of all ranks, so many in all, follow one another.
    Gather(usize),
    /// Only these rows stay.
    Part(Range<usize>),
    /// It becomes the sum of all ranks' tensors, of which each keeps its share of the rows.
    Scatter,
}

/// A collective, by the name under which ranks find each other.
#[derive(Debug, Clone)]
pub(super) struct Collective {
    /// None if there is nobody to communicate with.
    world: Option<World>,
    name: Arc<str>,
    forward: Step,
    backward: Step,
}

impl Collective {
    /// A sum after which ranks compute different things.
    pub(super) fn sum(world: Option<&World>, name: &str) -> Self {
        Self::new(world, name, Step::Sum, Step::Sum)
    }

    /// What all ranks have in common before each computes a part of something: as it is; gradients are summed.
    pub(super) fn entering(world: Option<&World>, name: &str) -> Self {
        Self::new(world, name, Step::Keep, Step::Sum)
    }

    /// The sum of ranks' parts, with which all of them go on to compute the same.
    pub(super) fn leaving(world: Option<&World>, name: &str) -> Self {
        Self::new(world, name, Step::Sum, Step::Keep)
    }

    /// The rows of all ranks, `total` of them, with which all ranks go on to compute the same. This rank has those of
    /// `own`.
    pub(super) fn gather(world: Option<&World>, name: &str, total: usize, own: Range<usize>) -> Self {
        Self::new(world, name, Step::Gather(total), Step::Part(own))
    }

    /// This rank's rows `own` of `total` that all ranks have, before each computes something with its own.
    pub(super) fn split(world: Option<&World>, name: &str, total: usize, own: Range<usize>) -> Self {
        Self::new(world, name, Step::Part(own), Step::Gather(total))
    }

    /// The rows of all ranks, `total` of them, with which each computes a part of something; gradients are summed, and each
    /// rank gets those of its rows.
    pub(super) fn gather_parts(world: Option<&World>, name: &str, total: usize) -> Self {
        Self::new(world, name, Step::Gather(total), Step::Scatter)
    }

    /// The sum of ranks' parts, of which each keeps its share of the `total` rows.
    pub(super) fn scatter_parts(world: Option<&World>, name: &str, total: usize) -> Self {
        Self::new(world, name, Step::Scatter, Step::Gather(total))
    }

    /// The name under which ranks find each other.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn new(world: Option<&World>, name: &str, forward: Step, backward: Step) -> Self {
        let world = world.filter(|world| world.size() > 1).cloned();
        Self { world, name: name.into(), forward, backward }
    }

    /// The result. All ranks call it, and either all or none run the backward pass through it.
    ///
    /// # Panics
    /// If ranks cannot work together any more: neither a module nor the backward pass can return an error.
    pub(super) fn of<const D: usize>(&self, tensor: Tensor<D>) -> Tensor<D> {
        Tensor::from_dispatch(<Dispatch as OverRanks>::over_ranks(tensor.into_dispatch(), self.clone()))
    }

    /// The result along another dimension than the first.
    pub(super) fn along<const D: usize>(&self, dimension: usize, tensor: Tensor<D>) -> Tensor<D> {
        self.of(tensor.swap_dims(0, dimension)).swap_dims(0, dimension)
    }

    /// The collective of the backward pass.
    fn back(&self) -> Self {
        let name = format!("{} back", self.name);
        Self::new(self.world.as_ref(), &name, self.backward.clone(), self.forward.clone())
    }

    fn primitive<B: Backend>(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        let Some(world) = &self.world else { return tensor };
        match &self.forward {
            Step::Keep => tensor,
            Step::Sum => self.submit::<B>(world, tensor, Operation::AllReduce(Reduction::SUM), None),
            Step::Gather(total) => self.submit::<B>(world, tensor, Operation::AllGather, Some(*total)),
            Step::Scatter => {
                let rows = shares(tensor.shape()[0], world.size())[world.rank()];
                self.submit::<B>(world, tensor, Operation::ReduceScatter(Reduction::SUM), Some(rows))
            }
            Step::Part(rows) => {
                let mut slices: Vec<Slice> = tensor.shape().iter().map(|&extent| Slice::from(0..extent)).collect();
                slices[0] = Slice::from(rows.clone());
                B::float_slice(tensor, &slices)
            }
        }
    }

    /// The tensor after an operation, with another number of rows if that is given.
    fn submit<B: Backend>(
        &self,
        world: &World,
        tensor: FloatTensor<B>,
        operation: Operation,
        rows: Option<usize>,
    ) -> FloatTensor<B> {
        let device = tensor.device();
        let data = read_sync(B::float_into_data(tensor)).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        let data = self.run(world, data, operation, rows).unwrap_or_else(|error| panic!("{error}"));
        B::float_from_data(data, &device)
    }

    fn run(&self, world: &World, data: TensorData, operation: Operation, rows: Option<usize>) -> Result<TensorData> {
        let (mut shape, dtype) = (data.shape().to_vec(), data.dtype());
        if let Some(rows) = rows {
            shape[0] = rows;
        }
        let (request, tensor) = outbound(&self.name, operation, data);
        inbound(&self.name, world.engine().submit(request, tensor).wait_one()?, Shape::from(shape), dtype)
    }
}

#[backend_extension(Autodiff, Flex, Cube: cfg(feature = "cuda"))]
trait OverRanks: Backend {
    fn over_ranks(tensor: FloatTensor<Self>, collective: Collective) -> FloatTensor<Self>;
}

impl OverRanks for Flex {
    fn over_ranks(tensor: FloatTensor<Self>, collective: Collective) -> FloatTensor<Self> {
        collective.primitive::<Self>(tensor)
    }
}

#[cfg(feature = "cuda")]
impl OverRanks for burn::backend::Cube {
    fn over_ranks(tensor: FloatTensor<Self>, collective: Collective) -> FloatTensor<Self> {
        collective.primitive::<Self>(tensor)
    }
}

impl<B: OverRanks, C: CheckpointStrategy> OverRanks for Autodiff<B, C> {
    fn over_ranks(tensor: FloatTensor<Self>, collective: Collective) -> FloatTensor<Self> {
        #[derive(Debug)]
        struct Back;

        impl<B: OverRanks> Backward<B, 1> for Back {
            type State = Collective;

            fn backward(self, ops: Ops<Collective, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
                let collective = ops.state.back();
                unary::<B, _>(ops.parents, ops.node, gradients, |gradient| B::over_ranks(gradient, collective));
            }
        }

        let (primitive, node) = tensor.into_parts();
        let result = B::over_ranks(primitive, collective.clone());
        // Never recomputed in the backward pass to save memory: other ranks would have to recompute it, too.
        match Back.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(collective, result),
            OpsKind::UnTracked(prepared) => prepared.finish(result),
        }
    }
}
