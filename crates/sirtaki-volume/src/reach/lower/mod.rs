//! From an ONNX graph to a [`Network`], for a volume of known size.
//!
//! Every value of the graph is either a *field*, which has a value at each place of space, or a *constant*, which weights
//! are, and everything that is computed from shapes. A field remembers which of its axes are those of space, so networks
//! that transpose (channels last) are followed too.

mod constants;
mod join;
mod margin;
mod refuse;
mod resize;
mod window;

use std::collections::HashMap;

use super::{
    Layout,
    along::{Along, Ratio},
    network::{Network, Place, listed},
    onnx::{Numbers, OnnxConstant, OnnxInput, OnnxModel, OnnxNode},
};
use crate::VolumeError;

type Lowered<T> = Result<T, VolumeError>;

/// A value that has a place in space.
#[derive(Debug, Clone)]
struct Spread {
    place: Place,
    shape: Vec<u64>,
    /// For each axis, which axis of space it is.
    space: Vec<Option<usize>>,
}

/// A value of the graph.
#[derive(Debug, Clone)]
enum Value {
    Spread(Spread),
    Constant(OnnxConstant),
}

/// The graph's values so far.
struct Lowering<'a> {
    model: &'a OnnxModel,
    network: Network,
    values: HashMap<&'a str, Value>,
}

/// The network that a model is for an input of this layout.
pub(super) fn lower(model: &OnnxModel, layout: &Layout) -> Lowered<Network> {
    let input = sole_input(model)?;
    check_input(input, layout)?;
    let mut space = vec![None; layout.shape.len()];
    for (number, axis) in layout.spatial.iter().enumerate() {
        space[*axis] = Some(number);
    }
    let sizes: Vec<u64> = layout.spatial.iter().map(|axis| layout.shape[*axis]).collect();
    let (network, place) = Network::new(&sizes, channels(&layout.shape, &space)?);
    let mut lowering = Lowering { model, network, values: HashMap::new() };
    let field = Spread { place, shape: layout.shape.clone(), space };
    lowering.values.insert(&input.name, Value::Spread(field));
    for node in &model.nodes {
        lowering.add(node)?;
    }
    let name = model.outputs.first().map_or("", String::as_str);
    match lowering.values.get(name) {
        Some(Value::Spread(field)) => {
            let place = field.place;
            lowering.network.set_output(place);
            Ok(lowering.network)
        }
        _ => Err(VolumeError::Invalid(format!("the network's output `{name}` does not depend on its input"))),
    }
}

/// The one input of a network that is fed with a volume.
pub(super) fn sole_input(model: &OnnxModel) -> Lowered<&OnnxInput> {
    match model.inputs.as_slice() {
        [input] => Ok(input),
        inputs => {
            let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
            Err(VolumeError::refused(
                format!("the network has {} inputs ({}), and a volume is one", names.len(), names.join(", ")),
                "export it with one input; several volumes can be its channels",
            ))
        }
    }
}

fn check_input(input: &OnnxInput, layout: &Layout) -> Lowered<()> {
    if layout.spatial.iter().any(|axis| *axis >= layout.shape.len()) || layout.shape.contains(&0) {
        return Err(VolumeError::Invalid(format!("{layout:?} is no layout of a volume")));
    }
    let Some(sizes) = &input.sizes else { return Ok(()) };
    let (name, given) = (&input.name, listed(&layout.shape));
    if sizes.len() != layout.shape.len() {
        let problem = format!("the network's input `{name}` has {} axes, the volume is given as {given}", sizes.len());
        return Err(VolumeError::refused(problem, "the axes are batch, channels, and those of space"));
    }
    for (axis, (fixed, given)) in sizes.iter().zip(&layout.shape).enumerate() {
        if let Some(fixed) = fixed.filter(|fixed| fixed != given) {
            return Err(VolumeError::refused(
                format!(
                    "the network's input `{name}` has {fixed} voxels or channels along axis {axis}, and never {given}"
                ),
                match layout.spatial.contains(&axis) {
                    true => "export it with dynamic axes of space",
                    false => "choose as many channels as it was trained with: --channels",
                },
            ));
        }
    }
    Ok(())
}

/// What keeps the result from being equal in every bit.
pub(super) fn notes(network: &Network) -> Vec<String> {
    let rounds = |along: &Along| matches!(along, Along::Resample { by, .. } if !by.over().is_power_of_two());
    let steps = network.steps.iter().filter(|step| step.along.iter().any(rounds));
    let note = |step: &super::network::Step| {
        let (name, operator) = (&step.name, &step.operator);
        format!(
            "`{name}` ({operator}) enlarges by no power of 2: positions are rounded, differently far from the start"
        )
    };
    steps.map(note).collect()
}

/// How many values there are at each place.
fn channels(shape: &[u64], space: &[Option<usize>]) -> Lowered<u64> {
    let others = shape.iter().zip(space).filter(|(_, space)| space.is_none());
    let product = others.map(|(size, _)| *size).try_fold(1_u64, u64::checked_mul);
    product.ok_or_else(|| VolumeError::Invalid(format!("{} is too large a shape", listed(shape))))
}

