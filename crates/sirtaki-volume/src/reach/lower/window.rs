//! Convolutions and pooling: what moves a window over its input.

use super::{
    super::{
        along::{Along, Centres, Sampling, Window},
        onnx::OnnxNode,
    },
    Lowered, Lowering, Spread, Value, field, ratio, refuse, weights,
};
use crate::VolumeError;

/// Settings of a window along one axis, from all that ONNX allows to say.
struct Settings {
    windows: Vec<Window>,
    /// `SAME_UPPER` and the like.
    automatic: String,
}

fn settings(node: &OnnxNode, kernel: &[u64]) -> Lowered<Settings> {
    let count = kernel.len();
    let list = |name: &str, length: usize, default: i64| -> Lowered<Vec<i64>> {
        match node.ints(name) {
            None => Ok(vec![default; length]),
            Some(values) if values.len() == length => Ok(values.to_vec()),
            Some(values) => Err(wrong(node, &format!("`{name}` is {values:?} for {count} axes"))),
        }
    };
    let (dilations, strides, pads) =
        (list("dilations", count, 1)?, list("strides", count, 1)?, list("pads", 2 * count, 0)?);
    let window = |axis: usize| {
        let positive = |value: i64, name: &str| {
            let value = u64::try_from(value).ok().filter(|value| *value > 0);
            value.ok_or_else(|| wrong(node, &format!("`{name}` must be positive")))
        };
        Ok(Window {
            kernel: kernel[axis],
            dilation: positive(dilations[axis], "dilations")?,
            stride: positive(strides[axis], "strides")?,
            before: pads[axis],
            after: pads[count + axis],
        })
    };
    let windows: Lowered<Vec<Window>> = (0..count).map(window).collect();
    Ok(Settings { windows: windows?, automatic: node.text("auto_pad").unwrap_or("NOTSET").to_owned() })
}

fn wrong(node: &OnnxNode, problem: &str) -> VolumeError {
    VolumeError::Invalid(format!("{}: {problem}", refuse::said(node)))
}

/// The axes of space of an input whose first two axes are batch and channels.
fn axes(node: &OnnxNode, field: &Spread) -> Lowered<Vec<usize>> {
    let (first, rest) = field.space.split_at(field.space.len().min(2));
    let axes: Option<Vec<usize>> = rest.iter().copied().collect();
    match axes {
        Some(axes) if first == [None, None] && !axes.is_empty() => Ok(axes),
        _ => Err(wrong(node, "its input does not have batch, channels and the axes of space in this order")),
    }
}

/// How padding of a whole is divided between the two ends.
fn divide(total: i128, automatic: &str) -> (i64, i64) {
    let total = i64::try_from(total.max(0)).unwrap_or(i64::MAX / 4);
    let (less, more) = (total / 2, total - total / 2);
    if automatic == "SAME_LOWER" { (more, less) } else { (less, more) }
}

impl Window {
    /// With the padding that makes the output as large as the input over the stride.
    fn automatic(self, mode: &str, size: u64) -> Self {
        match mode {
            "SAME_UPPER" | "SAME_LOWER" => {
                let steps = i128::from(size.div_ceil(self.stride)) - 1;
                let reach = i128::from(self.dilation) * i128::from(self.kernel.saturating_sub(1)) + 1;
                let total = steps * i128::from(self.stride) + reach - i128::from(size);
                let (before, after) = divide(total, mode);
                Self { before, after, ..self }
            }
            "VALID" => Self { before: 0, after: 0, ..self },
            _ => self,
        }
    }
}

