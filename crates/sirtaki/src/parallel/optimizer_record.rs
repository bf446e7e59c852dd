//! The state of one of Burn's optimizers as tensors by path, and back.
//!
//! Burn offers its state in a format of its own, where everything belongs to the identity of a parameter. Here it
//! belongs to the path of the parameter, each tensor by itself, so that it can be saved and read in pieces and by other
//! layouts of ranks. Numbers, such as how many steps Adam has made, are tensors without dimensions under another prefix.

use std::{
    collections::{BTreeMap, HashMap},
    panic::{AssertUnwindSafe, catch_unwind},
};

use burn::{
    module::{Module, ParamId},
    optim::{ModuleOptimizer, record::OptimizerRecord},
    tensor::{Bytes, DType, TensorData},
};
use burn_pack::{Reader, Scalar, Tensor, Writer};

use super::{
    OptimizerState,
    checkpoint_tensors::stored_type,
    convert::copied,
    module_tensors::{Which, read},
};
use crate::{
    Error, Result,
    checkpoint::{Description, Dtype},
};

const TENSOR: &str = "optimizer/";
const NUMBER: &str = "optimizer number/";
/// The number under which Burn keeps how many dimensions a parameter has; of a slice, that is one.
pub(super) const DIMENSIONS: &str = "__rank";

/// Whether a tensor of a checkpoint is a part of the optimizer's state.
pub(super) fn is_state(name: &str) -> bool {
    name.starts_with(TENSOR) || name.starts_with(NUMBER)
}

/// What is kept for a parameter, by the names of Burn's fields.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) tensors: BTreeMap<String, TensorData>,
    pub(super) numbers: BTreeMap<String, Scalar>,
}

/// A parameter of a module by which its state is known.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) path: String,
    pub(super) id: ParamId,
}

/// The parameters of a module; one with two places goes by the first.
pub(super) fn known<M: Module>(module: &M) -> Result<Vec<Known>> {
    let mut known: Vec<Known> = Vec::new();
    for part in read(module, "", Which::All, false)? {
        if known.iter().all(|known| known.id != part.id) {
            let path = part.name.trim_start_matches('/').to_owned();
            known.push(Known { path, id: part.id });
        }
    }
    Ok(known)
}

/// What the optimizer keeps for each parameter.
pub(super) fn fields(optimizer: &ModuleOptimizer) -> Result<HashMap<u64, Fields>> {
    let unsaved = |error: &dyn std::fmt::Display| {
        Error::setting(format!("the optimizer's state cannot be saved: {error}"), "use an optimizer of Burn's")
    };
    let reader = optimizer.into_bytes().map_err(|error| unsaved(&error))?;
    let reader = Reader::from_bytes(reader).map_err(|error| unsaved(&error))?;
    let mut all: HashMap<u64, Fields> = HashMap::new();
    for (name, number) in reader.scalars() {
        let (id, field) = split(name).ok_or_else(|| unsaved(name))?;
        all.entry(id).or_default().numbers.insert(field.to_owned(), *number);
    }
    for tensor in reader.into_tensors().map_err(|error| unsaved(&error))? {
        let (name, dtype, shape, _, bytes) = tensor.into_parts().map_err(|error| unsaved(&error))?;
        let (id, field) = split(&name).ok_or_else(|| unsaved(&name))?;
        let data = TensorData::from_bytes(bytes, shape, dtype);
        all.entry(id).or_default().tensors.insert(field.to_owned(), data);
    }
    Ok(all)
}

/// Identity and field.
fn split(name: &str) -> Option<(u64, &str)> {
    let (id, field) = name.split_once('.')?;
    Some((id.parse().ok()?, field))
}

/// The optimizer with this state. Burn leaves out what it cannot use, which would be a silent loss; so the state it has
/// loaded must be as large as the one it was given.
pub(super) fn with_fields(
    optimizer: &ModuleOptimizer,
    state: Vec<(Known, Fields)>,
) -> std::result::Result<ModuleOptimizer, String> {
    let (mut tensors, mut scalars, mut paths) = (Vec::new(), Vec::new(), Vec::new());
    for (Known { path, id }, fields) in state {
        let id = id.val();
        for (field, data) in fields.tensors {
            let (bytes, shape, dtype) = data.into_parts();
            tensors.push(Tensor::new(format!("{id}.{field}"), dtype, shape, Some(id), bytes));
        }
        scalars.extend(fields.numbers.into_iter().map(|(field, number)| (format!("{id}.{field}"), number)));
        paths.push((id.to_string(), path));
    }
    let load = || {
        let writer = paths.iter().fold(Writer::new(tensors), |writer, (id, path)| writer.with_metadata(id, path));
        let writer = scalars.iter().fold(writer, |writer, (name, number)| writer.with_scalar(name, *number));
        let bytes: Bytes = writer.into_bytes().map_err(|error| error.to_string())?;
        let record = OptimizerRecord::from_bytes(bytes).map_err(|error| error.to_string())?;
        let there = format!("{record:?}");
        let loaded = optimizer.clone().load_record(record);
        let here = format!("{:?}", loaded.to_record());
        if here == there { Ok(loaded) } else { Err("it is the state of another optimizer".to_owned()) }
    };
    catch_unwind(AssertUnwindSafe(load)).unwrap_or_else(|_| Err("it is not the state of an optimizer".into()))
}

