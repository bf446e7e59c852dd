//! What does not depend on the volume's values: shapes, sizes computed from them, and weights.
//!
//! Of weights only the shape is followed. A few numbers are computed, with the operators that exporters use for sizes.

use super::{
    super::onnx::{FEW, Numbers, OnnxAttribute, OnnxConstant, OnnxNode},
    Lowered, Value, axis_of, refuse,
};
use crate::VolumeError;

fn ints(values: Vec<i64>) -> Value {
    let shape = vec![values.len() as u64];
    Value::Constant(OnnxConstant { shape, values: Some(Numbers::Ints(values)) })
}

/// The shape of a value, as numbers.
pub(super) fn shape(node: &OnnxNode, input: Option<&Value>) -> Lowered<Value> {
    let shape = match input {
        Some(Value::Spread(field)) => &field.shape,
        Some(Value::Constant(constant)) => &constant.shape,
        None => return Err(refuse::unknown(node)),
    };
    let sizes: Vec<i64> = shape.iter().map(|size| i64::try_from(*size).unwrap_or(i64::MAX)).collect();
    if node.operator == "Size" {
        let product = sizes.iter().fold(1, |product: i64, size| product.saturating_mul(*size));
        return Ok(Value::Constant(OnnxConstant { shape: vec![], values: Some(Numbers::Ints(vec![product])) }));
    }
    let rank = sizes.len() as i64;
    let place =
        |at: i64| usize::try_from(if at < 0 { at.saturating_add(rank) } else { at }.clamp(0, rank)).unwrap_or(0);
    let (start, end) = (place(node.int("start").unwrap_or(0)), place(node.int("end").unwrap_or(rank)));
    Ok(ints(sizes.get(start..end).unwrap_or_default().to_vec()))
}

/// An operator on constants alone.
pub(super) fn evaluate(node: &OnnxNode, inputs: &[Option<Value>]) -> Lowered<Value> {
    let given: Vec<&OnnxConstant> = inputs
        .iter()
        .flatten()
        .filter_map(|value| match value {
            Value::Constant(constant) => Some(constant),
            Value::Spread(_) => None,
        })
        .collect();
    let constant = match node.operator.as_str() {
        "Constant" => constant(node),
        "ConstantOfShape" => filled(node, &given),
        "Gather" => gather(node, &given)?,
        "Slice" => slice(node, &given),
        "Concat" => concatenate(node, &given)?,
        "Transpose" => transposed(node, &given),
        "Unsqueeze" | "Squeeze" | "Reshape" => reshaped(node, &given)?,
        "Cast" => cast(node, &given),
        _ => broadcast(node, &given),
    };
    constant.map(Value::Constant).ok_or_else(|| refuse::unknown(node))
}

fn constant(node: &OnnxNode) -> Option<OnnxConstant> {
    let (_, value) = node.attributes.iter().find(|(name, _)| name.starts_with("value"))?;
    let (shape, values) = match value {
        OnnxAttribute::Constant(constant) => return Some(constant.clone()),
        OnnxAttribute::Int(value) => (vec![], Numbers::Ints(vec![*value])),
        OnnxAttribute::Float(value) => (vec![], Numbers::Floats(vec![*value])),
        OnnxAttribute::Ints(values) => (vec![values.len() as u64], Numbers::Ints(values.clone())),
        OnnxAttribute::Floats(values) => (vec![values.len() as u64], Numbers::Floats(values.clone())),
        OnnxAttribute::Text(_) | OnnxAttribute::Other => return None,
    };
    Some(OnnxConstant { shape, values: Some(values) })
}

fn filled(node: &OnnxNode, given: &[&OnnxConstant]) -> Option<OnnxConstant> {
    let shape: Option<Vec<u64>> =
        given.first()?.values.as_ref()?.ints().iter().map(|size| u64::try_from(*size).ok()).collect();
    let shape = shape?;
    let count = shape.iter().try_fold(1_u64, |count, size| count.checked_mul(*size))?;
    let value = match node.attributes.get("value") {
        Some(OnnxAttribute::Constant(constant)) => constant.values.clone()?,
        _ => Numbers::Floats(vec![0.0]),
    };
    let repeat = usize::try_from(count).ok().filter(|_| count <= FEW);
    let values = repeat.map(|count| match &value {
        Numbers::Ints(values) => Numbers::Ints(vec![values.first().copied().unwrap_or(0); count]),
        Numbers::Floats(values) => Numbers::Floats(vec![values.first().copied().unwrap_or(0.0); count]),
    });
    Some(OnnxConstant { shape, values })
}

