//! Residual networks after He, Zhang, Ren and Sun: ResNet-18 and ResNet-50.
//!
//! Every block is a layer of its own, so that the network can be cut between blocks. Images of fewer than 64 pixels get
//! the first layer that is usual for CIFAR, which does not make them smaller.
//!
//! Batch norm takes its statistics from the samples that a worker passes at a time: its share of a batch, or a shard of it
//! in steps over shards, whose running statistics are averaged along one tree. The latter do not depend on the number of
//! workers, so bits do not either.

use burn::{
    module::{Module, ParamId, RunningState},
    nn::{
        BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d,
        conv::{Conv2d, Conv2dConfig},
        pool::{MaxPool2d, MaxPool2dConfig},
    },
    tensor::{Device, Tensor, activation::relu},
};

use super::{ImageKind, Network, NetworkSize};
use crate::{Flow, Layer, Result, World, nn::convolve};

/// Blocks of the four groups; each group has twice the channels of the one before it, and half its height and width.
const BLOCKS_18: [usize; 4] = [2, 2, 2, 2];
const BLOCKS_50: [usize; 4] = [3, 4, 6, 3];
/// Channels of the first group.
const CHANNELS: usize = 64;
/// Images of fewer pixels than this are not made smaller before the first block.
const SMALL: usize = 64;

/// Eighteen layers with weights, in blocks of two.
pub(super) struct ResNet18(ImageKind);

/// Fifty layers with weights, in blocks of three.
pub(super) struct ResNet50(ImageKind);

/// A network's layer; those of both networks are of the same kinds.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "there are a few layers")]
pub(super) enum ResNetLayer {
    First(First),
    Block(ResidualBlock),
    Scores(Linear),
}

/// A convolution and its batch norm.
#[derive(Module, Debug)]
pub(super) struct Normed {
    convolution: Conv2d,
    norm: BatchNorm,
}

#[derive(Module, Debug)]
pub(super) struct First {
    layer: Normed,
    pool: Option<MaxPool2d>,
}

/// Convolutions whose result is added to what went in.
#[derive(Module, Debug)]
pub(super) struct ResidualBlock {
    layers: Vec<Normed>,
    /// What goes in, in the shape that comes out.
    shortcut: Option<Normed>,
}

/// Makes the convolutions of a layer, whose statistics get identities that follow from the layer's number, as those of
/// other tensors do: equal runs write equal files.
struct Maker<'a> {
    device: &'a Device,
    /// The identity of the next statistic. Those of parameters are smaller.
    next: u64,
}

impl<'a> Maker<'a> {
    fn new(number: usize, device: &'a Device) -> Self {
        Self { device, next: (number as u64) << 32 | 1 << 31 }
    }

    fn normed(&mut self, [from, to]: [usize; 2], side: usize, stride: usize) -> Normed {
        let around = side / 2;
        let convolution = Conv2dConfig::new([from, to], [side, side])
            .with_stride([stride, stride])
            .with_padding(PaddingConfig2d::Explicit(around, around, around, around))
            .with_bias(false)
            .init(self.device);
        let norm = BatchNormConfig::new(to).init(self.device);
        let (running_mean, running_var) = (self.numbered(&norm.running_mean), self.numbered(&norm.running_var));
        Normed { convolution, norm: BatchNorm { running_mean, running_var, ..norm } }
    }

    fn numbered(&mut self, state: &RunningState<Tensor<1>>) -> RunningState<Tensor<1>> {
        self.next += 1;
        RunningState::with_id(ParamId::from(self.next), state.value())
    }

