//! ONNX files of networks for volumes, written node by node: the counterpart of the reader, for the few messages that such
//! a network needs. No generated code, and nothing that a build would have to bring along.

use super::wire::{Content, message_of, put};

/// The version of the format, and that of the operators: old enough for every library in use.
const FORMAT: u64 = 8;
const OPERATORS: u64 = 17;
/// ONNX's number of single precision.
const FLOAT: u64 = 1;
/// ONNX's numbers of the kinds of settings.
const INT: u64 = 2;
const INTS: u64 = 7;

/// A setting of an operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    /// A whole number.
    Int(i64),
    /// Whole numbers.
    Ints(Vec<i64>),
}

/// A file in the making, of a network with one input and one output, of any number of samples and of any size.
#[derive(Debug, Clone)]
pub struct OnnxWriter {
    graph: Vec<u8>,
    axes: usize,
}

impl OnnxWriter {
    /// A network whose input has this name, so many channels and so many axes of space.
    pub fn new(input: &str, channels: usize, axes: usize) -> Self {
        let mut graph = Vec::new();
        put(&mut graph, 11, Content::Bytes(&volume(input, channels, axes)));
        Self { graph, axes }
    }

    /// Adds weights.
    pub fn constant(&mut self, name: &str, shape: &[usize], values: &[f32]) {
        put(&mut self.graph, 5, Content::Bytes(&tensor(name, shape, values)));
    }

    /// Adds an operator behind those that are there. It is called like what it makes.
    pub fn node(&mut self, operator: &str, inputs: &[&str], output: &str, settings: &[(&str, Setting)]) {
        let inputs: Vec<(u64, &[u8])> = inputs.iter().map(|name| (1, name.as_bytes())).collect();
        let mut node = message_of(&inputs);
        node.extend(message_of(&[(2, output.as_bytes()), (3, output.as_bytes()), (4, operator.as_bytes())]));
        for (name, value) in settings {
            let mut setting = message_of(&[(1, name.as_bytes())]);
            let kind = match value {
                Setting::Int(value) => {
                    put(&mut setting, 3, Content::Number(value.cast_unsigned()));
                    INT
                }
                Setting::Ints(values) => {
                    let each = values.iter().map(|value| Content::Number(value.cast_unsigned()));
                    each.for_each(|value| put(&mut setting, 8, value));
                    INTS
                }
            };
            put(&mut setting, 20, Content::Number(kind));
            put(&mut node, 5, Content::Bytes(&setting));
        }
        put(&mut self.graph, 1, Content::Bytes(&node));
    }

    /// The bytes of the file: a network of this name, whose output has so many channels.
    pub fn finish(mut self, name: &str, output: &str, channels: usize) -> Vec<u8> {
        put(&mut self.graph, 2, Content::Bytes(name.as_bytes()));
        put(&mut self.graph, 12, Content::Bytes(&volume(output, channels, self.axes)));
        let mut operators = message_of(&[(1, b"")]);
        put(&mut operators, 2, Content::Number(OPERATORS));
        let mut file = Vec::new();
        put(&mut file, 1, Content::Number(FORMAT));
        put(&mut file, 2, Content::Bytes(b"sirtaki"));
        put(&mut file, 7, Content::Bytes(&self.graph));
        put(&mut file, 8, Content::Bytes(&operators));
        file
    }
}

/// An input or output: samples, channels and the axes of space.
fn volume(name: &str, channels: usize, axes: usize) -> Vec<u8> {
    let any = |name: &str| message_of(&[(2, name.as_bytes())]);
    let mut known = Vec::new();
    put(&mut known, 1, Content::Number(channels as u64));
    let sizes = [any("samples"), known].into_iter().chain((0..axes).map(|axis| any(&format!("size{axis}"))));
    let mut shape = Vec::new();
    sizes.for_each(|size| put(&mut shape, 1, Content::Bytes(&size)));
    let mut tensor = Vec::new();
    put(&mut tensor, 1, Content::Number(FLOAT));
    put(&mut tensor, 2, Content::Bytes(&shape));
    message_of(&[(1, name.as_bytes()), (2, &message_of(&[(1, &tensor)]))])
}

/// Weights in single precision.
pub(super) fn tensor(name: &str, shape: &[usize], values: &[f32]) -> Vec<u8> {
    let mut tensor = Vec::new();
    shape.iter().for_each(|size| put(&mut tensor, 1, Content::Number(*size as u64)));
    put(&mut tensor, 2, Content::Number(FLOAT));
    put(&mut tensor, 8, Content::Bytes(name.as_bytes()));
    let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    put(&mut tensor, 9, Content::Bytes(&raw));
    tensor
}

#[cfg(test)]
mod tests {
    use super::{super::OnnxModel, *};

    #[test]
    fn what_is_written_is_read() {
        let mut file = OnnxWriter::new("x", 3, 2);
        file.constant("w", &[4, 3, 1, 1], &[0.5; 12]);
        let pads = Setting::Ints(vec![-1, 0, 300, 0]);
        file.node("Conv", &["x", "w"], "y", &[("pads", pads), ("group", Setting::Int(1))]);
        let model = OnnxModel::parse(&file.finish("net", "y", 4)).unwrap();
        assert_eq!((model.opset, model.inputs.len()), (17, 1));
        assert_eq!(model.inputs[0].sizes, Some(vec![None, Some(3), None, None]));
        assert_eq!((model.inputs[0].elements, model.outputs.as_slice()), (1, ["y".to_owned()].as_slice()));
        let node = &model.nodes[0];
        assert_eq!((node.operator.as_str(), node.name.as_str()), ("Conv", "y"));
        assert_eq!(node.inputs, ["x", "w"]);
        assert_eq!(node.ints("pads"), Some([-1, 0, 300, 0].as_slice()));
        assert_eq!(node.int("group"), Some(1));
        assert_eq!(model.constants["w"].shape, [4, 3, 1, 1]);
        assert_eq!(model.constants["w"].values.as_ref().unwrap().floats(), [0.5; 12]);
    }
}
