//! Convolution as one matrix product per image, and its gradients, as an operation that Burn's back end does not have.

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

use super::{
    product::{Matrix, Product},
    raw::{tensor, values},
    window::Window,
};

/// Images, weights and bias, all on a CPU; `window` says how kernels lie on the images.
pub(super) fn forward(images: Tensor<4>, weight: Tensor<4>, bias: Tensor<1>, window: Window) -> Tensor<4> {
    let (images, weight, bias) = (images.into_dispatch(), weight.into_dispatch(), bias.into_dispatch());
    Tensor::from_dispatch(<Dispatch as Convolution>::convolution(images, weight, bias, window))
}

/// A back end that can convolve.
#[backend_extension(Flex, Autodiff)]
trait Convolution: Backend {
    fn convolution(
        images: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        window: Window,
    ) -> FloatTensor<Self>;
}

impl Convolution for Flex {
    fn convolution(images: FlexTensor, weight: FlexTensor, bias: FlexTensor, window: Window) -> FlexTensor {
        let (count, sizes) = (images.shape()[0], Sizes::new(&weight, window));
        let (images, weight, bias) = (images.to_contiguous(), weight.to_contiguous(), bias.to_contiguous());
        let mut columns = vec![0.0; sizes.columns()];
        let mut output = vec![0.0; count * sizes.output()];
        for (image, output) in values(&images).chunks_exact(sizes.image()).zip(output.chunks_exact_mut(sizes.output()))
        {
            sizes.unfold(image, &mut columns);
            for (channel, &bias) in output.chunks_exact_mut(sizes.places).zip(values(&bias)) {
                channel.fill(bias);
            }
            let product =
                Product { left: Matrix::new(values(&weight), sizes.parts), right: Matrix::new(&columns, sizes.places) };
            product.add_to(output, sizes.places);
        }
        let [height, width] = window.places();
        tensor(output, [count, sizes.channels, height, width])
    }
}

impl<C: CheckpointStrategy> Convolution for Autodiff<Flex, C> {
    fn convolution(
        images: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        window: Window,
    ) -> FloatTensor<Self> {
        let parents = [images.node(), weight.node(), bias.node()];
        let output = |images: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>| {
            Flex::convolution(images.into_primitive(), weight.into_primitive(), bias.into_primitive(), window)
        };
        match Gradient.prepare::<C>(parents).compute_bound().stateful() {
            OpsKind::Tracked(mut prepared) => {
                let state = (prepared.checkpoint(&images), prepared.checkpoint(&weight), window);
                prepared.finish(state, output(images, weight, bias))
            }
            OpsKind::UnTracked(prepared) => prepared.finish(output(images, weight, bias)),
        }
    }
}

/// The backward pass of a convolution.
#[derive(Debug)]
struct Gradient;

impl Backward<Flex, 3> for Gradient {
    type State = (NodeId, NodeId, Window);

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [images_node, weight_node, bias_node] = ops.parents;
        let gradient = gradients.consume::<Flex>(&ops.node).to_contiguous();
        let (images, weight, window) = ops.state;
        let images = checkpointer.retrieve_node_output::<FlexTensor>(images);
        let weight = checkpointer.retrieve_node_output::<FlexTensor>(weight).to_contiguous();
        let sizes = Sizes::new(&weight, window);
        if let Some(node) = images_node {
            gradients.register::<Flex>(node.id, of_images(&weight, &gradient, images.shape().dims(), &sizes));
        }
        if let Some(node) = weight_node {
            gradients.register::<Flex>(
                node.id,
                of_weight(&images.to_contiguous(), &gradient, weight.shape().dims(), &sizes),
            );
        }
        if let Some(node) = bias_node {
            gradients.register::<Flex>(node.id, of_bias(&gradient, &sizes));
        }
    }
}

/// The gradient of the images: the transposed weights times that of the output, added up where the columns came from.
fn of_images(weight: &FlexTensor, gradient: &FlexTensor, shape: [usize; 4], sizes: &Sizes) -> FlexTensor {
    let mut columns = vec![0.0; sizes.columns()];
    let mut images = vec![0.0; shape.iter().product()];
    for (image, output) in images.chunks_exact_mut(sizes.image()).zip(values(gradient).chunks_exact(sizes.output())) {
        let weight = Matrix::new(values(weight), sizes.parts).transposed();
        let product = Product { left: weight, right: Matrix::new(output, sizes.places) };
        product.write_to(&mut columns, sizes.places);
        sizes.fold(&columns, image);
    }
    tensor(images, shape)
}

/// The gradient of the weights: that of the output times the transposed columns, over all images.
fn of_weight(images: &FlexTensor, gradient: &FlexTensor, shape: [usize; 4], sizes: &Sizes) -> FlexTensor {
    let mut columns = vec![0.0; sizes.columns()];
    let mut weight = vec![0.0; shape.iter().product()];
    for (image, output) in values(images).chunks_exact(sizes.image()).zip(values(gradient).chunks_exact(sizes.output()))
    {
        sizes.unfold(image, &mut columns);
        let columns = Matrix::new(&columns, sizes.places).transposed();
        Product { left: Matrix::new(output, sizes.places), right: columns }.add_to(&mut weight, sizes.parts);
    }
    tensor(weight, shape)
}

fn of_bias(gradient: &FlexTensor, sizes: &Sizes) -> FlexTensor {
    let mut bias = vec![0.0; sizes.channels];
    for output in values(gradient).chunks_exact(sizes.output()) {
        for (bias, channel) in bias.iter_mut().zip(output.chunks_exact(sizes.places)) {
            *bias += channel.iter().sum::<f32>();
        }
    }
    tensor(bias, [sizes.channels])
}

/// How large the matrices of an image are.
struct Sizes {
    window: Window,
    /// Channels of the output.
    channels: usize,
    /// Weights per channel of the output.
    parts: usize,
    /// Pixels per channel of the output.
    places: usize,
}

impl Sizes {
    fn new(weight: &FlexTensor, window: Window) -> Self {
        let [channels, before, height, width] = weight.shape().dims();
        Self { window, channels, parts: before * height * width, places: window.places().iter().product() }
    }

    fn image(&self) -> usize {
        self.parts / self.window.parts() * self.window.pixels()
    }

    fn output(&self) -> usize {
        self.channels * self.places
    }

    fn columns(&self) -> usize {
        self.parts * self.places
    }

    fn unfold(&self, image: &[f32], columns: &mut [f32]) {
        let matrices = columns.chunks_exact_mut(self.window.parts() * self.places);
        image
            .chunks_exact(self.window.pixels())
            .zip(matrices)
            .for_each(|(image, matrix)| self.window.unfold(image, matrix));
    }

    fn fold(&self, columns: &[f32], image: &mut [f32]) {
        let matrices = columns.chunks_exact(self.window.parts() * self.places);
        image
            .chunks_exact_mut(self.window.pixels())
            .zip(matrices)
            .for_each(|(image, matrix)| self.window.fold(matrix, image));
    }
}
