//! State of which every rank has a part, as whole tensors by path, and back.
//!
//! Rank 0 gets and gives whole tensors, one at a time, each from and to the ranks that have a part of it; no rank has the
//! whole state in memory. Which tensors there are all ranks find out first, because a rank has no state of parameters of
//! which it has no element.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use burn::{optim::ModuleOptimizer, tensor::TensorData};
use burn_pack::Scalar;
use serde::{Deserialize, Serialize};
use sirtaki_engine::{Operation, Request, Tensor};

use super::Layout;
use crate::{
    Error, OptimizerState, Result, World,
    checkpoint::{Description, Dtype},
    parallel::{
        checkpoint_tensors::stored_type,
        convert::copied,
        optimizer_record::{
            DIMENSIONS, Field, Fields, Known, fields, number_bytes, number_name, number_of, tensor_name, tensor_type,
            with_fields,
        },
    },
    world::elements,
};

/// What is kept for a parameter, without the elements.
#[derive(Serialize, Deserialize)]
struct Kept {
    parameter: usize,
    tensors: Vec<(String, Dtype)>,
    /// The numbers with their bytes.
    numbers: Vec<(String, Dtype, Vec<u8>)>,
}

/// The state of all ranks.
pub(super) fn save<'a>(
    world: &'a World,
    layout: &'a Layout,
    optimizer: &ModuleOptimizer,
) -> Result<OptimizerState<'a>> {
    let mut all = fields(optimizer)?;
    let (mut mine, mut kept) = (HashMap::new(), Vec::new());
    for (index, parameter) in layout.blocks.parameters.iter().enumerate() {
        let Some(fields) = all.remove(&parameter.id.val()) else { continue };
        let (mut tensors, mut numbers) = (Vec::new(), Vec::new());
        for (field, data) in fields.tensors {
            tensors.push((field.clone(), stored_type(&parameter.path, data.dtype())?));
            mine.insert(tensor_name(&parameter.path, &field), data);
        }
        for (field, number) in fields.numbers {
            let number = if field == DIMENSIONS { Scalar::from(parameter.shape.len()) } else { number };
            let (dtype, bytes) = number_bytes(number);
            numbers.push((field, dtype, bytes));
        }
        kept.push(Kept { parameter: index, tensors, numbers });
    }
    let (mut tensors, mut numbers, mut places) = (BTreeMap::new(), HashMap::new(), HashMap::new());
    for Kept { parameter, tensors: of_parameter, numbers: of_numbers } in from_all(world, &kept)? {
        let Some(known) = layout.blocks.parameters.get(parameter) else { continue };
        for (field, dtype) in of_parameter {
            let name = tensor_name(&known.path, &field);
            places.insert(name.clone(), parameter);
            tensors.insert(name, (dtype, known.shape.to_vec()));
        }
        for (field, dtype, bytes) in of_numbers {
            let name = number_name(&known.path, &field);
            numbers.insert(name.clone(), bytes);
            tensors.insert(name, (dtype, Vec::new()));
        }
    }
    let describe = |(name, (dtype, shape)): (String, (Dtype, Vec<usize>))| Description { name, dtype, shape };
    let read = move |tensor: &Description| match numbers.remove(&tensor.name) {
        Some(bytes) => Ok(bytes),
        None => {
            let own = mine.remove(&tensor.name);
            collect(world, layout, places[&tensor.name], tensor, own)
        }
    };
    Ok(OptimizerState::new(tensors.into_iter().map(describe).collect(), read, None))
}

/// What all ranks keep.
fn from_all(world: &World, kept: &[Kept]) -> Result<Vec<Kept>> {
    let broken = |error: postcard::Error| Error::setting(format!("the optimizer's state: {error}"), "report this");
    let bytes = postcard::to_stdvec(kept).map_err(broken)?;
    let name = "optimizer state of all ranks";
    let request = Request::new(name, Operation::AllGather, sirtaki_comm::DType::U8, &[bytes.len()]).of_all();
    let bytes = elements::<u8>(name, world.engine().submit(request, Tensor::from_vec(bytes)).wait_one()?)?;
    let (mut rest, mut all) = (bytes.as_slice(), Vec::new());
    while !rest.is_empty() {
        let (kept, after) = postcard::take_from_bytes::<Vec<Kept>>(rest).map_err(broken)?;
        all.extend(kept);
        rest = after;
    }
    Ok(all)
}

/// A whole tensor on rank 0, from the parts of all ranks.
fn collect(
    world: &World,
    layout: &Layout,
    parameter: usize,
    tensor: &Description,
    own: Option<TensorData>,
) -> Result<Vec<u8>> {
    let size = tensor.dtype.bitsize() / 8;
    let own: Vec<u8> = own.map_or(Vec::new(), |data| data.as_bytes().to_vec());
    let mut splits = vec![0; world.size()];
    splits[0] = own.len();
    let received = exchange(world, &tensor.name, splits, own)?;
    if world.rank() > 0 {
        return Ok(Vec::new());
    }
    let mut whole = vec![0; tensor.bytes().unwrap_or(0)];
    let mut rest = received.as_slice();
    for range in (0..world.size()).flat_map(|rank| owned(layout, world, rank, parameter)) {
        let (part, after) = rest.split_at((range.len() * size).min(rest.len()));
        whole[range.start * size..][..part.len()].copy_from_slice(part);
        rest = after;
    }
    Ok(whole)
}

/// What a rank has of a parameter.
fn owned(layout: &Layout, world: &World, rank: usize, parameter: usize) -> Vec<Range<usize>> {
    let blocks = layout.blocks.blocks.iter().flat_map(|block| block.share(rank, world.size()));
    blocks.filter(|span| span.parameter == parameter).map(|span| span.elements).collect()
}

