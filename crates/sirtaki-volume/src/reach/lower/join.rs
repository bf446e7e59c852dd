//! What works on each place of space alone: arithmetic, activations, channels put together, taken apart and mixed.

use super::{
    super::onnx::OnnxNode, Lowered, Lowering, Spread, Value, axis_of, channels, constants, field, refuse, settings,
    weights,
};

/// Whether an operator works element by element.
pub(super) fn is_local(operator: &str) -> bool {
    LOCAL.split_ascii_whitespace().any(|name| name == operator)
}

const LOCAL: &str = "\
    Abs Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Celu Clip Cos \
    DequantizeLinear Div Dropout Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish \
    Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow \
    QuantizeLinear Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Softplus Softsign Sqrt Sub Sum Swish Tan \
    Tanh ThresholdedRelu Where Xor";

/// What an operator does to the axes that it works over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// They stay.
    Stay,
    /// They become 1, or go.
    Reduce,
    /// They stay, and are all axes from the given one on.
    Rest,
}

/// For operators over some axes.
pub(super) fn reduced_axes(operator: &str) -> Option<Over> {
    match operator {
        "Softmax" | "LogSoftmax" | "Hardmax" | "LRN" | "LpNormalization" => Some(Over::Stay),
        "LayerNormalization" | "RMSNormalization" => Some(Over::Rest),
        "ArgMax" | "ArgMin" => Some(Over::Reduce),
        other if other.starts_with("Reduce") => Some(Over::Reduce),
        _ => None,
    }
}

