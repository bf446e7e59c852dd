//! Graphs written by hand, byte by byte, for the tests of the reader and of all that follows.

use super::{Numbers, OnnxAttribute, OnnxModel};

/// A protobuf message being written.
#[derive(Default, Clone)]
pub(crate) struct Message(pub(crate) Vec<u8>);

impl Message {
    fn varint(mut self, mut value: u64) -> Self {
        while value >= 0x80 {
            self.0.push((value as u8 & 0x7f) | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    pub(crate) fn number(self, field: u64, value: i64) -> Self {
        self.varint(field << 3).varint(value.cast_unsigned())
    }

    pub(crate) fn bytes(self, field: u64, bytes: &[u8]) -> Self {
        let mut message = self.varint(field << 3 | 2).varint(bytes.len() as u64);
        message.0.extend(bytes);
        message
    }

    pub(crate) fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }
}

/// A graph being put together: a chain of nodes unless they name their inputs.
pub(crate) struct Graph {
    graph: Message,
}

impl Graph {
    /// With one input `x` of these sizes, where 0 is any size.
    pub(crate) fn new(sizes: &[i64]) -> Self {
        let dimension = |size: &i64| match size {
            0 => Message::default().text(2, "any"),
            size => Message::default().number(1, *size),
        };
        let shape = sizes.iter().fold(Message::default(), |shape, size| shape.bytes(1, &dimension(size).0));
        let tensor = Message::default().number(1, 1).bytes(2, &shape.0);
        let kind = Message::default().bytes(1, &tensor.0);
        let input = Message::default().text(1, "x").bytes(2, &kind.0);
        Self { graph: Message::default().bytes(11, &input.0) }
    }

    /// A weight, of which only the shape matters.
    pub(crate) fn weight(mut self, name: &str, shape: &[i64]) -> Self {
        let tensor = shape.iter().fold(Message::default(), |tensor, size| tensor.number(1, *size));
        self.graph = self.graph.bytes(5, &tensor.number(2, 1).text(8, name).bytes(9, &[]).0);
        self
    }

    /// Whole numbers that say how.
    pub(crate) fn ints(mut self, name: &str, values: &[i64]) -> Self {
        let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let tensor = Message::default().number(1, values.len() as i64).number(2, 7).text(8, name);
        self.graph = self.graph.bytes(5, &tensor.bytes(9, &raw).0);
        self
    }

    /// Floating-point numbers that say how.
    pub(crate) fn floats(mut self, name: &str, values: &[f32]) -> Self {
        let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let tensor = Message::default().number(1, values.len() as i64).number(2, 1).text(8, name);
        self.graph = self.graph.bytes(5, &tensor.bytes(9, &raw).0);
        self
    }

    /// An operator: `Conv(a, w) b`, with settings after it.
    pub(crate) fn node(mut self, call: &str, settings: &[(&str, OnnxAttribute)]) -> Self {
        let (operator, rest) = call.split_once('(').unwrap();
        let (inputs, output) = rest.split_once(')').unwrap();
        let names = inputs.split(',').map(str::trim);
        let node = names.fold(Message::default(), |node, name| node.text(1, name));
        let outputs = output.split(',').map(str::trim);
        let mut node = outputs.fold(node, |node, name| node.text(2, name)).text(4, operator);
        for (name, value) in settings {
            let attribute = Message::default().text(1, name);
            let attribute = match value {
                OnnxAttribute::Int(value) => attribute.number(3, *value).number(20, 2),
                OnnxAttribute::Text(value) => attribute.text(4, value).number(20, 3),
                OnnxAttribute::Ints(values) => {
                    values.iter().fold(attribute, |attribute, value| attribute.number(8, *value)).number(20, 7)
                }
                _ => attribute,
            };
            node = node.bytes(5, &attribute.0);
        }
        self.graph = self.graph.bytes(1, &node.0);
        self
    }

    /// The bytes of the file, with this output.
    pub(crate) fn file(self, output: &str) -> Vec<u8> {
        let output = Message::default().text(1, output);
        let opset = Message::default().text(1, "").number(2, 18);
        let graph = self.graph.bytes(12, &output.0);
        Message::default().number(1, 8).bytes(7, &graph.0).bytes(8, &opset.0).0
    }

    pub(crate) fn model(self, output: &str) -> OnnxModel {
        OnnxModel::parse(&self.file(output)).unwrap()
    }
}

/// Settings of an operator.
pub(crate) fn list(values: &[i64]) -> OnnxAttribute {
    OnnxAttribute::Ints(values.to_vec())
}

fn small() -> Graph {
    Graph::new(&[1, 2, 0, 0])
        .weight("w", &[8, 2, 3, 3])
        .ints("k", &[3, -1])
        .node("Conv(x, w) a", &[("pads", list(&[1, 1, 1, 1])), ("group", OnnxAttribute::Int(1))])
}

#[test]
fn a_graph_is_read() {
    let model = small().model("a");
    assert_eq!((model.opset, model.outputs.as_slice()), (18, &["a".to_owned()][..]));
    assert_eq!(model.inputs[0].sizes, Some(vec![Some(1), Some(2), None, None]));
    assert_eq!((model.constants["w"].shape.as_slice(), &model.constants["w"].values), (&[8, 2, 3, 3][..], &None));
    assert_eq!(model.constants["k"].values, Some(Numbers::Ints(vec![3, -1])));
    let node = &model.nodes[0];
    assert_eq!((node.operator.as_str(), node.name.as_str(), node.inputs.len()), ("Conv", "a", 2));
    assert_eq!((node.ints("pads").unwrap(), node.int("group")), (&[1, 1, 1, 1][..], Some(1)));
}

#[test]
fn no_cut_and_no_change_of_a_byte_is_a_panic() {
    let file = small().file("a");
    for length in 0..file.len() {
        let _ = OnnxModel::parse(&file[..length]);
    }
    for at in 0..file.len() {
        for bit in 0..8 {
            let mut damaged = file.clone();
            damaged[at] ^= 1 << bit;
            let _ = OnnxModel::parse(&damaged);
        }
    }
    assert!(OnnxModel::parse(b"\x89HDF\r\n\x1a\n").is_err());
    assert!(OnnxModel::parse(&[]).unwrap_err().contains("not an ONNX file"));
}