impl Lowering<'_> {
    /// A convolution or pooling.
    pub(super) fn window(&mut self, node: &OnnxNode, inputs: &[Option<Value>]) -> Lowered<Vec<Value>> {
        let from = field(node, inputs)?;
        let axes = axes(node, from)?;
        let weights = match node.operator.as_str() {
            "Conv" | "ConvInteger" => Some(weights(node, inputs, 1)?),
            "QLinearConv" => Some(weights(node, inputs, 3)?),
            _ => None,
        };
        let kernel = kernel(node, weights, axes.len())?;
        let Settings { windows, automatic } = settings(node, &kernel)?;
        let ceil = node.int("ceil_mode").unwrap_or(0) != 0;
        let mut along = self.unchanged();
        for (axis, (space, window)) in axes.iter().zip(windows).enumerate() {
            let window = window.automatic(&automatic, from.shape[axis + 2]);
            along[*space] = Along::Window { window, ceil };
        }
        let mut shape = from.shape.clone();
        if let Some(weights) = weights {
            shape[1] = weights[0];
        }
        self.step(node, from, &along, shape)
    }

    /// A transposed convolution.
    pub(super) fn transposed(&mut self, node: &OnnxNode, inputs: &[Option<Value>]) -> Lowered<Vec<Value>> {
        let from = field(node, inputs)?;
        let axes = axes(node, from)?;
        let weights = weights(node, inputs, 1)?;
        let kernel = kernel(node, Some(weights), axes.len())?;
        let Settings { windows, automatic } = settings(node, &kernel)?;
        let extra = node.ints("output_padding").map_or_else(|| vec![0; axes.len()], <[i64]>::to_vec);
        let mut along = self.unchanged();
        for (axis, (space, mut window)) in axes.iter().zip(windows).enumerate() {
            let extra = extra.get(axis).and_then(|extra| u64::try_from(*extra).ok());
            let extra = extra.ok_or_else(|| wrong(node, "`output_padding` is wrong"))?;
            let size = from.shape[axis + 2];
            let reach = i128::from(window.dilation) * i128::from(window.kernel - 1) + 1;
            let full = i128::from(size - 1) * i128::from(window.stride) + reach + i128::from(extra);
            let target = match node.ints("output_shape") {
                Some(shape) => {
                    let at = shape.len().checked_sub(axes.len() - axis).and_then(|at| shape.get(at));
                    Some(i128::from(*at.ok_or_else(|| wrong(node, "`output_shape` is wrong"))?))
                }
                None if automatic.starts_with("SAME") => Some(i128::from(size) * i128::from(window.stride)),
                None => None,
            };
            if let Some(target) = target {
                // Of padding that is cut off, the larger half is at the start unless the mode is SAME_UPPER.
                let (less, more) = divide(full - target, "");
                (window.before, window.after) = if automatic == "SAME_UPPER" { (less, more) } else { (more, less) };
            }
            along[*space] = Along::Transposed { window, extra };
        }
        let mut shape = from.shape.clone();
        let groups = u64::try_from(node.int("group").unwrap_or(1)).unwrap_or(1);
        shape[1] = weights[1].checked_mul(groups).ok_or_else(|| wrong(node, "it has too many channels"))?;
        self.step(node, from, &along, shape)
    }

    /// Blocks of space turned into channels, or back.
    pub(super) fn blocks(&mut self, node: &OnnxNode, inputs: &[Option<Value>]) -> Lowered<Vec<Value>> {
        let from = field(node, inputs)?;
        let axes = axes(node, from)?;
        let block =
            node.int("blocksize").and_then(|block| u64::try_from(block).ok()).filter(|block| (1..=64).contains(block));
        let block = block.ok_or_else(|| wrong(node, "`blocksize` is missing or too large"))?;
        let (mut along, mut shape) = (self.unchanged(), from.shape.clone());
        for space in axes {
            if node.operator == "SpaceToDepth" {
                let window = Window { kernel: block, dilation: 1, stride: block, before: 0, after: 0 };
                along[space] = Along::Window { window, ceil: false };
                shape[1] = shape[1].saturating_mul(block);
            } else {
                let (by, centres) = (ratio(node, block, 1)?, Centres::Asymmetric);
                along[space] = Along::Resample { by, centres, sampling: Sampling::Floor };
                shape[1] = (shape[1] / block).max(1);
            }
        }
        self.step(node, from, &along, shape)
    }
}

/// The size of a window along each axis.
fn kernel(node: &OnnxNode, weights: Option<&[u64]>, axes: usize) -> Lowered<Vec<u64>> {
    let kernel: Vec<u64> = match (node.ints("kernel_shape"), weights) {
        (_, Some(weights)) if weights.len() != axes + 2 => {
            return Err(wrong(node, &format!("its weights have {} axes, not {}", weights.len(), axes + 2)));
        }
        (Some(kernel), _) => kernel.iter().map(|size| u64::try_from(*size).unwrap_or(0)).collect(),
        (None, Some(weights)) => weights[2..].to_vec(),
        (None, None) => return Err(wrong(node, "it has no `kernel_shape`")),
    };
    match kernel.len() == axes && !kernel.contains(&0) {
        true => Ok(kernel),
        false => Err(wrong(node, &format!("its window is {kernel:?} for {axes} axes"))),
    }
}