fn exchange(world: &World, name: &str, splits: Vec<usize>, bytes: Vec<u8>) -> Result<Vec<u8>> {
    if world.size() == 1 {
        return Ok(bytes);
    }
    let operation = Operation::AllToAll { splits };
    let request = Request::new(name, operation, sirtaki_comm::DType::U8, &[bytes.len()]).of_all();
    elements::<u8>(name, world.engine().submit(request, Tensor::from_vec(bytes)).wait_one()?)
}

/// A tensor of a state as all ranks hear of it from rank 0.
#[derive(Serialize, Deserialize)]
struct Announced {
    parameter: usize,
    field: String,
    name: String,
    dtype: Dtype,
    /// Of a number.
    bytes: Option<Vec<u8>>,
}

/// The optimizer with this rank's part of a state that rank 0 has.
pub(super) fn restore(
    world: &World,
    layout: &Layout,
    optimizer: &ModuleOptimizer,
    mut state: OptimizerState<'_>,
) -> Result<ModuleOptimizer> {
    let announced = world.on_rank_0("optimizer state announced", || announce(layout, &mut state))?;
    let mut mine: BTreeMap<usize, Fields> = BTreeMap::new();
    let mut failed = None;
    for Announced { parameter, field, name, dtype, bytes } in announced {
        let known = &layout.blocks.parameters[parameter];
        let has_some = !layout.own[parameter].is_empty();
        if let Some(bytes) = bytes {
            let number = if field == DIMENSIONS { Some(Scalar::from(1_usize)) } else { number_of(dtype, &bytes) };
            if let (Some(number), true) = (number, has_some) {
                mine.entry(parameter).or_default().numbers.insert(field, number);
            }
            continue;
        }
        let tensor = Description { name, dtype, shape: known.shape.to_vec() };
        // The others wait for this tensor, so rank 0 goes on even if it cannot read it.
        let whole = (world.rank() == 0).then(|| state.read(&tensor)).transpose().unwrap_or_else(|error| {
            failed.get_or_insert(error);
            tensor.bytes().map(|length| vec![0; length])
        });
        let part = deal(world, layout, parameter, &tensor, whole.as_deref())?;
        if let (Some(dtype), true) = (tensor_type(dtype), has_some) {
            let shape = [part.len() / dtype.size()].into();
            mine.entry(parameter).or_default().tensors.insert(field, copied(&part, shape, dtype));
        }
    }
    world.on_rank_0("optimizer state read", || failed.map_or(Ok(()), Err))?;
    let known = |(index, fields): (usize, Fields)| {
        let parameter = &layout.blocks.parameters[index];
        (Known { path: parameter.path.clone(), id: parameter.id }, fields)
    };
    let loaded = match mine.is_empty() {
        true => Ok(optimizer.clone()),
        false => with_fields(optimizer, mine.into_iter().map(known).collect()),
    };
    // A rank whose part does not fit must not be alone with that.
    let [failures] = world.sums("optimizer state refused", [if loaded.is_err() { 1.0 } else { 0.0 }])?;
    let (loaded, problem) = match loaded {
        Ok(optimizer) => (optimizer, "it is the state of another optimizer".to_owned()),
        Err(problem) => (optimizer.clone(), problem),
    };
    world.on_rank_0("optimizer state fits", || if failures > 0.0 { Err(state.refused(problem)) } else { Ok(()) })?;
    Ok(loaded)
}

/// What there is, if it fits the module.
fn announce(layout: &Layout, state: &mut OptimizerState<'_>) -> Result<Vec<Announced>> {
    let places: HashMap<&str, usize> =
        layout.blocks.parameters.iter().enumerate().map(|(index, known)| (known.path.as_str(), index)).collect();
    let mut announced = Vec::new();
    for tensor in state.tensors().to_vec() {
        let foreign = || state.refused(format!("tensor `{}`: no such parameter is trained", tensor.name));
        let field = Field::of(&tensor.name).ok_or_else(foreign)?;
        let parameter = *places.get(field.path()).ok_or_else(foreign)?;
        let shape = layout.blocks.parameters[parameter].shape.to_vec();
        let (field, bytes) = match field {
            Field::Number(_, field) => (field, Some(state.read(&tensor)?)),
            Field::Tensor(_, _) if tensor.shape != shape || tensor_type(tensor.dtype).is_none() => {
                let there = format!("{:?} of {:?}", tensor.shape, tensor.dtype);
                let problem =
                    format!("tensor `{}`: {there} cannot be split like its parameter, {shape:?}", tensor.name);
                return Err(state.refused(problem));
            }
            Field::Tensor(_, field) => (field, None),
        };
        let (field, name, dtype) = (field.to_owned(), tensor.name.clone(), tensor.dtype);
        announced.push(Announced { parameter, field, name, dtype, bytes });
    }
    Ok(announced)
}

/// This rank's part of a tensor, which rank 0 has in whole.
fn deal(
    world: &World,
    layout: &Layout,
    parameter: usize,
    tensor: &Description,
    whole: Option<&[u8]>,
) -> Result<Vec<u8>> {
    let size = tensor.dtype.bitsize() / 8;
    let (mut splits, mut packed) = (vec![0; world.size()], Vec::new());
    if let Some(whole) = whole {
        for (rank, split) in splits.iter_mut().enumerate() {
            let before = packed.len();
            for range in owned(layout, world, rank, parameter) {
                packed.extend_from_slice(&whole[range.start * size..range.end * size]);
            }
            *split = packed.len() - before;
        }
    }
    exchange(world, &tensor.name, splits, packed)
}