/// The state of an optimizer that has all of it.
pub(super) fn save<M: Module>(optimizer: &ModuleOptimizer, module: &M) -> Result<OptimizerState<'static>> {
    let mut all = fields(optimizer)?;
    let mut contents = HashMap::new();
    for known in known(module)? {
        let Some(fields) = all.remove(&known.id.val()) else { continue };
        for (field, data) in fields.tensors {
            let name = tensor_name(&known.path, &field);
            let dtype = stored_type(&name, data.dtype())?;
            contents.insert(name, (dtype, data.shape().to_vec(), data.into_parts().0));
        }
        for (field, number) in fields.numbers {
            let (dtype, bytes) = number_bytes(number);
            contents.insert(number_name(&known.path, &field), (dtype, Vec::new(), Bytes::from_bytes_vec(bytes)));
        }
    }
    let describe = |(name, (dtype, shape, _)): (&String, &(Dtype, Vec<usize>, Bytes))| Description {
        name: name.clone(),
        dtype: *dtype,
        shape: shape.clone(),
    };
    let tensors = contents.iter().map(describe).collect();
    let read =
        move |tensor: &Description| Ok(contents.remove(&tensor.name).map_or(Vec::new(), |(.., bytes)| bytes.to_vec()));
    Ok(OptimizerState::new(tensors, read, None))
}

/// The optimizer with all of a state.
pub(super) fn restore<M: Module>(
    optimizer: &ModuleOptimizer,
    module: &M,
    mut state: OptimizerState<'_>,
) -> Result<ModuleOptimizer> {
    if state.tensors().is_empty() {
        return Ok(optimizer.clone());
    }
    let mut all: HashMap<String, (Known, Fields)> =
        known(module)?.into_iter().map(|known| (known.path.clone(), (known, Fields::default()))).collect();
    for tensor in state.tensors().to_vec() {
        let foreign = || state.refused(format!("tensor `{}`: the model has no such parameter", tensor.name));
        let field = Field::of(&tensor.name).ok_or_else(foreign)?;
        let (_, fields) = all.get_mut(field.path()).ok_or_else(foreign)?;
        let bytes = state.read(&tensor)?;
        let strange = || state.refused(format!("tensor `{}`: {:?} {:?}", tensor.name, tensor.dtype, tensor.shape));
        match field {
            Field::Tensor(_, field) => {
                let dtype = tensor_type(tensor.dtype).ok_or_else(strange)?;
                let data = copied(&bytes, tensor.shape.clone().into(), dtype);
                fields.tensors.insert(field.to_owned(), data);
            }
            Field::Number(_, field) => {
                let number = number_of(tensor.dtype, &bytes).ok_or_else(strange)?;
                fields.numbers.insert(field.to_owned(), number);
            }
        }
    }
    let used = |(_, fields): &(Known, Fields)| !fields.tensors.is_empty() || !fields.numbers.is_empty();
    with_fields(optimizer, all.into_values().filter(used).collect()).map_err(|problem| state.refused(problem))
}

/// What a tensor of a state is, from its name.
#[derive(Debug, Clone, Copy)]
pub(super) enum Field<'a> {
    /// Path of the parameter, and field.
    Tensor(&'a str, &'a str),
    /// The same of a number.
    Number(&'a str, &'a str),
}

impl<'a> Field<'a> {
    pub(super) fn of(name: &'a str) -> Option<Self> {
        match (name.strip_prefix(TENSOR), name.strip_prefix(NUMBER)) {
            (Some(rest), _) => rest.rsplit_once('/').map(|(path, field)| Field::Tensor(path, field)),
            (_, Some(rest)) => rest.rsplit_once('/').map(|(path, field)| Field::Number(path, field)),
            _ => None,
        }
    }

    pub(super) fn path(self) -> &'a str {
        match self {
            Field::Tensor(path, _) | Field::Number(path, _) => path,
        }
    }
}

pub(super) fn tensor_name(path: &str, field: &str) -> String {
    format!("{TENSOR}{path}/{field}")
}

pub(super) fn number_name(path: &str, field: &str) -> String {
    format!("{NUMBER}{path}/{field}")
}

/// A number as the only element of a tensor.
pub(super) fn number_bytes(number: Scalar) -> (Dtype, Vec<u8>) {
    match number {
        Scalar::Int(number) => (Dtype::I64, number.to_le_bytes().into()),
        Scalar::UInt(number) => (Dtype::U64, number.to_le_bytes().into()),
        Scalar::Float(number) => (Dtype::F64, number.to_le_bytes().into()),
        Scalar::Bool(flag) => (Dtype::BOOL, vec![u8::from(flag)]),
    }
}

/// The result of [`number_bytes`].
pub(super) fn number_of(dtype: Dtype, bytes: &[u8]) -> Option<Scalar> {
    Some(match dtype {
        Dtype::I64 => Scalar::Int(i64::from_le_bytes(bytes.try_into().ok()?)),
        Dtype::U64 => Scalar::UInt(u64::from_le_bytes(bytes.try_into().ok()?)),
        Dtype::F64 => Scalar::Float(f64::from_le_bytes(bytes.try_into().ok()?)),
        Dtype::BOOL => Scalar::Bool(*bytes.first()? != 0),
        _ => return None,
    })
}

/// Burn's type for stored elements.
pub(super) fn tensor_type(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::I64 => DType::I64,
        Dtype::I32 => DType::I32,
        Dtype::U8 => DType::U8,
        _ => return None,
    })
}
