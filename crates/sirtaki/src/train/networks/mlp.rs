//! Dense layers alone, for rows of numbers and for images of any size.

use burn::{
    module::Module,
    nn::{Linear, LinearConfig},
    tensor::{Device, Tensor, activation::relu},
};

use super::{Domain, ImageKind, Network, NetworkSize};
use crate::{Flow, Layer, Result, World};

/// Features of the two inner layers.
const WIDTHS: [usize; 2] = [256, 128];

/// Three dense layers.
pub(super) struct Mlp {
    kind: ImageKind,
}

#[derive(Module, Debug)]
pub(super) enum MlpLayer {
    /// Takes samples of any shape as rows.
    Rows(Linear),
    Dense(Linear),
    Scores(Linear),
}

impl Network for Mlp {
    const NAME: &'static str = "mlp";
    const ABOUT: &'static str = "three dense layers, for tables and images of any size";
    const TAKES: &'static [Domain] = &[Domain::Images, Domain::Tables];

    type Kind = ImageKind;
    type Layer = MlpLayer;

    fn new(kind: ImageKind, _: Option<NetworkSize>) -> Result<Self> {
        Ok(Self { kind })
    }

    fn kind(&self) -> &ImageKind {
        &self.kind
    }

    fn depth(&self) -> usize {
        3
    }

    fn layer(&self, number: usize, device: &Device, _: Option<&World>) -> Result<MlpLayer> {
        let dense = |from, to| LinearConfig::new(from, to).init(device);
        Ok(match number {
            0 => MlpLayer::Rows(dense(self.kind.shape.iter().product(), WIDTHS[0])),
            1 => MlpLayer::Dense(dense(WIDTHS[0], WIDTHS[1])),
            _ => MlpLayer::Scores(dense(WIDTHS[1], self.kind.classes)),
        })
    }
}

impl Layer for MlpLayer {
    fn forward(&self, mut flow: Flow) -> Result<Flow> {
        Ok(match self {
            MlpLayer::Rows(layer) => {
                let rows: Tensor<2> = flow.take::<Tensor<4>>()?.flatten(1, 3);
                Flow::new().with(relu(layer.forward(rows)))
            }
            MlpLayer::Dense(layer) => Flow::new().with(relu(layer.forward(flow.take::<Tensor<2>>()?))),
            MlpLayer::Scores(layer) => Flow::new().with(layer.forward(flow.take::<Tensor<2>>()?)),
        })
    }
}
