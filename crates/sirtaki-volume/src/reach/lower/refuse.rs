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

const RETRAIN: &str = "use a network that looks at a neighbourhood of each voxel, a volume that fits into memory, or windows \
                       that are blended: --blend";

/// For statistics over a whole sample.
pub(super) fn statistics(node: &OnnxNode) -> VolumeError {
    let hint = match node.normalises_samples() {
        true => {
            "gather its statistics over the whole volume first (--global-statistics), or accept an approximation: windows that \
             are blended (--blend), or the statistics of each tile (--inexact)"
        }
        false => RETRAIN,
    };
    inexact(node, "normalises with statistics of everything it is given", hint)
}

/// For an operator that mixes all places.
pub(super) fn everything(node: &OnnxNode) -> VolumeError {
    inexact(node, "looks at the whole volume at once", RETRAIN)
}

/// For positions that depend on the size of the whole.
pub(super) fn corners(node: &OnnxNode, mode: &str) -> VolumeError {
    inexact(
        node,
        &format!("interpolates with `{mode}`, where every position depends on the size of the whole"),
        "train and export the network with align_corners=False, or accept that windows are blended (--blend)",
    )
}

/// For numbers along an axis of space that are part of the network.
pub(super) fn positional(node: &OnnxNode) -> VolumeError {
    inexact(node, "combines its input with a constant that differs from place to place", RETRAIN)
}

/// For what is only known while the network runs.
pub(super) fn dynamic(node: &OnnxNode, number: usize) -> VolumeError {
    inexact(
        node,
        &format!("takes input {number} from a computation that cannot be followed"),
        "export the network with constant weights, sizes and scales",
    )
}

/// For what is not known here at all.
pub(super) fn unknown(node: &OnnxNode) -> VolumeError {
    let problem = format!("how far {} looks is not known", said(node));
    VolumeError::Inexact { problem, hint: "export the network with operators of ONNX's own".to_owned() }
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
