//! LeCun's LeNet-5, with rectifiers.

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
    Flow, Layer, Result, World,
    nn::{convolve, max_pool},
};

/// Two 5×5 convolutions with 6 and 16 channels, each followed by pooling, and three dense layers.
pub(super) struct LeNet {
    kind: ImageKind,
    /// Values of an image after the convolutions.
    features: usize,
}

#[derive(Module, Debug)]
pub(super) enum LeNetLayer {
    Convolution(Conv2d),
    /// Takes images as rows.
    Rows(Linear),
    Dense(Linear),
    Scores(Linear),
}

impl Network for LeNet {
    const NAME: &'static str = "lenet";
    const ABOUT: &'static str = "two 5×5 convolutions and three dense layers, after LeNet-5";

    type Kind = ImageKind;
    type Layer = LeNetLayer;

    fn new(kind: ImageKind, _: Option<NetworkSize>) -> Result<Self> {
        let [_, height, width] = kind.shape;
        let left = |size: usize| Some((size.checked_sub(4)? / 2).checked_sub(4)? / 2).filter(|&left| left > 0);
        let features = left(height).zip(left(width)).map(|(height, width)| 16 * height * width);
        Ok(Self { kind, features: features.ok_or_else(|| too_small(kind, 16))? })
    }

    fn kind(&self) -> &ImageKind {
        &self.kind
    }

    fn depth(&self) -> usize {
        5
    }

    fn layer(&self, number: usize, device: &Device, _: Option<&World>) -> Result<LeNetLayer> {
        let convolution = |from, to| LeNetLayer::Convolution(Conv2dConfig::new([from, to], [5, 5]).init(device));
        let dense = |from, to| LinearConfig::new(from, to).init(device);
        Ok(match number {
            0 => convolution(self.kind.shape[0], 6),
            1 => convolution(6, 16),
            2 => LeNetLayer::Rows(dense(self.features, 120)),
            3 => LeNetLayer::Dense(dense(120, 84)),
            _ => LeNetLayer::Scores(dense(84, self.kind.classes)),
        })
    }
}

impl Layer for LeNetLayer {
    fn forward(&self, mut flow: Flow) -> Result<Flow> {
        Ok(match self {
            LeNetLayer::Convolution(layer) => Flow::new().with(max_pool(relu(convolve(layer, flow.take()?)), 2)),
            LeNetLayer::Rows(layer) => {
                let rows: Tensor<2> = flow.take::<Tensor<4>>()?.flatten(1, 3);
                Flow::new().with(relu(layer.forward(rows)))
            }
            LeNetLayer::Dense(layer) => Flow::new().with(relu(layer.forward(flow.take::<Tensor<2>>()?))),
            LeNetLayer::Scores(layer) => Flow::new().with(layer.forward(flow.take::<Tensor<2>>()?)),
        })
    }
}