fn gather(node: &OnnxNode, given: &[&OnnxConstant]) -> Lowered<Option<OnnxConstant>> {
    let [data, indices] = given else { return Ok(None) };
    let Some(numbers) = &indices.values else { return Ok(None) };
    let axis = axis_of(node, node.int("axis").unwrap_or(0), data.shape.len())?;
    let shape = [&data.shape[..axis], &indices.shape, &data.shape[axis + 1..]].concat();
    let values = match &data.values {
        Some(values) if data.shape.len() == 1 => {
            let places: Lowered<Vec<usize>> =
                numbers.ints().iter().map(|at| axis_of(node, *at, values.len())).collect();
            Some(picked(values, &places?))
        }
        _ => None,
    };
    Ok(Some(OnnxConstant { shape, values }))
}

fn picked(values: &Numbers, places: &[usize]) -> Numbers {
    match values {
        Numbers::Ints(values) => Numbers::Ints(places.iter().map(|at| values[*at]).collect()),
        Numbers::Floats(values) => Numbers::Floats(places.iter().map(|at| values[*at]).collect()),
    }
}

/// Of a list of numbers, which is all that shapes need.
fn slice(node: &OnnxNode, given: &[&OnnxConstant]) -> Option<OnnxConstant> {
    let data = given.first().filter(|data| data.shape.len() == 1)?;
    let values = data.values.as_ref()?;
    let first = |name: &str, number: usize| match node.ints(name) {
        Some(list) => list.first().copied(),
        None => given.get(number)?.values.as_ref()?.ints().first().copied(),
    };
    let rank = values.len() as i64;
    let inside = |at: i64| if at < 0 { at.saturating_add(rank) } else { at }.clamp(0, rank);
    let (start, end) = (inside(first("starts", 1)?), inside(first("ends", 2)?));
    let step = usize::try_from(first("steps", 4).unwrap_or(1)).ok().filter(|step| *step > 0)?;
    let places: Vec<usize> = (start..end).step_by(step).filter_map(|at| usize::try_from(at).ok()).collect();
    let values = picked(values, &places);
    Some(OnnxConstant { shape: vec![values.len() as u64], values: Some(values) })
}

fn concatenate(node: &OnnxNode, given: &[&OnnxConstant]) -> Lowered<Option<OnnxConstant>> {
    let Some(first) = given.first() else { return Ok(None) };
    let axis = axis_of(node, node.int("axis").unwrap_or(0), first.shape.len())?;
    let mut shape = first.shape.clone();
    shape[axis] = given.iter().filter_map(|part| part.shape.get(axis)).sum();
    let few = shape.len() == 1 && shape[0] <= FEW;
    let parts: Option<Vec<&Numbers>> = given.iter().map(|part| part.values.as_ref()).collect();
    let values = parts.filter(|_| few).map(|parts| {
        if parts.iter().all(|part| matches!(part, Numbers::Ints(_))) {
            Numbers::Ints(parts.iter().flat_map(|part| part.ints()).collect())
        } else {
            Numbers::Floats(parts.iter().flat_map(|part| part.floats()).collect())
        }
    });
    Ok(Some(OnnxConstant { shape, values }))
}

fn transposed(node: &OnnxNode, given: &[&OnnxConstant]) -> Option<OnnxConstant> {
    let data = given.first()?;
    let reversed = || (0..data.shape.len()).rev().collect();
    let order: Vec<usize> = match node.ints("perm") {
        Some(order) => order.iter().map(|axis| usize::try_from(*axis).ok()).collect::<Option<_>>()?,
        None => reversed(),
    };
    let shape: Option<Vec<u64>> = order.iter().map(|axis| data.shape.get(*axis).copied()).collect();
    Some(OnnxConstant { shape: shape?, values: data.values.clone().filter(|_| data.shape.len() < 2) })
}

/// The same values in another shape.
fn reshaped(node: &OnnxNode, given: &[&OnnxConstant]) -> Lowered<Option<OnnxConstant>> {
    let Some(data) = given.first() else { return Ok(None) };
    let second = given.get(1).and_then(|second| second.values.as_ref()).map(Numbers::ints);
    let numbers = node.ints("axes").or_else(|| node.ints("shape")).map(<[i64]>::to_vec).or(second);
    let shape = match (node.operator.as_str(), numbers) {
        ("Unsqueeze", Some(axes)) => inserted(node, &data.shape, &axes)?,
        ("Squeeze", axes) => removed(node, &data.shape, axes.as_deref())?,
        ("Reshape", Some(shape)) => {
            let Some(shape) = resolved(&data.shape, &shape) else { return Ok(None) };
            shape
        }
        _ => return Ok(None),
    };
    Ok(Some(OnnxConstant { shape, values: data.values.clone() }))
}

/// A shape with axes of size 1 put in.
pub(super) fn inserted(node: &OnnxNode, shape: &[u64], axes: &[i64]) -> Lowered<Vec<u64>> {
    let rank = shape.len() + axes.len();
    let places: Vec<usize> = axes.iter().map(|axis| axis_of(node, *axis, rank)).collect::<Lowered<_>>()?;
    let mut rest = shape.iter();
    Ok((0..rank).map(|axis| if places.contains(&axis) { 1 } else { rest.next().copied().unwrap_or(1) }).collect())
}