    /// The layers of a network with these blocks, which are wider outside than inside by a factor.
    fn layer(mut self, kind: &ImageKind, number: usize, blocks: [usize; 4], wider: usize) -> ResNetLayer {
        let [channels, height, width] = kind.shape;
        if number == 0 {
            let (side, stride, pool) = match height.min(width) < SMALL {
                true => (3, 1, None),
                false => {
                    let pool = MaxPool2dConfig::new([3, 3]).with_strides([2, 2]);
                    (7, 2, Some(pool.with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1)).init()))
                }
            };
            return ResNetLayer::First(First { layer: self.normed([channels, CHANNELS], side, stride), pool });
        }
        let mut first = 1;
        for (group, count) in blocks.into_iter().enumerate() {
            if number < first + count {
                let is_first = number == first;
                let inner = CHANNELS << group;
                let before = match (group, is_first) {
                    (0, true) => CHANNELS,
                    (_, true) => wider * inner / 2,
                    (_, false) => wider * inner,
                };
                let stride = if is_first && group > 0 { 2 } else { 1 };
                return ResNetLayer::Block(self.block(before, inner, wider, stride));
            }
            first += count;
        }
        ResNetLayer::Scores(LinearConfig::new(wider * (CHANNELS << 3), kind.classes).init(self.device))
    }

    fn block(&mut self, before: usize, inner: usize, wider: usize, stride: usize) -> ResidualBlock {
        let layers = match wider {
            1 => vec![self.normed([before, inner], 3, stride), self.normed([inner, inner], 3, 1)],
            _ => vec![
                self.normed([before, inner], 1, 1),
                self.normed([inner, inner], 3, stride),
                self.normed([inner, wider * inner], 1, 1),
            ],
        };
        let is_same = before == wider * inner && stride == 1;
        let shortcut = (!is_same).then(|| self.normed([before, wider * inner], 1, stride));
        ResidualBlock { layers, shortcut }
    }
}

impl Normed {
    fn forward(&self, images: Tensor<4>) -> Tensor<4> {
        self.norm.forward(convolve(&self.convolution, images))
    }
}

impl Layer for ResNetLayer {
    fn forward(&self, mut flow: Flow) -> Result<Flow> {
        Ok(match self {
            ResNetLayer::First(First { layer, pool }) => {
                let images = relu(layer.forward(flow.take()?));
                Flow::new().with(match pool {
                    Some(pool) => pool.forward(images),
                    None => images,
                })
            }
            ResNetLayer::Block(ResidualBlock { layers, shortcut }) => {
                let images: Tensor<4> = flow.take()?;
                let before = match shortcut {
                    Some(shortcut) => shortcut.forward(images.clone()),
                    None => images.clone(),
                };
                let mut after = images;
                for (place, layer) in layers.iter().enumerate() {
                    after = layer.forward(after);
                    if place + 1 < layers.len() {
                        after = relu(after);
                    }
                }
                Flow::new().with(relu(after + before))
            }
            ResNetLayer::Scores(layer) => {
                let pixels: Tensor<3> = flow.take::<Tensor<4>>()?.flatten(2, 3);
                let means: Tensor<2> = pixels.mean_dim(2).flatten(1, 2);
                Flow::new().with(layer.forward(means))
            }
        })
    }
}

/// Both networks differ in their blocks only.
macro_rules! resnet {
    ($network:ident, $name:literal, $about:literal, $blocks:ident, $wider:literal) => {
        impl Network for $network {
            const NAME: &'static str = $name;
            const ABOUT: &'static str = $about;
            const HAS_STATISTICS: bool = true;
            const USUAL: ImageKind = ImageKind { shape: [3, 224, 224], classes: 1000 };

            type Kind = ImageKind;
            type Layer = ResNetLayer;

            fn new(kind: ImageKind, _: Option<NetworkSize>) -> Result<Self> {
                Ok(Self(kind))
            }

            fn kind(&self) -> &ImageKind {
                &self.0
            }

            fn depth(&self) -> usize {
                $blocks.iter().sum::<usize>() + 2
            }

            fn layer(&self, number: usize, device: &Device, _: Option<&World>) -> Result<ResNetLayer> {
                Ok(Maker::new(number, device).layer(&self.0, number, $blocks, $wider))
            }
        }
    };
}

resnet!(ResNet18, "resnet18", "a residual network with 18 layers and batch norm", BLOCKS_18, 1);
resnet!(ResNet50, "resnet50", "a residual network with 50 layers and batch norm", BLOCKS_50, 4);
