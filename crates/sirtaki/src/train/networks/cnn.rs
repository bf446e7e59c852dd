//! The convolutional network of many tutorials.

use burn::{
    module::Module,
    nn::{
        Linear, LinearConfig,
        conv::{Conv2d, Conv2dConfig},
    },
    tensor::{Device, Tensor, activation::relu},
};

use super::{ImageKind, Network, NetworkSize, too_small};
use crate::{
    Flow, Layer, Result, ShardDropout, World,
    nn::{convolve, max_pool},
};

/// Two 3×3 convolutions with 32 and 64 channels, pooling, dropout, and two dense layers.
pub(super) struct Cnn {
    kind: ImageKind,
    /// Values of an image after the convolutions.
    features: usize,
}

#[derive(Module, Debug)]
pub(super) enum CnnLayer {
    Convolution(Conv2d),
    Pool(ShardDropout),
    Dense(Linear),
    Dropout(ShardDropout),
    Scores(Linear),
}

impl Network for Cnn {
    const NAME: &'static str = "cnn";
    const ABOUT: &'static str = "two 3×3 convolutions with 32 and 64 channels, dropout, and two dense layers";

    type Kind = ImageKind;
    type Layer = CnnLayer;

    fn new(kind: ImageKind, _: Option<NetworkSize>) -> Result<Self> {
        let [_, height, width] = kind.shape;
        let left = |size: usize| size.checked_sub(4).map(|left| left / 2).filter(|&left| left > 0);
        let features = left(height).zip(left(width)).map(|(height, width)| 64 * height * width);
        Ok(Self { kind, features: features.ok_or_else(|| too_small(kind, 6))? })
    }

    fn kind(&self) -> &ImageKind {
        &self.kind
    }

    fn depth(&self) -> usize {
        6
    }

    fn layer(&self, number: usize, device: &Device, _: Option<&World>) -> Result<CnnLayer> {
        let convolution = |from, to| CnnLayer::Convolution(Conv2dConfig::new([from, to], [3, 3]).init(device));
        let dense = |from, to| LinearConfig::new(from, to).init(device);
        Ok(match number {
            0 => convolution(self.kind.shape[0], 32),
            1 => convolution(32, 64),
            2 => CnnLayer::Pool(ShardDropout::new("after pooling", 0.25)?),
            3 => CnnLayer::Dense(dense(self.features, 128)),
            4 => CnnLayer::Dropout(ShardDropout::new("after dense", 0.5)?),
            _ => CnnLayer::Scores(dense(128, self.kind.classes)),
        })
    }
}

impl Layer for CnnLayer {
    fn forward(&self, mut flow: Flow) -> Result<Flow> {
        Ok(match self {
            CnnLayer::Convolution(layer) => Flow::new().with(relu(convolve(layer, flow.take()?))),
            CnnLayer::Pool(dropout) => {
                let rows: Tensor<2> = dropout.forward(max_pool(flow.take()?, 2)).flatten(1, 3);
                Flow::new().with(rows)
            }
            CnnLayer::Dense(layer) => Flow::new().with(relu(layer.forward(flow.take::<Tensor<2>>()?))),
            CnnLayer::Dropout(dropout) => Flow::new().with(dropout.forward(flow.take::<Tensor<2>>()?)),
            CnnLayer::Scores(layer) => Flow::new().with(layer.forward(flow.take::<Tensor<2>>()?)),
        })
    }
}
