//! What cannot be followed, or can but cannot be exact, in words: which operator, why, and the ways out.

use super::super::onnx::OnnxNode;
use crate::VolumeError;

/// How messages name an operator.
pub(super) fn said(node: &OnnxNode) -> String {
    format!("`{}` ({})", node.name, node.operator)
}

fn inexact(node: &OnnxNode, why: &str, hint: &str) -> VolumeError {
    let problem = format!("{} {why}: no tile of this network equals the whole", said(node));
    VolumeError::Inexact { problem, hint: hint.to_owned() }
}

const APPROXIMATE: &str = "accept an approximation: --blend, or --inexact";

/// For statistics over a whole sample.
pub(super) fn statistics(node: &OnnxNode) -> VolumeError {
    inexact(
        node,
        "normalises with statistics of everything it is given",
        "compute the statistics over the whole volume in passes of their own (exact), train with batch norm, or accept \
         an approximation: --blend, or --inexact",
    )
}

/// For an operator that mixes all places.
pub(super) fn everything(node: &OnnxNode) -> VolumeError {
    inexact(node, "looks at the whole volume at once", APPROXIMATE)
}

/// For positions that depend on the size of the whole.
pub(super) fn corners(node: &OnnxNode, mode: &str) -> VolumeError {
    inexact(
        node,
        &format!("interpolates with `{mode}`, where every position depends on the size of the whole"),
        "export the network with align_corners=False if it was trained so, or accept an approximation: --blend, or --inexact",
    )
}

/// For numbers along an axis of space that are part of the network.
pub(super) fn positional(node: &OnnxNode) -> VolumeError {
    inexact(node, "combines its input with a constant that differs from place to place", APPROXIMATE)
}

/// For what is only known while the network runs.
pub(super) fn dynamic(node: &OnnxNode, number: usize) -> VolumeError {
    inexact(
        node,
        &format!("takes input {number} from a computation that cannot be followed"),
        "export the network with constant weights, sizes and scales; or give the halo by hand: --halo",
    )
}

/// For what is not known here at all.
pub(super) fn unknown(node: &OnnxNode) -> VolumeError {
    let problem = format!("how far {} looks is not known", said(node));
    VolumeError::Inexact {
        problem,
        hint: "give the halo by hand (--halo), which a probe checks; or accept an approximation: --blend".to_owned(),
    }
}

/// For all operators that nobody else deals with.
pub(super) fn by_operator(node: &OnnxNode) -> VolumeError {
    match node.operator.as_str() {
        "InstanceNormalization"
        | "GroupNormalization"
        | "BatchNormalization"
        | "MeanVarianceNormalization"
        | "DynamicQuantizeLinear" => statistics(node),
        "GlobalAveragePool" | "GlobalMaxPool" | "GlobalLpPool" | "Gemm" | "Attention" | "MultiHeadAttention"
        | "Einsum" | "MaxUnpool" | "GridSample" | "NonZero" | "TopK" | "DFT" | "STFT" | "LSTM" | "GRU" | "RNN"
        | "CumSum" | "RoiAlign" | "NonMaxSuppression" => everything(node),
        _ => unknown(node),
    }
}
