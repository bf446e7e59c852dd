//! From bytes to an [`OnnxModel`]. The numbers of fields are those of `onnx.proto`.

use super::{
    FEW, Numbers, OnnxAttribute, OnnxConstant, OnnxInput, OnnxModel, OnnxNode,
    wire::{Content, Field, Fields, floats, numbers},
};

/// Numbers of ONNX for the types of elements.
mod element {
    pub(super) const FLOAT: i64 = 1;
    pub(super) const INT32: i64 = 6;
    pub(super) const INT64: i64 = 7;
    pub(super) const DOUBLE: i64 = 11;
}

type Read<T> = Result<T, String>;

impl OnnxModel {
    /// Reads the bytes of an ONNX file. The error says what is wrong with them.
    pub fn parse(bytes: &[u8]) -> Read<Self> {
        let (mut graph, mut model) = (None, Self::default());
        for field in Fields::of(bytes) {
            match field? {
                Field { number: 7, value: Content::Bytes(message) } => graph = Some(message),
                Field { number: 8, value: Content::Bytes(message) } => {
                    let (domain, version) = opset(message)?;
                    if domain.is_empty() || domain == "ai.onnx" {
                        model.opset = version;
                    }
                }
                _ => {}
            }
        }
        model.read_graph(graph.ok_or("there is no graph in it: it is not an ONNX file")?)?;
        Ok(model)
    }

    fn read_graph(&mut self, message: &[u8]) -> Read<()> {
        let mut inputs = Vec::new();
        for field in Fields::of(message) {
            let Field { number, value: Content::Bytes(message) } = field? else { continue };
            match number {
                1 => self.nodes.push(node(message)?),
                5 => {
                    let (name, constant) = tensor(message)?;
                    self.constants.insert(name, constant);
                }
                11 => inputs.push(input(message)?),
                12 => self.outputs.push(input(message)?.name),
                15 => {
                    let (name, constant) = sparse(message)?;
                    self.constants.insert(name, constant);
                }
                _ => {}
            }
        }
        // Old files list weights among the inputs too.
        self.inputs = inputs.into_iter().filter(|input| !self.constants.contains_key(&input.name)).collect();
        Ok(())
    }
}

fn opset(message: &[u8]) -> Read<(String, i64)> {
    let (mut domain, mut version) = (String::new(), 0);
    for field in Fields::of(message) {
        match field? {
            Field { number: 1, value: Content::Bytes(bytes) } => domain = text(bytes)?,
            Field { number: 2, value: Content::Number(value) } => version = value.cast_signed(),
            _ => {}
        }
    }
    Ok((domain, version))
}

pub(super) fn node(message: &[u8]) -> Read<OnnxNode> {
    let mut node = OnnxNode::default();
    for field in Fields::of(message) {
        let Field { number, value: Content::Bytes(bytes) } = field? else { continue };
        match number {
            1 => node.inputs.push(text(bytes)?),
            2 => node.outputs.push(text(bytes)?),
            3 => node.name = text(bytes)?,
            4 => node.operator = text(bytes)?,
            5 => {
                let (name, value) = attribute(bytes)?;
                node.attributes.insert(name, value);
            }
            7 => node.domain = text(bytes)?,
            _ => {}
        }
    }
    if node.name.is_empty() {
        node.name = node.outputs.first().cloned().unwrap_or_default();
    }
    Ok(node)
}

fn attribute(message: &[u8]) -> Read<(String, OnnxAttribute)> {
    let (mut name, mut kind, mut single) = (String::new(), None, None);
    let (mut ints, mut reals) = (Vec::new(), Vec::new());
    for field in Fields::of(message) {
        let Field { number, value } = field?;
        match (number, value) {
            (1, Content::Bytes(bytes)) => name = text(bytes)?,
            (2, Content::Four(bytes)) => single = Some(OnnxAttribute::Float(f32::from_le_bytes(bytes).into())),
            (3, Content::Number(value)) => single = Some(OnnxAttribute::Int(value.cast_signed())),
            (4, Content::Bytes(bytes)) => {
                single = Some(OnnxAttribute::Text(String::from_utf8_lossy(bytes).into_owned()));
            }
            (5, Content::Bytes(bytes)) => single = Some(OnnxAttribute::Constant(tensor(bytes)?.1)),
            (7, content) => floats(content, &mut reals)?,
            (8, content) => numbers(content, &mut ints)?,
            (20, Content::Number(value)) => kind = Some(value),
            _ => {}
        }
    }
    // A number that is zero may be left out of the file; the kind says what it is.
    let value = match (kind, single) {
        (Some(6), _) => OnnxAttribute::Floats(reals),
        (Some(7), _) => OnnxAttribute::Ints(ints),
        (_, Some(single)) => single,
        (Some(1), None) => OnnxAttribute::Float(0.0),
        (Some(2), None) => OnnxAttribute::Int(0),
        (Some(3), None) => OnnxAttribute::Text(String::new()),
        _ if !ints.is_empty() => OnnxAttribute::Ints(ints),
        _ if !reals.is_empty() => OnnxAttribute::Floats(reals),
        _ => OnnxAttribute::Other,
    };
    Ok((name, value))
}

