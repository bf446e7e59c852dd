//! What servers keep for each weight, in checkpoints: under the names that Burn's optimizers have for it, so that a run can
//! go on with or without servers.

use std::{cell::RefCell, collections::HashMap};

use burn_pack::Scalar;
use sirtaki_server::{JobService, RuleSpec, Worker};

use super::{
    super::{
        OptimizerState,
        optimizer_record::{DIMENSIONS, Field, number_bytes, number_name, number_of, tensor_name},
    },
    tables::ParameterTable,
};
use crate::{
    Error, Result,
    checkpoint::{Description, Dtype},
};

/// What the slots of a rule are called, after the weights, and the number of changes, if that is kept.
fn names(rule: &RuleSpec) -> (&'static [&'static str], Option<&'static str>) {
    match rule {
        RuleSpec::Sgd { momentum, .. } if *momentum == 0.0 => (&[], None),
        RuleSpec::Sgd { .. } => (&["momentum.velocity"], None),
        RuleSpec::Adam { .. } | RuleSpec::AdamW { .. } => {
            (&["momentum.moment_1", "momentum.moment_2"], Some("momentum.time"))
        }
        RuleSpec::AdaGrad { .. } => (&["squares"], Some("changes")),
        RuleSpec::Ftrl { .. } => (&["sums", "squares"], Some("changes")),
        RuleSpec::Named(_) => (&[], Some("changes")),
    }
}

/// The state of all tables whose weights were changed.
pub(super) fn save<'a>(
    tables: &'a [ParameterTable],
    rule: &RuleSpec,
    service: &'a RefCell<JobService>,
) -> Result<OptimizerState<'a>> {
    let (slots, number) = names(rule);
    let (mut tensors, mut numbers) = (Vec::new(), HashMap::new());
    for table in tables {
        let changed = service.borrow_mut().worker().changes(&table.spec.name)?;
        if changed == 0 {
            continue;
        }
        for slot in slots {
            let name = tensor_name(&table.spec.name, slot);
            tensors.push(Description { name, dtype: Dtype::F32, shape: table.shape.to_vec() });
        }
        let dimensions = (DIMENSIONS, table.shape.len() as u64);
        for (number, value) in number.map(|name| (name, changed)).into_iter().chain([dimensions]) {
            let (dtype, bytes) = number_bytes(Scalar::UInt(value));
            let name = number_name(&table.spec.name, number);
            numbers.insert(name.clone(), bytes);
            tensors.push(Description { name, dtype, shape: Vec::new() });
        }
    }
    let read = move |tensor: &Description| {
        if let Some(bytes) = numbers.get(&tensor.name) {
            return Ok(bytes.clone());
        }
        let Some(Field::Tensor(path, field)) = Field::of(&tensor.name) else { return Ok(Vec::new()) };
        let slot = 1 + slots.iter().position(|slot| *slot == field).unwrap_or(0) as u32;
        let values = service.borrow_mut().worker().get(path, slot)?;
        Ok(bytemuck::cast_slice(&values).to_vec())
    };
    Ok(OptimizerState::new(tensors, read, None))
}

/// Makes weights and state of all tables those of a module and a checkpoint. Only one rank does, while the others wait.
pub(super) fn restore(
    tables: &[ParameterTable],
    rule: &RuleSpec,
    worker: &mut Worker,
    weights: &[Vec<f32>],
    mut state: OptimizerState<'_>,
) -> Result<()> {
    let (slots, number) = names(rule);
    let known: HashMap<&str, &ParameterTable> = tables.iter().map(|table| (table.spec.name.as_str(), table)).collect();
    // Where there is a state, weights were changed at least once.
    let mut changes: HashMap<String, u64> = HashMap::new();
    let mut slices: Vec<(String, u32, Vec<u8>)> = Vec::new();
    for tensor in state.tensors().to_vec() {
        let field = Field::of(&tensor.name).ok_or_else(|| foreign(&state, &tensor))?;
        let table = *known.get(field.path()).ok_or_else(|| foreign(&state, &tensor))?;
        let path = table.spec.name.clone();
        match field {
            Field::Number(_, DIMENSIONS) => {
                changes.entry(path).or_insert(1);
            }
            Field::Number(_, name) if number == Some(name) => {
                let count = match number_of(tensor.dtype, &state.read(&tensor)?) {
                    Some(Scalar::UInt(count)) => Some(count),
                    Some(Scalar::Int(count)) => u64::try_from(count).ok(),
                    _ => None,
                };
                changes.insert(path, count.ok_or_else(|| foreign(&state, &tensor))?);
            }
            Field::Tensor(_, name) if tensor.dtype == Dtype::F32 && tensor.shape == table.shape.to_vec() => {
                let slot = slots.iter().position(|slot| *slot == name).ok_or_else(|| foreign(&state, &tensor))?;
                changes.entry(path.clone()).or_insert(1);
                slices.push((path, 1 + slot as u32, state.read(&tensor)?));
            }
            _ => return Err(foreign(&state, &tensor)),
        }
    }
    let changes_of = |path: &str| changes.get(path).copied().unwrap_or(0);
    for (table, values) in tables.iter().zip(weights) {
        worker.put(&table.spec.name, 0, changes_of(&table.spec.name), values)?;
    }
    for (path, slot, bytes) in slices {
        // Bytes of a file need not lie where numbers may.
        let values: Vec<f32> = bytes.as_chunks().0.iter().map(|&four| f32::from_le_bytes(four)).collect();
        worker.put(&path, slot, changes_of(&path), &values)?;
    }
    Ok(())
}

fn foreign(state: &OptimizerState<'_>, tensor: &Description) -> Error {
    state.refused(format!("tensor `{}`: servers keep no such state with this rule", tensor.name))
}
