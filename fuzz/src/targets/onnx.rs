//! Any bytes are a network or none; how far one looks is found, or refused, without arithmetic that overflows.

use sirtaki_volume::reach::{Layout, of_onnx, onnx::OnnxModel};

pub(crate) fn check(bytes: &[u8]) {
    let Ok(model) = OnnxModel::parse(bytes) else { return };
    for shape in [vec![1, 1, 16, 16], vec![1, 1, 12, 12, 12]] {
        let spatial = (2..shape.len()).collect();
        if let Ok(reach) = of_onnx(&model, &Layout { shape, spatial }) {
            for (halo, size) in reach.halos.iter().zip(&reach.output) {
                let read = halo.read(0..*size, 16);
                assert!(read.start < read.end && read.end <= 16);
            }
        }
    }
}
