//! The mixed-scale dense network, which classifies every voxel.
//!
//! It is one layer of a chain: it has so few weights that there is nothing to gain from dividing them among workers, and every
//! part of it needs all maps before it.

use burn::{
    module::Module,
    tensor::{Device, Tensor},
};

use super::{Network, NetworkSize, VolumeKind};
use crate::{
    Chain, Error, Flow, Layer, Result, World,
    nn::{MixedScaleConfig, MixedScaleDense},
    train::Method,
};

/// Convolutions with growing dilations, each over everything before it.
pub(super) struct Msd {
    kind: VolumeKind,
    size: NetworkSize,
}

#[derive(Module, Debug)]
pub(super) struct MsdLayer {
    network: MixedScaleDense,
}

impl Network for Msd {
    const NAME: &'static str = "msd";
    const ABOUT: &'static str = "mixed-scale dense: dilated convolutions, each over the maps of all before it";
    const METHOD: Method = Method::Adam;
    const TARGET: f64 = 0.95;
    const SIZE: Option<NetworkSize> = Some(NetworkSize { depth: 100, width: 1 });
    const EXPORTS: bool = true;

    type Kind = VolumeKind;
    type Layer = MsdLayer;

    fn new(kind: VolumeKind, size: Option<NetworkSize>) -> Result<Self> {
        match size.or(Self::SIZE) {
            Some(size) if size.width > 0 => Ok(Self { kind, size }),
            _ => Err(Error::setting("layers without maps compute nothing", "take a --width of at least 1")),
        }
    }

    fn kind(&self) -> &VolumeKind {
        &self.kind
    }

    fn depth(&self) -> usize {
        1
    }

    fn layer(&self, _: usize, device: &Device, _: Option<&World>) -> Result<MsdLayer> {
        let VolumeKind { axes, channels, classes, .. } = self.kind;
        let NetworkSize { depth, width } = self.size;
        Ok(MsdLayer { network: MixedScaleConfig { axes, channels, classes, depth, width }.init(device) })
    }

    fn export(&self, network: &Chain<MsdLayer>) -> Option<Vec<u8>> {
        let (_, layer) = network.layers().next()?;
        Some(layer.network.to_onnx(&self.kind.scaling))
    }
}

impl Layer for MsdLayer {
    /// The scores of each voxel are a row.
    fn forward(&self, mut flow: Flow) -> Result<Flow> {
        let scores: Tensor<3> = self.network.forward(flow.take()?).flatten(2, 4);
        let rows: Tensor<2> = scores.swap_dims(1, 2).flatten(0, 1);
        Ok(Flow::new().with(rows))
    }
}
