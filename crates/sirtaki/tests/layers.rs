//! Our convolution and pooling beside Burn's: the same results and the same gradients.
#![allow(clippy::unwrap_used, reason = "tests")]

use burn::{
    nn::{
        PaddingConfig2d,
        conv::{Conv2d, Conv2dConfig},
    },
    tensor::{Device, Distribution, Tensor, Tolerance, module::max_pool2d, ops::MaxPoolOptions},
};
use sirtaki::nn::{convolve, max_pool};

fn images(shape: [usize; 4]) -> Tensor<4> {
    Tensor::random(shape, Distribution::Uniform(-1.0, 1.0), &device()).require_grad()
}

fn device() -> Device {
    Device::flex().autodiff()
}

fn assert_near<const D: usize>(ours: Tensor<D>, theirs: Tensor<D>) {
    ours.into_data().assert_approx_eq::<f32>(&theirs.into_data(), Tolerance::absolute(2e-4));
}

/// Result and gradients of images, weights and bias; every value of the result counts differently.
fn compare(layer: &Conv2d, images: Tensor<4>) {
    let (ours, theirs) = (convolve(layer, images.clone()), layer.forward(images.clone()));
    let scale = Tensor::random(theirs.shape(), Distribution::Uniform(-1.0, 1.0), &device());
    let mut ours_back = (ours.clone() * scale.clone()).sum().backward();
    let mut theirs_back = (theirs.clone() * scale).sum().backward();
    assert_near(ours, theirs);
    assert_near(images.grad_remove(&mut ours_back).unwrap(), images.grad_remove(&mut theirs_back).unwrap());
    let weight = layer.weight.val();
    assert_near(weight.grad_remove(&mut ours_back).unwrap(), weight.grad_remove(&mut theirs_back).unwrap());
    if let Some(bias) = layer.bias.as_ref().map(|bias| bias.val()) {
        assert_near(bias.grad_remove(&mut ours_back).unwrap(), bias.grad_remove(&mut theirs_back).unwrap());
    }
}

#[test]
fn convolution_is_burns() {
    let config = |from, to, kernel| Conv2dConfig::new([from, to], kernel);
    let padding = |rows, columns| PaddingConfig2d::Explicit(rows, columns, rows, columns);
    let cases = [
        (config(1, 6, [5, 5]), [3, 1, 12, 12]),
        (config(6, 16, [5, 5]), [2, 6, 12, 9]),
        (config(20, 24, [3, 3]), [2, 20, 7, 8]),
        (config(3, 4, [3, 3]).with_bias(false), [2, 3, 6, 6]),
        (config(3, 4, [3, 2]).with_padding(padding(1, 2)), [2, 3, 6, 7]),
        (config(2, 3, [3, 3]).with_stride([2, 3]).with_padding(padding(2, 1)), [2, 2, 9, 10]),
        (config(2, 3, [3, 2]).with_stride([1, 2]).with_dilation([2, 3]).with_padding(padding(3, 2)), [2, 2, 8, 9]),
        (config(4, 5, [1, 1]), [2, 4, 3, 3]),
        (config(4, 6, [3, 3]).with_groups(2), [2, 4, 5, 5]),
        (config(2, 2, [2, 2]).with_padding(PaddingConfig2d::Same), [2, 2, 5, 5]),
    ];
    for (config, shape) in cases {
        compare(&config.init(&device()), images(shape));
    }
}

#[test]
fn images_that_need_no_gradient_get_none() {
    let layer = Conv2dConfig::new([1, 2], [3, 3]).init(&device());
    let images = Tensor::<4>::ones([1, 1, 4, 4], &device());
    let gradients = convolve(&layer, images.clone()).sum().backward();
    assert!(images.grad(&gradients).is_none());
    assert!(layer.weight.val().grad(&gradients).is_some());
}

#[test]
fn images_in_any_layout_are_convolved() {
    let layer = Conv2dConfig::new([3, 4], [2, 2]).init(&device());
    compare(&layer, images([5, 3, 4, 6]).swap_dims(2, 3).detach().require_grad());
    compare(&layer, images([5, 3, 7, 6]).slice([1..3, 0..3, 2..6]).detach().require_grad());
}

#[test]
fn pooling_is_burns() {
    for (shape, side) in [([2, 3, 6, 8], 2), ([2, 3, 7, 9], 2), ([1, 2, 9, 10], 3), ([1, 1, 4, 4], 1)] {
        // Many equal values: the first of them gets the gradient.
        let images = images(shape).mul_scalar(2.0).round().detach().require_grad();
        let ours = max_pool(images.clone(), side);
        let theirs = max_pool2d(images.clone(), MaxPoolOptions::new([side, side]).with_stride([side, side]));
        let scale = Tensor::random(theirs.shape(), Distribution::Uniform(-1.0, 1.0), &device());
        let mut ours_back = (ours.clone() * scale.clone()).sum().backward();
        let mut theirs_back = (theirs.clone() * scale).sum().backward();
        assert_near(ours, theirs);
        assert_near(images.grad_remove(&mut ours_back).unwrap(), images.grad_remove(&mut theirs_back).unwrap());
    }
}

#[test]
fn nan_stays_visible() {
    let images = Tensor::<4>::from_floats([[[[1.0, f32::NAN], [2.0, 3.0]]]], &device());
    assert!(max_pool(images, 2).into_scalar::<f32>().is_nan());
}
