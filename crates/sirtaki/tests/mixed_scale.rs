//! The mixed-scale dense network as one operation beside Burn's convolutions: the same scores, the same gradients; and its
//! ONNX file.
#![allow(clippy::unwrap_used, reason = "tests")]

use burn::{
    module::{Module, ModuleMapper, ModuleVisitor, Param},
    optim::GradientsParams,
    tensor::{Device, Distribution, Tensor, Tolerance, activation::relu, module::conv3d, ops::ConvOptions},
};
use sirtaki::nn::{MixedScaleConfig, MixedScaleDense};
use sirtaki_volume::{
    Extent,
    reach::{self, Layout, onnx::OnnxModel},
};

struct Random;

impl ModuleMapper for Random {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        let random = tensor.random_like(Distribution::Uniform(-0.4, 0.4)).detach().require_grad();
        Param::from_mapped_value(id, random, mapper)
    }
}

fn network(axes: usize, channels: usize, depth: usize, width: usize, device: &Device) -> MixedScaleDense {
    MixedScaleConfig { axes, channels, classes: 3, depth, width }.init(device).map(&mut Random)
}

fn random(shape: [usize; 5], device: &Device) -> Tensor<5> {
    Tensor::random(shape, Distribution::Uniform(-1.0, 1.0), device)
}

fn assert_near<const D: usize>(ours: Tensor<D>, theirs: Tensor<D>) {
    ours.into_data().assert_approx_eq::<f32>(&theirs.into_data(), Tolerance::absolute(5e-4));
}

/// Weights and biases of all layers, those of the scores last.
#[derive(Default)]
struct Weights {
    weights: Vec<Tensor<5>>,
    biases: Vec<Tensor<1>>,
}

impl ModuleVisitor for Weights {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let (tensor, dims) = (param.val(), param.dims());
        match dims.as_slice() {
            &[one, two, three, four, five] => self.weights.push(tensor.reshape([one, two, three, four, five])),
            dims => self.biases.push(tensor.reshape([dims[0]])),
        }
    }
}

/// The network by its definition, layer by layer.
fn by_burn(network: &MixedScaleDense, mut maps: Tensor<5>) -> Tensor<5> {
    let mut found = Weights::default();
    network.visit(&mut found);
    let last = found.weights.len() - 1;
    for (number, (weight, bias)) in found.weights.into_iter().zip(found.biases).enumerate() {
        let [_, _, kernel @ ..] = weight.dims();
        let dilation = number % 10 + 1;
        let options = ConvOptions::new([1; 3], kernel.map(|edge| edge / 2 * dilation), [dilation; 3], 1);
        let seen = conv3d(maps.clone(), weight, Some(bias), options);
        maps = if number == last { seen } else { Tensor::cat(vec![maps, relu(seen)], 1) };
    }
    maps
}

/// Compares the gradients of all parameters.
struct Compare(GradientsParams, GradientsParams, usize);

impl ModuleVisitor for Compare {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        assert_near(self.0.get::<D>(param.id).unwrap(), self.1.get::<D>(param.id).unwrap());
        self.2 += 1;
    }
}

#[test]
fn it_is_what_burn_computes_with_the_same_gradients() {
    let device = Device::flex().autodiff();
    // More layers than there are dilations, and volumes that are smaller than some of them.
    for (axes, channels, depth, width, sizes) in
        [(3, 1, 4, 1, [5, 6, 7]), (3, 2, 3, 2, [4, 2, 1]), (2, 1, 12, 1, [1, 13, 8]), (2, 3, 0, 1, [1, 4, 4])]
    {
        let network = network(axes, channels, depth, width, &device);
        let [planes, lines, columns] = sizes;
        let volumes = random([2, channels, planes, lines, columns], &device).require_grad();
        let (ours, theirs) = (network.forward(volumes.clone()), by_burn(&network, volumes.clone()));
        let scale = random(theirs.dims(), &device);
        let mut ours_back = (ours.clone() * scale.clone()).sum().backward();
        let mut theirs_back = (theirs.clone() * scale).sum().backward();
        assert_near(ours, theirs);
        assert_near(volumes.grad_remove(&mut ours_back).unwrap(), volumes.grad_remove(&mut theirs_back).unwrap());
        let [ours, theirs] = [ours_back, theirs_back].map(|gradients| GradientsParams::from_grads(gradients, &network));
        let mut compared = Compare(ours, theirs, 0);
        network.visit(&mut compared);
        assert_eq!(compared.2, 2 * (depth + 1));
    }
}

#[test]
fn its_size_is_that_of_its_authors() {
    // 100 layers of one map each, for volumes of one channel and two classes.
    let config = MixedScaleConfig { axes: 3, channels: 1, classes: 2, depth: 100, width: 1 };
    assert_eq!(config.reach(), 550);
    assert_eq!(config.init(&Device::flex()).num_params(), 27 * 5050 + 100 + 2 * 101 + 2);
}

#[test]
fn its_onnx_file_sees_as_far_as_it_does() {
    for axes in [2, 3] {
        let network = network(axes, 2, 12, 1, &Device::flex().autodiff());
        let model = OnnxModel::parse(&network.to_onnx(&[(0.5, 2.0), (0.0, 1.0)])).unwrap();
        let layout = Layout::channels_first(2, &Extent::new(vec![300; axes]).unwrap());
        let reach = reach::of_onnx(&model, &layout).unwrap();
        assert_eq!((reach.channels, reach.output), (3, vec![300; axes]));
        for halo in reach.halos {
            assert_eq!((halo.before, halo.after), (58, 58));
        }
    }
}