impl<'a> Lowering<'a> {
    fn add(&mut self, node: &'a OnnxNode) -> Lowered<()> {
        let inputs = self.inputs(node)?;
        let fields = inputs.iter().flatten().any(|value| matches!(value, Value::Spread(_)));
        let outputs = match node.operator.as_str() {
            _ if !node.domain.is_empty() && node.domain != "ai.onnx" => return Err(refuse::unknown(node)),
            "Shape" | "Size" => vec![constants::shape(node, inputs.first().and_then(Option::as_ref))?],
            _ if !fields => vec![constants::evaluate(node, &inputs)?],
            _ => self.spread(node, &inputs)?,
        };
        for (name, value) in node.outputs.iter().zip(outputs) {
            self.values.insert(name, value);
        }
        Ok(())
    }

    fn inputs(&self, node: &OnnxNode) -> Lowered<Vec<Option<Value>>> {
        let find = |name: &String| {
            if name.is_empty() {
                return Ok(None);
            }
            let constant = || self.model.constants.get(name).map(|constant| Value::Constant(constant.clone()));
            let missing = || {
                let problem = format!("{} uses `{name}`, which nothing computes before it", refuse::said(node));
                VolumeError::Invalid(problem)
            };
            self.values.get(name.as_str()).cloned().or_else(constant).map(Some).ok_or_else(missing)
        };
        node.inputs.iter().map(find).collect()
    }

    /// An operator on values in space.
    fn spread(&mut self, node: &OnnxNode, inputs: &[Option<Value>]) -> Lowered<Vec<Value>> {
        match node.operator.as_str() {
            "Conv" | "ConvInteger" | "QLinearConv" | "MaxPool" | "AveragePool" | "LpPool" => self.window(node, inputs),
            "ConvTranspose" => self.transposed(node, inputs),
            "DepthToSpace" | "SpaceToDepth" => self.blocks(node, inputs),
            "Resize" | "Upsample" => self.resize(node, inputs),
            "Pad" => self.pad(node, inputs),
            "Slice" => self.slice(node, inputs),
            "Concat" => self.concatenate(node, inputs),
            "Split" => self.split(node, inputs),
            "Gather" => self.gather(node, inputs),
            "Transpose" => self.transpose(node, inputs),
            "Squeeze" | "Unsqueeze" => self.squeeze(node, inputs),
            "Reshape" | "Flatten" => self.reshape(node, inputs),
            "MatMul" => self.multiply(node, inputs),
            "BatchNormalization" if node.int("training_mode").unwrap_or(0) == 0 => self.per_channel(node, inputs),
            operator if join::is_local(operator) => self.local(node, inputs),
            operator if join::reduced_axes(operator).is_some() => self.over_axes(node, inputs),
            _ => Err(refuse::by_operator(node)),
        }
    }

    /// Adds a step from one field to a field of this shape, whose axes of space are where they were.
    fn step(&mut self, node: &OnnxNode, from: &Spread, along: &[Along], mut shape: Vec<u64>) -> Lowered<Vec<Value>> {
        let count = channels(&shape, &from.space)?;
        let place = self.network.add((&node.operator, &node.name), &[from.place], along, count)?;
        let sizes = self.network.sizes(place);
        for (size, space) in shape.iter_mut().zip(&from.space) {
            if let Some(space) = space {
                *size = sizes[*space];
            }
        }
        Ok(vec![Value::Spread(Spread { place, shape, space: from.space.clone() })])
    }

    /// One [`Along`] per axis of space, all [`Along::Same`].
    fn unchanged(&self) -> Vec<Along> {
        vec![Along::Same; self.network.parts[0].sizes.len()]
    }
}

/// The field that an operator works on, its first input.
fn field<'v>(node: &OnnxNode, inputs: &'v [Option<Value>]) -> Lowered<&'v Spread> {
    match inputs.first() {
        Some(Some(Value::Spread(field))) => Ok(field),
        _ => Err(refuse::unknown(node)),
    }
}

/// The shape of a constant input.
fn weights<'v>(node: &OnnxNode, inputs: &'v [Option<Value>], number: usize) -> Lowered<&'v [u64]> {
    match inputs.get(number) {
        Some(Some(Value::Constant(constant))) => Ok(&constant.shape),
        _ => Err(refuse::dynamic(node, number)),
    }
}

/// The numbers of an input that says how, not what; nothing where it is left out.
fn settings(node: &OnnxNode, inputs: &[Option<Value>], number: usize) -> Lowered<Option<Numbers>> {
    match inputs.get(number) {
        None | Some(None) => Ok(None),
        Some(Some(Value::Constant(constant))) => match &constant.values {
            Some(values) => Ok(Some(values.clone())),
            None if constant.shape == [0] => Ok(None),
            None => Err(refuse::dynamic(node, number)),
        },
        Some(Some(Value::Spread(_))) => Err(refuse::dynamic(node, number)),
    }
}

/// An axis as a place in a shape; negative ones count from the end.
fn axis_of(node: &OnnxNode, axis: i64, rank: usize) -> Lowered<usize> {
    let place = if axis < 0 { axis.checked_add_unsigned(rank as u64) } else { Some(axis) };
    place.and_then(|place| usize::try_from(place).ok()).filter(|place| *place < rank).ok_or_else(|| {
        VolumeError::Invalid(format!("{} names axis {axis} of a tensor that has {rank}", refuse::said(node)))
    })
}

fn ratio(node: &OnnxNode, over: u64, under: u64) -> Lowered<Ratio> {
    Ratio::new(over, under)
        .ok_or_else(|| VolumeError::Invalid(format!("{} changes a size from {under} to {over}", refuse::said(node))))
}

#[cfg(test)]
mod tests;
