//! A module as the tensors of a checkpoint, and back.
//!
//! Parameters are stored under their paths, so that other programs can read them.

use std::collections::BTreeSet;

use burn::{
    module::ParamId,
    tensor::{BoolStore, DType, TensorData},
};

use super::{convert::copied, module_tensors::Part, optimizer_record::is_state};
use crate::{
    Error, Result,
    checkpoint::{Content, Description, Dtype, Found},
};

pub(super) const IDENTITIES: &str = "identities";

/// The tensors of a module, in memory.
pub(super) struct Stored {
    parts: Vec<(Part, Dtype)>,
    identities: Vec<u8>,
}

impl Stored {
    pub(super) fn new(parts: Vec<Part>) -> Result<Self> {
        let identities: Vec<u8> = parts.iter().flat_map(|part| part.id.val().to_le_bytes()).collect();
        let typed = |part: Part| stored_type(&part.name, part.dtype).map(|dtype| (part, dtype));
        Ok(Self { parts: parts.into_iter().map(typed).collect::<Result<_>>()?, identities })
    }

    pub(super) fn tensors(&self) -> Vec<(Description, Content<'_>)> {
        let mut tensors = Vec::new();
        for (Part { name, shape, data, .. }, dtype) in &self.parts {
            let bytes = data.as_ref().map_or([].as_slice(), TensorData::as_bytes);
            let tensor = Description { name: name.clone(), dtype: *dtype, shape: shape.to_vec() };
            tensors.push((tensor, Content::Here(bytes)));
        }
        let identities = Description { name: IDENTITIES.into(), dtype: Dtype::U64, shape: vec![self.parts.len()] };
        tensors.push((identities, Content::Here(&self.identities)));
        tensors
    }
}

/// What tensors of this type are stored as.
pub(super) fn stored_type(name: &str, dtype: DType) -> Result<Dtype> {
    Ok(match dtype {
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
            let problem = format!("\"{name}\" is quantized, and quantized tensors are not saved");
            return Err(Error::setting(problem, "quantize the module after training"));
        }
    })
}

/// The values that a checkpoint has for a module of these parts, if it fits.
pub(super) fn restore(found: &Found, parts: Vec<Part>) -> Result<Vec<(String, ParamId, TensorData)>> {
    let foreign = |problem: String| {
        let hint = "continue with the model and optimizer that wrote it, or in another folder; it is left as it is";
        Error::file(&found.path, problem, hint)
    };
    let expected: BTreeSet<&str> = parts.iter().map(|part| part.name.as_str()).chain([IDENTITIES]).collect();
    let names = found.checkpoint.names();
    if let Some(name) = names.iter().find(|name| !expected.contains(name.as_str()) && !is_state(name)) {
        return Err(foreign(format!("tensor `{name}`: the model has none of this name")));
    }
    let tensor = |name: &str, dtype: Dtype, shape: &[usize]| {
        let there = found.checkpoint.describe(name);
        let there = there.ok_or_else(|| foreign(format!("tensor `{name}`: it is missing")))?;
        if there.dtype != dtype {
            return Err(foreign(format!("tensor `{name}`: {:?}, not {dtype:?}", there.dtype)));
        }
        if there.shape != shape {
            let problem = format!("tensor `{name}`: its shape is {:?}, and the model's is {shape:?}", there.shape);
            return Err(foreign(problem));
        }
        found.checkpoint.read(name)
    };
    let identities = tensor(IDENTITIES, Dtype::U64, &[parts.len()])?;
    let mut values = Vec::new();
    for (part, id) in parts.into_iter().zip(identities.as_chunks::<8>().0) {
        let bytes = tensor(&part.name, stored_type(&part.name, part.dtype)?, &part.shape)?;
        let data = copied(&bytes, part.shape, part.dtype);
        values.push((part.name, ParamId::from(u64::from_le_bytes(*id)), data));
    }
    Ok(values)
}