impl Lowering<'_> {
    /// Arithmetic on one or several inputs, of which some may be constants.
    pub(super) fn local(&mut self, node: &OnnxNode, inputs: &[Option<Value>]) -> Lowered<Vec<Value>> {
        let fields: Vec<&Spread> = spread(inputs).collect();
        let Some(widest) = fields.iter().max_by_key(|field| field.shape.len()) else {
            return Err(refuse::unknown(node));
        };
        let (rank, space) = (widest.shape.len(), widest.space.clone());
        let mut shape = widest.shape.clone();
        for value in inputs.iter().flatten() {
            let other = match value {
                Value::Spread(field) => &field.shape,
                // Scales of a quantisation lie along one axis, whatever its place.
                Value::Constant(constant) if node.operator.ends_with("Linear") && constant.shape.len() <= 1 => continue,
                Value::Constant(constant) => {
                    let spread = |(axis, size): (usize, &u64)| {
                        let axis = (axis + rank).checked_sub(constant.shape.len());
                        *size > 1 && axis.is_some_and(|axis| space[axis].is_some())
                    };
                    if constant.shape.iter().enumerate().any(spread) {
                        return Err(refuse::positional(node));
                    }
                    &constant.shape
                }
            };
            shape =
                constants::broadcast_shape(&shape, other).ok_or_else(|| constants::mismatch(node, &shape, other))?;
        }
        let agree = |field: &&Spread| space.ends_with(&field.space);
        if !fields.iter().all(agree) {
            return Err(refuse::everything(node));
        }
        self.joined(node, &fields, shape, space)
    }

    /// Fields joined voxel by voxel into one of this shape.
    fn joined(
        &mut self,
        node: &OnnxNode,
        fields: &[&Spread],
        shape: Vec<u64>,
        space: Vec<Option<usize>>,
    ) -> Lowered<Vec<Value>> {
        let places: Vec<_> = fields.iter().map(|field| field.place).collect();
        let (count, along) = (channels(&shape, &space)?, self.unchanged());
        let place = self.network.add((&node.operator, &node.name), &places, &along, count)?;
        let value = Value::Spread(Spread { place, shape, space });
        Ok(vec![value; node.outputs.len()])
    }

    pub(super) fn per_channel(&mut self, node: &OnnxNode, inputs: &[Option<Value>]) -> Lowered<Vec<Value>> {
        let from = field(node, inputs)?;
        self.step(node, from, &self.unchanged(), from.shape.clone())
    }

    pub(super) fn concatenate(&mut self, node: &OnnxNode, inputs: &[Option<Value>]) -> Lowered<Vec<Value>> {
        let fields: Vec<&Spread> = spread(inputs).collect();
        let Some(first) = fields.first() else { return Err(refuse::unknown(node)) };
        let axis = axis_of(node, node.int("axis").unwrap_or(1), first.shape.len())?;
        if fields.len() != inputs.len() {
            return Err(refuse::positional(node));
        }
        if first.space[axis].is_some() || fields.iter().any(|field| field.space != first.space) {
            return Err(refuse::everything(node));
        }
        let mut shape = first.shape.clone();
        shape[axis] = fields.iter().fold(0, |sum: u64, field| sum.saturating_add(field.shape[axis]));
        self.joined(node, &fields, shape, first.space.clone())
    }

    pub(super) fn split(&mut self, node: &OnnxNode, inputs: &[Option<Value>]) -> Lowered<Vec<Value>> {
        let from = field(node, inputs)?.clone();
        let axis = axis_of(node, node.int("axis").unwrap_or(0), from.shape.len())?;
        if from.space[axis].is_some() {
            return Err(refuse::everything(node));
        }
        let listed = match node.ints("split") {
            Some(sizes) => Some(sizes.to_vec()),
            None => settings(node, inputs, 1)?.map(|sizes| sizes.ints()),
        };
        let count = node.outputs.len().max(1) as u64;
        let equal = from.shape[axis].div_ceil(count);
        let mut values = Vec::new();
        for number in 0..node.outputs.len() {
            let size = match &listed {
                Some(sizes) => sizes.get(number).and_then(|size| u64::try_from(*size).ok()),
                None => Some(equal.min(from.shape[axis].saturating_sub(equal.saturating_mul(number as u64)))),
            };
            let mut shape = from.shape.clone();
            shape[axis] = size.ok_or_else(|| refuse::unknown(node))?;
            values.extend(self.step(node, &from, &self.unchanged(), shape)?);
        }
        Ok(values)
    }

    /// Some channels of all.
    pub(super) fn gather(&mut self, node: &OnnxNode, inputs: &[Option<Value>]) -> Lowered<Vec<Value>> {
        let from = field(node, inputs)?;
        let axis = axis_of(node, node.int("axis").unwrap_or(0), from.shape.len())?;
        let chosen = weights(node, inputs, 1)?;
        if from.space[axis].is_some() {
            return Err(refuse::everything(node));
        }
        let shape = [&from.shape[..axis], chosen, &from.shape[axis + 1..]].concat();
        let space = [&from.space[..axis], &vec![None; chosen.len()], &from.space[axis + 1..]].concat();
        self.joined(node, &[from], shape, space)
    }

    pub(super) fn transpose(&mut self, node: &OnnxNode, inputs: &[Option<Value>]) -> Lowered<Vec<Value>> {
        let from = field(node, inputs)?;
        let rank = from.shape.len();
        let order: Vec<usize> = match node.ints("perm") {
            Some(order) => order.iter().map(|axis| axis_of(node, *axis, rank)).collect::<Lowered<_>>()?,
            None => (0..rank).rev().collect(),
        };
        let shape: Vec<u64> = order.iter().map(|axis| from.shape[*axis]).collect();
        let space: Vec<Option<usize>> = order.iter().map(|axis| from.space[*axis]).collect();
        let mut seen = order.clone();
        seen.sort_unstable();
        if seen != (0..rank).collect::<Vec<_>>() {
            return Err(refuse::unknown(node));
        }
        self.joined(node, &[from], shape, space)
    }

    /// Axes of size 1 put in or taken out. None of them is an axis of space.
    pub(super) fn squeeze(&mut self, node: &OnnxNode, inputs: &[Option<Value>]) -> Lowered<Vec<Value>> {
        let from = field(node, inputs)?;
        let axes = match node.ints("axes") {
            Some(axes) => Some(axes.to_vec()),
            None => settings(node, inputs, 1)?.map(|axes| axes.ints()),
        };
        // Axes of space are followed through the same change by their numbers, which others do not have.
        let marks: Vec<u64> = from.space.iter().map(|space| space.map_or(1, |space| space as u64 + 2)).collect();
        let (shape, marks) = match (node.operator.as_str(), axes) {
            ("Unsqueeze", Some(axes)) => {
                (constants::inserted(node, &from.shape, &axes)?, constants::inserted(node, &marks, &axes)?)
            }
            ("Squeeze", Some(axes)) => {
                (constants::removed(node, &from.shape, Some(&axes))?, constants::removed(node, &marks, Some(&axes))?)
            }
            _ => return Err(refuse::unknown(node)),
        };
        let space: Vec<Option<usize>> =
            marks.iter().map(|mark| mark.checked_sub(2).and_then(|space| usize::try_from(space).ok())).collect();
        if space.iter().flatten().count() != from.space.iter().flatten().count() {
            return Err(refuse::everything(node));
        }
        self.joined(node, &[from], shape, space)
    }

    /// A change of shape that leaves every axis where it is.
    pub(super) fn reshape(&mut self, node: &OnnxNode, inputs: &[Option<Value>]) -> Lowered<Vec<Value>> {
        let from = field(node, inputs)?;
        // Group norm is often written as an instance norm between two changes of shape.
        let mut users =
            self.model.nodes.iter().filter(|other| other.inputs.iter().any(|name| node.outputs.contains(name)));
        if let Some(norm) = users.find(|other| other.operator.ends_with("Normalization")) {
            return Err(refuse::statistics(norm));
        }
        let to = settings(node, inputs, 1)?.map(|shape| shape.ints());
        match to.and_then(|to| constants::resolved(&from.shape, &to)) {
            Some(shape) if shape == from.shape => self.step(node, from, &self.unchanged(), shape),
            _ => Err(refuse::everything(node)),
        }
    }

    /// Channels, which are last, mixed by a matrix.
    pub(super) fn multiply(&mut self, node: &OnnxNode, inputs: &[Option<Value>]) -> Lowered<Vec<Value>> {
        let from = field(node, inputs).map_err(|_| refuse::everything(node))?;
        let weights = weights(node, inputs, 1).map_err(|_| refuse::everything(node))?;
        match (weights, from.space.last()) {
            ([_, channels], Some(None)) => {
                let mut shape = from.shape.clone();
                if let Some(last) = shape.last_mut() {
                    *last = *channels;
                }
                self.step(node, from, &self.unchanged(), shape)
            }
            _ => Err(refuse::everything(node)),
        }
    }

    /// An operator over some axes, none of which may be one of space.
    pub(super) fn over_axes(&mut self, node: &OnnxNode, inputs: &[Option<Value>]) -> Lowered<Vec<Value>> {
        let from = field(node, inputs)?;
        let (rank, over) = (from.shape.len(), reduced_axes(&node.operator).unwrap_or(Over::Stay));
        let default = match node.operator.as_str() {
            "LRN" => 1,
            "ArgMax" | "ArgMin" => 0,
            _ if self.model.opset < 13 && over == Over::Stay => 1,
            _ => -1,
        };
        let listed = match (node.ints("axes"), node.int("axis"), over) {
            (Some(axes), _, _) => axes.to_vec(),
            (None, Some(axis), _) => vec![axis],
            (None, None, Over::Reduce) if node.operator.starts_with("Reduce") => {
                let axes = settings(node, inputs, 1)?.ok_or_else(|| refuse::everything(node))?;
                axes.ints()
            }
            _ => vec![default],
        };
        let mut axes: Vec<usize> = listed.iter().map(|axis| axis_of(node, *axis, rank)).collect::<Lowered<_>>()?;
        // Before version 13, these worked over everything from the axis on.
        let old = self.model.opset < 13 && node.operator.ends_with("max") && over == Over::Stay;
        if over == Over::Rest || old {
            axes = (axes.first().copied().unwrap_or(rank)..rank).collect();
        }
        if axes.iter().any(|axis| from.space[*axis].is_some()) {
            return Err(if over == Over::Reduce || old { refuse::everything(node) } else { refuse::statistics(node) });
        }
        if over != Over::Reduce {
            let value = self.step(node, from, &self.unchanged(), from.shape.clone())?;
            return Ok(value);
        }
        let keep = node.int("keepdims").unwrap_or(1) != 0;
        let kept = |axis: &usize| keep || !axes.contains(axis);
        let size = |axis: usize| if axes.contains(&axis) { 1 } else { from.shape[axis] };
        let shape = (0..rank).filter(kept).map(size).collect();
        let space = (0..rank).filter(kept).map(|axis| from.space[axis]).collect();
        self.joined(node, &[from], shape, space)
    }
}

/// The inputs that are spread over space.
fn spread(inputs: &[Option<Value>]) -> impl Iterator<Item = &Spread> {
    inputs.iter().flatten().filter_map(|value| match value {
        Value::Spread(field) => Some(field),
        Value::Constant(_) => None,
    })
}
