//! The largest value of every square of an image, and its gradient, as an operation that Burn's back end does not have.
//!
//! The backward pass looks for the largest value again: that is cheaper than storing its position for every square.

use burn::{
    backend::{
        Autodiff, Backend, Dispatch, Flex, TensorMetadata,
        autodiff::{
            NodeId,
            checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
            grads::Gradients,
            ops::{Backward, Ops, OpsKind},
        },
        backend_extension,
        flex::FlexTensor,
        tensor::FloatTensor,
    },
    tensor::Tensor,
};

use super::raw::{tensor, values};

/// Images, on a CPU, in squares of `side` by `side` pixels; pixels left over on the right and at the bottom do not
/// count.
pub(super) fn forward(images: Tensor<4>, side: usize) -> Tensor<4> {
    Tensor::from_dispatch(<Dispatch as MaxPool>::max_pool(images.into_dispatch(), side))
}

/// A back end that can reduce squares to their largest value.
#[backend_extension(Flex, Autodiff)]
trait MaxPool: Backend {
    fn max_pool(images: FloatTensor<Self>, side: usize) -> FloatTensor<Self>;
}

impl MaxPool for Flex {
    fn max_pool(images: FlexTensor, side: usize) -> FlexTensor {
        let images = images.to_contiguous();
        let [count, channels, height, width] = images.shape().dims();
        let (rows, columns) = (height / side, width / side);
        let mut output = vec![f32::NEG_INFINITY; count * channels * rows * columns];
        let planes = values(&images).chunks_exact((height * width).max(1));
        for (plane, output) in planes.zip(output.chunks_exact_mut((rows * columns).max(1))) {
            for (bands, output) in plane.chunks_exact(side * width).zip(output.chunks_exact_mut(columns)) {
                // Constant bounds make much faster loops, and nearly all networks use two.
                let raise = |row| if side == 2 { raise(output, row, 2) } else { raise(output, row, side) };
                bands.chunks_exact(width).for_each(raise);
            }
        }
        tensor(output, [count, channels, rows, columns])
    }
}

/// Raises every value of `output` to the largest of its `side` pixels. NaNs are kept.
#[inline(always)]
fn raise(output: &mut [f32], row: &[f32], side: usize) {
    for (largest, pixels) in output.iter_mut().zip(row.chunks_exact(side)) {
        for &pixel in pixels {
            *largest = if pixel > *largest || pixel.is_nan() { pixel } else { *largest };
        }
    }
}

impl<C: CheckpointStrategy> MaxPool for Autodiff<Flex, C> {
    fn max_pool(images: FloatTensor<Self>, side: usize) -> FloatTensor<Self> {
        match Gradient.prepare::<C>([images.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut prepared) => {
                let node = prepared.checkpoint(&images);
                let output = Flex::max_pool(images.into_primitive(), side);
                prepared.finish((node, output.clone(), side), output)
            }
            OpsKind::UnTracked(prepared) => prepared.finish(Flex::max_pool(images.into_primitive(), side)),
        }
    }
}

/// The backward pass: the first of the largest pixels gets the whole gradient.
#[derive(Debug)]
struct Gradient;

impl Backward<Flex, 1> for Gradient {
    type State = (NodeId, FlexTensor, usize);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let gradient = gradients.consume::<Flex>(&ops.node).to_contiguous();
        let (images, output, side) = ops.state;
        let images = checkpointer.retrieve_node_output::<FlexTensor>(images).to_contiguous();
        if let [Some(node)] = ops.parents {
            gradients.register::<Flex>(node.id, of_images(&images, &output, &gradient, side));
        }
    }
}

fn of_images(images: &FlexTensor, output: &FlexTensor, gradient: &FlexTensor, side: usize) -> FlexTensor {
    let [count, channels, height, width] = images.shape().dims();
    let (rows, columns) = (height / side, width / side);
    let mut result = vec![0.0; count * channels * height * width];
    // The values of a band whose pixel has not been found yet are the largest one, the others NaN.
    let mut wanted = vec![0.0; columns];
    let planes =
        values(images).chunks_exact((height * width).max(1)).zip(result.chunks_exact_mut((height * width).max(1)));
    let outputs = values(output).chunks_exact((rows * columns).max(1));
    for ((plane, result), (output, gradient)) in
        planes.zip(outputs.zip(values(gradient).chunks_exact((rows * columns).max(1))))
    {
        let bands = plane.chunks_exact(side * width).zip(result.chunks_exact_mut(side * width));
        let outputs = output.chunks_exact(columns).zip(gradient.chunks_exact(columns));
        for ((band, result), (output, gradient)) in bands.zip(outputs) {
            wanted.copy_from_slice(output);
            for (row, result) in band.chunks_exact(width).zip(result.chunks_exact_mut(width)) {
                if side == 2 {
                    hand_back(row, result, &mut wanted, gradient, 2);
                } else {
                    hand_back(row, result, &mut wanted, gradient, side);
                }
            }
        }
    }
    tensor(result, [count, channels, height, width])
}

/// Gives each gradient to the first pixel that has the wanted value, which is then no longer wanted.
#[inline(always)]
fn hand_back(row: &[f32], result: &mut [f32], wanted: &mut [f32], gradient: &[f32], side: usize) {
    let pixels = row.chunks_exact(side).zip(result.chunks_exact_mut(side));
    for ((wanted, gradient), (pixels, results)) in wanted.iter_mut().zip(gradient).zip(pixels) {
        for (pixel, result) in pixels.iter().zip(results) {
            let found = pixel == wanted;
            *result = if found { *gradient } else { 0.0 };
            *wanted = if found { f32::NAN } else { *wanted };
        }
    }
}
