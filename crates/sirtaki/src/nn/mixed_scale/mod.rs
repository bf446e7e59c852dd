//! The mixed-scale dense network (Pelt and Sethian, 2018), for planes and volumes.
//!
//! Every layer sees the input and the maps of all layers before it, through a dilated convolution of three voxels along
//! each axis; dilations go from 1 to 10 and begin again. A convolution of one voxel over all maps gives a score for
//! each class. A map is as large as the input, so that one voxel of it is classified by what lies within the sum of
//! all dilations.
//!
//! With Burn's operations each layer would concatenate everything before it: in training, all those copies are kept,
//! and memory grows with the square of the depth, to 5,150 maps for 100 layers. On CPUs the whole network is therefore
//! one operation, `operation`: a single buffer of 101 maps, into which every layer writes behind those before it, and
//! one more for the gradients of a sample. `sweep` has its arithmetic: convolutions of so few channels are faster row by
//! row than as matrix products, which would unfold every map 27 times, and a voxel's sum has the same order wherever it
//! lies, so that tiles have the bits of the whole. Elsewhere, and in other precisions, Burn computes it layer by layer.

mod export;
mod operation;
mod sweep;

use burn::{
    module::{Module, Param},
    nn::Initializer,
    tensor::{Device, Tensor, activation::relu, module::conv3d, ops::ConvOptions},
};

use super::is_ours;
use sweep::Shape;

/// After so many layers dilations begin again.
const CYCLE: usize = 10;
/// Voxels of a kernel along an axis.
const EDGE: usize = 3;

/// What a mixed-scale dense network is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MixedScaleConfig {
    /// Axes of space: two, or three.
    pub axes: usize,
    /// Channels of the input.
    pub channels: usize,
    /// Classes, each with a score.
    pub classes: usize,
    /// Layers.
    pub depth: usize,
    /// Maps of each of them.
    pub width: usize,
}

impl MixedScaleConfig {
    /// A network with weights as its authors draw them: such that values neither grow nor vanish from layer to layer.
    /// Scores begin at zero.
    pub fn init(self, device: &Device) -> MixedScaleDense {
        let connections = self.taps() * (self.channels + self.width * self.depth.saturating_sub(1)) + self.classes;
        let weights = Initializer::Normal { mean: 0.0, std: (2.0 / connections as f64).sqrt() };
        let layer = |number: usize| {
            let [depth, height, width] = self.kernel();
            MixedScaleLayer {
                weight: weights.init([self.width, self.maps_before(number), depth, height, width], device),
                bias: Initializer::Zeros.init([self.width], device),
            }
        };
        let scores = MixedScaleLayer {
            weight: Initializer::Zeros.init([self.classes, self.maps_before(self.depth), 1, 1, 1], device),
            bias: Initializer::Zeros.init([self.classes], device),
        };
        MixedScaleDense { layers: (0..self.depth).map(layer).collect(), scores, config: self }
    }

    /// How far a voxel sees along each axis.
    pub fn reach(self) -> usize {
        (0..self.depth).map(dilation).sum()
    }

    /// The kernel of a layer; a plane is a volume of one voxel along the first axis.
    fn kernel(self) -> [usize; 3] {
        if self.axes == 2 { [1, EDGE, EDGE] } else { [EDGE; 3] }
    }

    /// Voxels of a kernel.
    fn taps(self) -> usize {
        self.kernel().iter().product()
    }

    /// Maps that a layer sees.
    fn maps_before(self, layer: usize) -> usize {
        self.channels + layer * self.width
    }
}

/// The distance between the voxels that a layer looks at.
fn dilation(layer: usize) -> usize {
    layer % CYCLE + 1
}

/// A mixed-scale dense network. [`MixedScaleConfig`] makes one.
#[derive(Module, Debug)]
pub struct MixedScaleDense {
    layers: Vec<MixedScaleLayer>,
    scores: MixedScaleLayer,
    #[module(skip)]
    config: MixedScaleConfig,
}

/// The weights of a layer.
#[derive(Module, Debug)]
pub struct MixedScaleLayer {
    /// By maps of the layer, maps before it, and voxels of the kernel.
    pub weight: Param<Tensor<5>>,
    /// By maps of the layer.
    pub bias: Param<Tensor<1>>,
}

impl MixedScaleDense {
    /// What it is like.
    pub fn config(&self) -> MixedScaleConfig {
        self.config
    }

    /// The scores of each class: from samples, channels and three axes of space, of which the first has one voxel for
    /// planes, to samples, classes and the same axes.
    pub fn forward(&self, volumes: Tensor<5>) -> Tensor<5> {
        let [_, channels, depth, height, width] = volumes.dims();
        let ours = is_ours(&volumes) && is_ours(&self.scores.weight.val());
        if !ours || channels != self.config.channels {
            return self.forward_by_burn(volumes);
        }
        let layers = || self.layers.iter().chain([&self.scores]);
        let weights = layers().map(|layer| layer.weight.val().flatten::<1>(0, 4)).collect();
        let biases = layers().map(|layer| layer.bias.val()).collect();
        let shape = Shape { config: self.config, sizes: [depth, height, width] };
        operation::forward(volumes, Tensor::cat(weights, 0), Tensor::cat(biases, 0), shape)
    }

    /// The same by Burn's operations.
    fn forward_by_burn(&self, volumes: Tensor<5>) -> Tensor<5> {
        let kernel = self.config.kernel();
        let see = |layer: &MixedScaleLayer, maps, kernel: [usize; 3], dilation| {
            let padding = kernel.map(|edge| edge / 2 * dilation);
            let options = ConvOptions::new([1; 3], padding, [dilation; 3], 1);
            conv3d(maps, layer.weight.val(), Some(layer.bias.val()), options)
        };
        let grow = |maps: Tensor<5>, (number, layer)| {
            let new = relu(see(layer, maps.clone(), kernel, dilation(number)));
            Tensor::cat(vec![maps, new], 1)
        };
        see(&self.scores, self.layers.iter().enumerate().fold(volumes, grow), [1; 3], 1)
    }
}
