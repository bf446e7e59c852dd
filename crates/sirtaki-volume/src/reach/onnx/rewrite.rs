//! ONNX files whose normalisation over a whole sample is given the statistics of a volume.
//!
//! With known mean and variance, instance and group norm are what batch norm is after training: a factor and a summand for
//! each channel. So their operators are replaced by `BatchNormalization`, and everything else is copied byte by byte. A file
//! may also end before the first of them whose statistics are not known, with what that one would normalise as its output.

use serde::{Deserialize, Serialize};

use super::{
    OnnxModel, OnnxNode,
    read::node,
    wire::{Content, Field, Fields, message_of, put},
    write::tensor,
};

/// Mean and variance of each channel over a whole volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChannelStatistics {
    /// The means.
    pub mean: Vec<f32>,
    /// The variances.
    pub variance: Vec<f32>,
}

impl OnnxModel {
    /// The operators that normalise over a whole sample, in the order in which they are computed. The error names one that
    /// cannot be given statistics.
    pub fn normalisations(&self) -> Result<Vec<&OnnxNode>, String> {
        let found: Vec<&OnnxNode> = self.nodes.iter().filter(|node| node.normalises_samples()).collect();
        let possible = |node: &&&OnnxNode| match node.operator.as_str() {
            "InstanceNormalization" => true,
            // Before, scale and bias belong to groups instead of channels.
            "GroupNormalization" => self.opset >= 21,
            _ => false,
        };
        match found.iter().find(|node| !possible(node)) {
            Some(node) => Err(format!("`{}` ({}) of opset {}", node.name, node.operator, self.opset)),
            None => Ok(found),
        }
    }
}

/// The same file with the first normalisations given these statistics. If there are more of them, it ends with the input of
/// the next one.
pub fn with_statistics(file: &[u8], known: &[ChannelStatistics]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(file.len());
    for field in Fields::of(file) {
        match field? {
            Field { number: 7, value: Content::Bytes(message) } => {
                put(&mut out, 7, Content::Bytes(&graph(message, known)?));
            }
            Field { number, value } => put(&mut out, number, value),
        }
    }
    Ok(out)
}

fn graph(message: &[u8], known: &[ChannelStatistics]) -> Result<Vec<u8>, String> {
    let (mut out, mut number, mut end) = (Vec::with_capacity(message.len()), 0, None);
    for field in Fields::of(message) {
        let field = field?;
        // Fields of one kind keep their order, and operators are listed in the order of computing.
        let Field { number: 1, value: Content::Bytes(bytes) } = field else {
            if field.number != 12 {
                put(&mut out, field.number, field.value);
            }
            continue;
        };
        let parsed = node(bytes)?;
        match (end.is_some(), parsed.normalises_samples()) {
            (true, _) => {}
            (false, false) => put(&mut out, 1, field.value),
            (false, true) => match known.get(number) {
                Some(statistics) => {
                    add_fixed(&mut out, &parsed, bytes, (number, statistics))?;
                    number += 1;
                }
                None => end = Some(parsed.inputs.first().cloned().unwrap_or_default()),
            },
        }
    }
    match end {
        Some(name) => put(&mut out, 12, Content::Bytes(&message_of(&[(1, name.as_bytes())]))),
        None => {
            for field in Fields::of(message) {
                let field = field?;
                if field.number == 12 {
                    put(&mut out, 12, field.value);
                }
            }
        }
    }
    Ok(out)
}

/// A normalisation with statistics, and the two constants that it uses.
fn add_fixed(
    out: &mut Vec<u8>,
    node: &OnnxNode,
    bytes: &[u8],
    (number, statistics): (usize, &ChannelStatistics),
) -> Result<(), String> {
    let names = ["mean", "variance"].map(|what| format!("sirtaki-{what}-{number}"));
    for (name, values) in names.iter().zip([&statistics.mean, &statistics.variance]) {
        put(out, 5, Content::Bytes(&tensor(name, &[values.len()], values)));
    }
    let [x, scale, bias] = node.inputs.as_slice() else {
        return Err(format!("`{}` ({}) has {} inputs instead of 3", node.name, node.operator, node.inputs.len()));
    };
    let inputs = [x, scale, bias, &names[0], &names[1]].map(|name| (1, name.as_bytes()));
    let mut fixed = message_of(&inputs);
    fixed.extend(message_of(&node.outputs.iter().map(|name| (2, name.as_bytes())).collect::<Vec<_>>()));
    fixed.extend(message_of(&[(3, node.name.as_bytes()), (4, b"BatchNormalization")]));
    for field in Fields::of(bytes) {
        // Of all settings, batch norm knows the first field of this one: its name.
        if let Field { number: 5, value: Content::Bytes(setting) } = field? {
            let name = Field { number: 1, value: Content::Bytes(b"epsilon") };
            if Fields::of(setting).any(|field| field == Ok(name)) {
                put(&mut fixed, 5, Content::Bytes(setting));
            }
        }
    }
    put(out, 1, Content::Bytes(&fixed));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn norm(x: &str, y: &str) -> Vec<u8> {
        let mut setting = message_of(&[(1, b"epsilon")]);
        put(&mut setting, 2, Content::Four(0.5_f32.to_le_bytes()));
        let fields: [(u64, &[u8]); 6] =
            [(1, x.as_bytes()), (1, b"s"), (1, b"b"), (2, y.as_bytes()), (4, b"InstanceNormalization"), (5, &setting)];
        message_of(&fields)
    }

    /// x → norm → a → Relu → b → norm → c
    fn file() -> Vec<u8> {
        let relu = message_of(&[(1, b"a"), (2, b"b"), (4, b"Relu")]);
        let output = message_of(&[(1, b"c")]);
        let graph = message_of(&[(1, &norm("x", "a")), (1, &relu), (1, &norm("b", "c")), (12, &output)]);
        message_of(&[(7, &graph)])
    }

    fn statistics() -> ChannelStatistics {
        ChannelStatistics { mean: vec![1.0, 2.0], variance: vec![3.0, 4.0] }
    }

    #[test]
    fn a_file_ends_where_statistics_are_missing() {
        let model = OnnxModel::parse(&file()).unwrap();
        assert_eq!(model.normalisations().unwrap().len(), 2);
        let first = OnnxModel::parse(&with_statistics(&file(), &[]).unwrap()).unwrap();
        assert_eq!((first.nodes.len(), first.outputs), (0, vec!["x".to_owned()]));
        let second = OnnxModel::parse(&with_statistics(&file(), &[statistics()]).unwrap()).unwrap();
        assert_eq!((second.nodes.len(), second.outputs), (2, vec!["b".to_owned()]));
        assert_eq!(second.nodes[0].operator, "BatchNormalization");
    }

    #[test]
    fn known_statistics_become_batch_norm() {
        let whole = with_statistics(&file(), &[statistics(), statistics()]).unwrap();
        let model = OnnxModel::parse(&whole).unwrap();
        assert_eq!(model.outputs, ["c"]);
        assert_eq!(model.nodes[2].inputs, ["b", "s", "b", "sirtaki-mean-1", "sirtaki-variance-1"]);
        assert_eq!(model.nodes[2].attributes.len(), 1);
        let mean = model.constants["sirtaki-mean-0"].values.as_ref().unwrap().floats();
        assert_eq!(mean, [1.0, 2.0]);
        assert!(model.normalisations().unwrap().is_empty());
        assert_eq!(with_statistics(&whole, &[]).unwrap().len(), whole.len(), "everything else is as it was");
    }
}