/// A shape without these axes, or without all of size 1.
pub(super) fn removed(node: &OnnxNode, shape: &[u64], axes: Option<&[i64]>) -> Lowered<Vec<u64>> {
    let gone: Vec<usize> = match axes {
        Some(axes) => axes.iter().map(|axis| axis_of(node, *axis, shape.len())).collect::<Lowered<_>>()?,
        None => (0..shape.len()).filter(|axis| shape[*axis] == 1).collect(),
    };
    Ok(shape.iter().enumerate().filter(|(axis, _)| !gone.contains(axis)).map(|(_, size)| *size).collect())
}

/// The shape that a `Reshape` to these numbers gives: 0 keeps a size, −1 is what remains.
pub(super) fn resolved(from: &[u64], to: &[i64]) -> Option<Vec<u64>> {
    let all = from.iter().try_fold(1_u64, |product, size| product.checked_mul(*size))?;
    let known: Vec<Option<u64>> = to
        .iter()
        .enumerate()
        .map(|(axis, size)| if *size == 0 { from.get(axis).copied() } else { u64::try_from(*size).ok() })
        .collect();
    let product = known.iter().flatten().try_fold(1_u64, |product, size| product.checked_mul(*size))?;
    let rest = all.checked_div(product)?;
    Some(known.into_iter().map(|size| size.unwrap_or(rest)).collect())
}

fn cast(node: &OnnxNode, given: &[&OnnxConstant]) -> Option<OnnxConstant> {
    let data = given.first()?;
    // 1, 10, 11 and 16 are the floating-point types.
    let real = matches!(node.int("to"), Some(1 | 10 | 11 | 16));
    let values = data.values.as_ref().map(|values| match real {
        true => Numbers::Floats(values.floats()),
        false => Numbers::Ints(values.ints()),
    });
    Some(OnnxConstant { shape: data.shape.clone(), values })
}

/// Arithmetic, element by element.
fn broadcast(node: &OnnxNode, given: &[&OnnxConstant]) -> Option<OnnxConstant> {
    let shape = given.iter().try_fold(Vec::new(), |shape, constant| broadcast_shape(&shape, &constant.shape))?;
    let operator: fn(f64, f64) -> f64 = match node.operator.as_str() {
        "Add" => |a, b| a + b,
        "Sub" => |a, b| a - b,
        "Mul" => |a, b| a * b,
        "Div" => |a, b| a / b,
        "Mod" => |a, b| a - b * (a / b).floor(),
        "Min" => f64::min,
        "Max" => f64::max,
        "Floor" => |a, _| a.floor(),
        "Ceil" => |a, _| a.ceil(),
        "Neg" => |a, _| -a,
        "Identity" => |a, _| a,
        name if super::join::is_local(name) => return Some(OnnxConstant { shape, values: None }),
        _ => return None,
    };
    let (one, two) = (given.first()?.values.as_ref(), given.get(1).or(given.first())?.values.as_ref());
    let values = one.zip(two).and_then(|(one, two)| combined(one, two, operator));
    Some(OnnxConstant { shape, values })
}

/// Numbers of up to 2⁵³ are exact this way, and no volume is longer.
fn combined(one: &Numbers, two: &Numbers, operator: fn(f64, f64) -> f64) -> Option<Numbers> {
    let whole = matches!((one, two), (Numbers::Ints(_), Numbers::Ints(_)));
    let (one, two) = (one.floats(), two.floats());
    let count = one.len().max(two.len());
    let repeats = |values: &Vec<f64>| values.len() == count || values.len() == 1;
    if !repeats(&one) || !repeats(&two) {
        return None;
    }
    let at = |values: &Vec<f64>, at: usize| if values.len() == 1 { values[0] } else { values[at] };
    let values: Vec<f64> = (0..count).map(|number| operator(at(&one, number), at(&two, number))).collect();
    Some(match whole {
        true => Numbers::Ints(values.iter().map(|value| value.trunc() as i64).collect()),
        false => Numbers::Floats(values),
    })
}

/// The shape of two values combined element by element; sizes of 1 repeat.
pub(super) fn broadcast_shape(one: &[u64], two: &[u64]) -> Option<Vec<u64>> {
    let rank = one.len().max(two.len());
    let at = |shape: &[u64], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |axis| shape[axis]);
    (0..rank)
        .map(|axis| match (at(one, axis), at(two, axis)) {
            (1, size) | (size, 1) => Some(size),
            (a, b) if a == b => Some(a),
            _ => None,
        })
        .collect()
}

/// For what cannot be combined.
pub(super) fn mismatch(node: &OnnxNode, one: &[u64], two: &[u64]) -> VolumeError {
    VolumeError::Invalid(format!("{} combines shapes {one:?} and {two:?}", refuse::said(node)))
}
