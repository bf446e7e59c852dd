//! A module and its optimizer as the tensors of a checkpoint, and back.
//!
//! Parameters are stored under their paths, so that other programs can read them. The optimizer's state is in Burn's own
//! format, in one tensor of bytes, because Burn offers no other way to get it.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
};

use burn::{
    module::ParamId,
    optim::ModuleOptimizer,
    tensor::{BoolStore, Bytes, DType, TensorData},
};
use burn_pack::{Reader, Writer};

use super::{DistributedOptimizer, convert::copied, module_tensors::Part};
use crate::{
    Error, Result,
    checkpoint::{Dtype, Found, Tensor},
};

const IDENTITIES: &str = "identities";
const OPTIMIZER: &str = "optimizer";

/// What a checkpoint holds, in memory.
pub(super) struct Stored {
    parts: Vec<(Part, Dtype)>,
    identities: Vec<u8>,
    optimizer: Bytes,
    lengths: [usize; 2],
}

impl Stored {
    pub(super) fn new(parts: Vec<Part>, optimizer: &DistributedOptimizer) -> Result<Self> {
        if optimizer.is_gathering() {
            let problem = "some passes of a step are done and others are not, so there is no state to save";
            return Err(Error::setting(problem, "save after the last pass of a step"));
        }
        let identities: Vec<u8> = parts.iter().flat_map(|part| part.id.val().to_le_bytes()).collect();
        let unsaved = |error: String| {
            Error::setting(format!("the optimizer's state cannot be saved: {error}"), "use an optimizer of Burn's")
        };
        let optimizer = optimizer.inner().into_bytes().map_err(|error| unsaved(error.to_string()))?;
        let optimizer = sorted(optimizer).map_err(|error| unsaved(error.to_string()))?;
        let lengths = [parts.len(), optimizer.len()];
        let typed = |part: Part| stored_type(&part).map(|dtype| (part, dtype));
        Ok(Self { parts: parts.into_iter().map(typed).collect::<Result<_>>()?, identities, optimizer, lengths })
    }

    pub(super) fn tensors(&self) -> Vec<Tensor<'_>> {
        let [count, length] = &self.lengths;
        let (count, length) = (std::slice::from_ref(count), std::slice::from_ref(length));
        let mut tensors = Vec::new();
        for (Part { name, shape, data, .. }, dtype) in &self.parts {
            let bytes = data.as_ref().map_or([].as_slice(), TensorData::as_bytes);
            tensors.push(Tensor { name, dtype: *dtype, shape, bytes });
        }
        tensors.push(Tensor { name: IDENTITIES, dtype: Dtype::U64, shape: count, bytes: &self.identities });
        tensors.push(Tensor { name: OPTIMIZER, dtype: Dtype::U8, shape: length, bytes: &self.optimizer });
        tensors
    }
}

/// The state with its tensors in the order of their names. Burn writes them in the order of a hash table, which differs
/// from process to process, so equal states would make unequal files.
fn sorted(state: Bytes) -> std::result::Result<Bytes, burn_pack::Error> {
    let reader = Reader::from_bytes(state)?;
    let (scalars, metadata) = (reader.scalars().clone(), reader.metadata().clone());
    let mut tensors = reader.into_tensors()?;
    tensors.sort_by(|one, other| one.name.cmp(&other.name));
    let writer = metadata.iter().fold(Writer::new(tensors), |writer, (key, value)| writer.with_metadata(key, value));
    scalars.iter().fold(writer, |writer, (key, value)| writer.with_scalar(key, *value)).into_bytes()
}

/// What tensors of this type are stored as.
fn stored_type(part: &Part) -> Result<Dtype> {
    Ok(match part.dtype {
        DType::F64 => Dtype::F64,
        DType::F32 | DType::Flex32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::I64 => Dtype::I64,
        DType::I32 => Dtype::I32,
        DType::I16 => Dtype::I16,
        DType::I8 => Dtype::I8,
        DType::U64 => Dtype::U64,
        DType::U32 | DType::Bool(BoolStore::U32) => Dtype::U32,
        DType::U16 => Dtype::U16,
        DType::U8 => Dtype::U8,
        DType::Bool(_) => Dtype::BOOL,
        DType::QFloat(_) => {
            let problem = format!("\"{}\" is quantized, and quantized tensors are not saved", part.name);
            return Err(Error::setting(problem, "quantize the module after training"));
        }
    })
}

/// The values for a module of these parts, and the optimizer with its state.
pub(super) type Restored = (Vec<(String, ParamId, TensorData)>, ModuleOptimizer);

/// Takes everything out of a checkpoint, if it fits.
pub(super) fn restore(found: &Found, parts: Vec<Part>, optimizer: &DistributedOptimizer) -> Result<Restored> {
    let foreign = |problem: String| {
        let hint = "continue with the model and optimizer that wrote it, or in another folder; it is left as it is";
        Error::file(&found.path, problem, hint)
    };
    let expected: BTreeSet<&str> = parts.iter().map(|part| part.name.as_str()).chain([IDENTITIES, OPTIMIZER]).collect();
    if let Some(name) = found.checkpoint.names().iter().find(|name| !expected.contains(name.as_str())) {
        return Err(foreign(format!("tensor `{name}`: the model has none of this name")));
    }
    let tensor = |name: &str, dtype: Dtype, shape: Option<&[usize]>| {
        let tensor = found.checkpoint.tensor(name);
        let tensor = tensor.ok_or_else(|| foreign(format!("tensor `{name}`: it is missing")))?;
        match shape {
            _ if tensor.dtype != dtype => Err(foreign(format!("tensor `{name}`: {:?}, not {dtype:?}", tensor.dtype))),
            Some(shape) if shape != tensor.shape => {
                Err(foreign(format!("tensor `{name}`: its shape is {:?}, and the model's is {shape:?}", tensor.shape)))
            }
            _ => Ok(tensor.bytes.to_vec()),
        }
    };
    let identities = tensor(IDENTITIES, Dtype::U64, Some(&[parts.len()]))?;
    let mut values = Vec::new();
    for (part, id) in parts.into_iter().zip(identities.as_chunks::<8>().0) {
        let bytes = tensor(&part.name, stored_type(&part)?, Some(&part.shape))?;
        let data = copied(&bytes, part.shape, part.dtype);
        values.push((part.name, ParamId::from(u64::from_le_bytes(*id)), data));
    }
    let state = with_state(optimizer.inner(), tensor(OPTIMIZER, Dtype::U8, None)?);
    Ok((values, state.map_err(|problem| foreign(format!("tensor `{OPTIMIZER}`: {problem}")))?))
}

/// The optimizer with this state. Burn leaves out what it cannot use, which would be a silent loss; so the state it has
/// loaded must be as large as the one it was given.
fn with_state(optimizer: &ModuleOptimizer, state: Vec<u8>) -> std::result::Result<ModuleOptimizer, String> {
    use burn::optim::record::OptimizerRecord;

    let load = || {
        let record = OptimizerRecord::from_bytes(Bytes::from_bytes_vec(state)).map_err(|error| error.to_string())?;
        let there = format!("{record:?}");
        let loaded = optimizer.clone().load_record(record);
        let here = format!("{:?}", loaded.to_record());
        if here == there { Ok(loaded) } else { Err("it is the state of another optimizer".to_owned()) }
    };
    catch_unwind(AssertUnwindSafe(load)).unwrap_or_else(|_| Err("it is not the state of an optimizer".into()))
}
