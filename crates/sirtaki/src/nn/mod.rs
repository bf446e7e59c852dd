//! Operations that are faster on CPUs than Burn's own: the same parameters, the same results within rounding.
//!
//! Burn's back end for CPUs changes the layout of images before and after a convolution, and computes the gradient
//! of the weights as a convolution with a kernel as large as an image. Here every image is unfolded into the columns of
//! one matrix product, in the layout that images already have, in both directions. Everything but 32-bit numbers on a
//! CPU is left to Burn.

mod convolution;
mod mixed_scale;
mod pool;
mod product;
mod raw;
mod window;

use burn::{
    nn::{PaddingConfig2d, conv::Conv2d},
    tensor::{DType, Device, Tensor, module::max_pool2d, ops::MaxPoolOptions},
};

pub use mixed_scale::{MixedScaleConfig, MixedScaleDense, MixedScaleLayer};
use window::Window;

/// What `layer.forward(images)` gives.
pub fn convolve(layer: &Conv2d, images: Tensor<4>) -> Tensor<4> {
    let Some(window) = window(layer, &images) else { return layer.forward(images) };
    let weight = layer.weight.val();
    let bias = match &layer.bias {
        Some(bias) => bias.val(),
        None => Tensor::zeros([weight.dims()[0]], &weight.device()),
    };
    convolution::forward(images, weight, bias, window)
}

/// The largest value of every square of `side` by `side` pixels; pixels left over on the right and at the bottom do not
/// count.
pub fn max_pool(images: Tensor<4>, side: usize) -> Tensor<4> {
    let [_, _, height, width] = images.dims();
    if is_ours(&images) && side > 0 && height >= side && width >= side {
        pool::forward(images, side)
    } else {
        max_pool2d(images, MaxPoolOptions::new([side, side]).with_stride([side, side]))
    }
}

fn is_ours<const D: usize>(tensor: &Tensor<D>) -> bool {
    let device = tensor.device();
    tensor.dtype() == DType::F32 && (device == Device::flex() || device == Device::flex().autodiff())
}

/// How the kernel moves over the images, where that is done here.
fn window(layer: &Conv2d, images: &Tensor<4>) -> Option<Window> {
    let weight = layer.weight.val();
    let padding = match layer.padding {
        PaddingConfig2d::Valid => [0, 0],
        PaddingConfig2d::Explicit(top, left, bottom, right) if (top, left) == (bottom, right) => [top, left],
        _ => return None,
    };
    let [_, channels, height, width] = images.dims();
    let fits = layer.groups == 1 && channels > 0 && weight.dims()[1] == channels;
    if !fits || !is_ours(images) || !is_ours(&weight) {
        return None;
    }
    Window::new([height, width], layer.kernel_size, layer.stride, padding, layer.dilation)
}
