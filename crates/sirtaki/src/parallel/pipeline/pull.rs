//! Backward from gradients that another worker has computed.
//!
//! An operation in Burn's graph whose result is a zero and whose gradient is the one given, bit for bit and whatever the
//! loss is. Rejected: the sum of all products of the tensor with its gradient as a loss, which computes two things that
//! nobody wants.

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
    tensor::{Shape, Tensor, TensorData},
};

/// A number with this gradient with respect to the tensor.
pub(super) fn pull<const D: usize>(tensor: Tensor<D>, gradient: TensorData) -> Tensor<1> {
    Tensor::from_dispatch(<Dispatch as Pulled>::pulled(tensor.into_dispatch(), gradient))
}

#[backend_extension(Autodiff, Flex, Cube: cfg(feature = "cuda"))]
trait Pulled: Backend {
    fn pulled(tensor: FloatTensor<Self>, gradient: TensorData) -> FloatTensor<Self>;
}

fn zero<B: Backend>(tensor: &FloatTensor<B>) -> FloatTensor<B> {
    B::float_zeros(Shape::from([1]), &tensor.device(), tensor.dtype().into())
}

impl Pulled for Flex {
    fn pulled(tensor: FloatTensor<Self>, _: TensorData) -> FloatTensor<Self> {
        zero::<Self>(&tensor)
    }
}

#[cfg(feature = "cuda")]
impl Pulled for burn::backend::Cube {
    fn pulled(tensor: FloatTensor<Self>, _: TensorData) -> FloatTensor<Self> {
        zero::<Self>(&tensor)
    }
}

impl<B: Pulled, C: CheckpointStrategy> Pulled for Autodiff<B, C> {
    fn pulled(tensor: FloatTensor<Self>, gradient: TensorData) -> FloatTensor<Self> {
        #[derive(Debug)]
        struct Back;

        impl<B: Pulled> Backward<B, 1> for Back {
            type State = TensorData;

            fn backward(self, ops: Ops<TensorData, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
                let gradient = ops.state;
                unary::<B, _>(ops.parents, ops.node, gradients, |one| B::float_from_data(gradient, &one.device()));
            }
        }

        let (primitive, node) = tensor.into_parts();
        let result = zero::<B>(&primitive);
        match Back.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(gradient, result),
            OpsKind::UnTracked(prepared) => prepared.finish(result),
        }
    }
}