fn tensor(message: &[u8]) -> Read<(String, OnnxConstant)> {
    let (mut name, mut dims, mut kind, mut raw) = (String::new(), Vec::new(), 0, None);
    // Parsed below, once it is known how many there should be.
    let mut listed: Vec<(u64, Content<'_>)> = Vec::new();
    for field in Fields::of(message) {
        let Field { number, value } = field?;
        match (number, value) {
            (1, content) => numbers(content, &mut dims)?,
            (2, Content::Number(value)) => kind = value.cast_signed(),
            (4 | 5 | 7 | 10, content) if listed.len() as u64 <= FEW => listed.push((number, content)),
            (8, Content::Bytes(bytes)) => name = text(bytes)?,
            (9, Content::Bytes(bytes)) => raw = Some(bytes),
            _ => {}
        }
    }
    let shape = shape(&dims).ok_or_else(|| format!("constant `{name}` has the impossible shape {dims:?}"))?;
    let count = shape.iter().try_fold(1_u64, |count, size| count.checked_mul(*size)).unwrap_or(u64::MAX);
    let values = if count <= FEW { few(kind, raw, &listed)? } else { None };
    let values = values.filter(|values| values.len() as u64 == count);
    Ok((name, OnnxConstant { shape, values }))
}

/// The values of a small constant, if they are of a type that shapes, scales and the like have.
fn few(kind: i64, raw: Option<&[u8]>, listed: &[(u64, Content<'_>)]) -> Read<Option<Numbers>> {
    let (mut ints, mut reals) = (Vec::new(), Vec::new());
    for (number, content) in listed {
        match (number, content) {
            (5 | 7, content) => numbers(*content, &mut ints)?,
            (10, Content::Bytes(bytes)) => {
                reals.extend(bytes.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)));
            }
            (_, content) => floats(*content, &mut reals)?,
        }
    }
    let raw = raw.unwrap_or_default();
    let values = match kind {
        element::FLOAT => {
            reals.extend(raw.as_chunks::<4>().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))));
            Numbers::Floats(reals)
        }
        element::DOUBLE => {
            reals.extend(raw.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)));
            Numbers::Floats(reals)
        }
        element::INT32 => {
            ints.extend(raw.as_chunks::<4>().0.iter().map(|bytes| i64::from(i32::from_le_bytes(*bytes))));
            Numbers::Ints(ints)
        }
        element::INT64 => {
            ints.extend(raw.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)));
            Numbers::Ints(ints)
        }
        _ => return Ok(None),
    };
    Ok(Some(values))
}

/// A sparse constant: its shape is all that matters, its name is that of its values.
fn sparse(message: &[u8]) -> Read<(String, OnnxConstant)> {
    let (mut name, mut dims) = (String::new(), Vec::new());
    for field in Fields::of(message) {
        match field? {
            Field { number: 1, value: Content::Bytes(bytes) } => name = tensor(bytes)?.0,
            Field { number: 3, value } => numbers(value, &mut dims)?,
            _ => {}
        }
    }
    let shape = shape(&dims).ok_or_else(|| format!("constant `{name}` has the impossible shape {dims:?}"))?;
    Ok((name, OnnxConstant { shape, values: None }))
}

fn shape(dims: &[i64]) -> Option<Vec<u64>> {
    dims.iter().map(|size| u64::try_from(*size).ok()).collect()
}

/// A named value with its type: an input or an output.
fn input(message: &[u8]) -> Read<OnnxInput> {
    let mut input = OnnxInput::default();
    for field in Fields::of(message) {
        match field? {
            Field { number: 1, value: Content::Bytes(bytes) } => input.name = text(bytes)?,
            // A type that is a tensor, with the type of its elements and its shape.
            Field { number: 2, value: Content::Bytes(bytes) } => {
                for field in Fields::of(bytes) {
                    if let Field { number: 1, value: Content::Bytes(bytes) } = field? {
                        tensor_type(bytes, &mut input)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(input)
}

fn tensor_type(message: &[u8], input: &mut OnnxInput) -> Read<()> {
    for field in Fields::of(message) {
        match field? {
            Field { number: 1, value: Content::Number(value) } => input.elements = value.cast_signed(),
            Field { number: 2, value: Content::Bytes(bytes) } => {
                let mut sizes = Vec::new();
                for field in Fields::of(bytes) {
                    if let Field { number: 1, value: Content::Bytes(dimension) } = field? {
                        sizes.push(fixed(dimension)?);
                    }
                }
                input.sizes = Some(sizes);
            }
            _ => {}
        }
    }
    Ok(())
}

/// The size of a dimension, unless it is only named.
fn fixed(message: &[u8]) -> Read<Option<u64>> {
    let mut size = None;
    for field in Fields::of(message) {
        if let Field { number: 1, value: Content::Number(value) } = field? {
            size = Some(value).filter(|value| (1..=i64::MAX.cast_unsigned()).contains(value));
        }
    }
    Ok(size)
}

fn text(bytes: &[u8]) -> Read<String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "a name in it is not text".to_owned())
}
