//! What there is to know about a network in an ONNX file: inputs, outputs, operators with their attributes, and the
//! shapes of weights, but not the weights.
//!
//! A reader of our own, because an ONNX file is a simple message of which we need a small part: no generated code, no
//! copy of gigabytes of weights. Bytes are hostile: every length is checked against what is there, no message is entered
//! that may contain itself, and what is kept is at most a small multiple of what was read.

mod read;
pub mod rewrite;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod wire;
pub mod write;

use std::collections::BTreeMap;

/// A network as its file describes it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OnnxModel {
    /// The version of ONNX's own operators.
    pub opset: i64,
    /// What it is fed with, weights excluded.
    pub inputs: Vec<OnnxInput>,
    /// The names of its results.
    pub outputs: Vec<String>,
    /// Its operators, in an order in which they can be computed.
    pub nodes: Vec<OnnxNode>,
    /// Its weights and constants, by name.
    pub constants: BTreeMap<String, OnnxConstant>,
}

/// An input of a network.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OnnxInput {
    /// Its name.
    pub name: String,
    /// The size of each axis, where the file fixes it; nothing at all where the file does not even say how many there are.
    pub sizes: Option<Vec<Option<u64>>>,
    /// The type of its elements, in the numbers of ONNX: 1 is `float`.
    pub elements: i64,
}

/// An operator of a network.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OnnxNode {
    /// Its name, or what it computes where it has none.
    pub name: String,
    /// What it does: `Conv`, say.
    pub operator: String,
    /// Whose operator it is; ONNX's own have none.
    pub domain: String,
    /// The names of what it uses; an empty one is left out.
    pub inputs: Vec<String>,
    /// The names of what it computes.
    pub outputs: Vec<String>,
    /// Its settings.
    pub attributes: BTreeMap<String, OnnxAttribute>,
}

/// A setting of an operator.
#[derive(Debug, Clone, PartialEq)]
pub enum OnnxAttribute {
    /// A whole number.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A text.
    Text(String),
    /// Whole numbers.
    Ints(Vec<i64>),
    /// Floating-point numbers.
    Floats(Vec<f64>),
    /// A constant.
    Constant(OnnxConstant),
    /// Something that no operator we know has: a graph, for one.
    Other,
}

/// A weight or constant.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OnnxConstant {
    /// Its shape.
    pub shape: Vec<u64>,
    /// Its values where there are few of them, as shapes, scales and paddings have.
    pub values: Option<Numbers>,
}

/// A few numbers.
#[derive(Debug, Clone, PartialEq)]
pub enum Numbers {
    /// Whole ones.
    Ints(Vec<i64>),
    /// Floating-point ones.
    Floats(Vec<f64>),
}

/// More values than this are weights, and are not kept.
pub const FEW: u64 = 64;

/// Operators that normalise with statistics of all that they are given.
const STATISTICS: [&str; 3] = ["InstanceNormalization", "GroupNormalization", "MeanVarianceNormalization"];

impl OnnxNode {
    /// Whether it is one of these.
    pub(super) fn normalises_samples(&self) -> bool {
        STATISTICS.contains(&self.operator.as_str())
    }
}

impl OnnxModel {
    /// The same network as if its normalisation over a whole sample changed nothing: how far the rest of it looks. A tile
    /// that is read with so much is an approximation.
    #[must_use]
    pub fn locally(mut self) -> Self {
        for node in &mut self.nodes {
            if node.normalises_samples() {
                node.operator = "Identity".to_owned();
                node.inputs.truncate(1);
            }
        }
        self
    }
}

impl OnnxNode {
    /// A whole number among its settings.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.attributes.get(name)? {
            OnnxAttribute::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// Whole numbers among its settings.
    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        match self.attributes.get(name)? {
            OnnxAttribute::Ints(values) => Some(values),
            _ => None,
        }
    }

    /// A text among its settings.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.attributes.get(name)? {
            OnnxAttribute::Text(value) => Some(value),
            _ => None,
        }
    }
}

impl Numbers {
    /// As whole numbers; fractions are cut off.
    pub fn ints(&self) -> Vec<i64> {
        match self {
            Numbers::Ints(values) => values.clone(),
            Numbers::Floats(values) => values.iter().map(|value| *value as i64).collect(),
        }
    }

    /// As floating-point numbers.
    pub fn floats(&self) -> Vec<f64> {
        match self {
            Numbers::Ints(values) => values.iter().map(|value| *value as f64).collect(),
            Numbers::Floats(values) => values.clone(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Numbers::Ints(values) => values.len(),
            Numbers::Floats(values) => values.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
