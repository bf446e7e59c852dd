//! The trainable parameters of a module as tables of parameter servers.

use std::collections::HashMap;

use burn::{
    module::{Module, ParamId},
    tensor::{DType, Shape, TensorData},
};
use sirtaki_server::{Gradient, Rows, RuleSpec, TableSpec, decide::table::BLOCK};

use super::super::{
    gradients::Entry,
    module_tensors::{Which, read},
    sharded::fill,
};
use crate::{Error, Result};

/// A parameter on servers. Its table is called by its path in the module.
#[derive(Debug, Clone)]
pub(super) struct ParameterTable {
    pub(super) id: ParamId,
    pub(super) spec: TableSpec,
    pub(super) shape: Shape,
}

impl ParameterTable {
    /// All its rows.
    pub(super) fn all(&self) -> Rows {
        Rows::Range(0..self.spec.rows)
    }

    /// A gradient for all of it.
    pub(super) fn gradient<'a>(&'a self, leaves: (u32, u32), values: &'a [f32]) -> Gradient<'a> {
        Gradient { table: &self.spec.name, rows: self.all(), leaves, values }
    }
}

/// The tables of these parameters, which have names that end with their paths.
pub(super) fn tables(found: &[Entry], names: &[String], rule: &RuleSpec) -> Result<Vec<ParameterTable>> {
    let table = |(entry, name): (&Entry, &String)| {
        let path = name.split_once('/').map_or(name.as_str(), |(_, path)| path);
        if entry.dtype != DType::F32 {
            let problem = format!("\"{path}\" is of type {:?}, and parameter servers have tables of f32", entry.dtype);
            return Err(Error::setting(problem, "keep weights in 32 bits"));
        }
        let (rows, width) = rows(&entry.shape);
        let spec = TableSpec { name: path.to_owned(), rows, width, rule: rule.clone() };
        Ok(ParameterTable { id: entry.id, spec, shape: entry.shape.clone() })
    };
    found.iter().zip(names).map(table).collect()
}

/// A row is what the first index of a tensor selects, such as the vector of a word, unless that is too large for a block.
fn rows(shape: &Shape) -> (u64, u32) {
    let elements = shape.num_elements();
    let first = shape.to_vec().first().copied().unwrap_or(1).max(1);
    match elements / first {
        width if (1..=BLOCK).contains(&width) => (first as u64, width as u32),
        _ => (elements as u64, 1),
    }
}

/// The weights of all tables, as the module has them.
pub(super) fn weights<M: Module>(module: &M, tables: &[ParameterTable]) -> Result<Vec<Vec<f32>>> {
    let parts = read(module, "", Which::Trained, true)?;
    let mut by_id: HashMap<ParamId, TensorData> =
        parts.into_iter().filter_map(|part| Some((part.id, part.data?))).collect();
    let weights = |table: &ParameterTable| match by_id.remove(&table.id) {
        Some(data) => floats(&table.spec.name, data.as_bytes()).map(<[f32]>::to_vec),
        None => Err(Error::setting(format!("\"{}\" has no weights", table.spec.name), "report this")),
    };
    tables.iter().map(weights).collect()
}

/// The module with these weights of all tables.
pub(super) fn put_weights<M: Module>(module: M, tables: &[ParameterTable], weights: Vec<Vec<f32>>) -> M {
    let value =
        |(table, weights): (&ParameterTable, Vec<f32>)| (table.id, TensorData::new(weights, table.shape.clone()));
    fill(module, tables.iter().zip(weights).map(value).collect())
}

/// The numbers of a tensor of type `f32`.
pub(super) fn floats<'a>(name: &str, bytes: &'a [u8]) -> Result<&'a [f32]> {
    let wrong = |_| Error::setting(format!("the elements of \"{name}\" are not aligned"), "report this");
    bytemuck::try_cast_slice(bytes).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_what_the_first_index_selects_unless_they_are_too_large() {
        assert_eq!(rows(&Shape::from([30_000, 512])), (30_000, 512));
        assert_eq!(rows(&Shape::from([20, 10, 5, 5])), (20, 250));
        assert_eq!(rows(&Shape::from([7])), (7, 1));
        assert_eq!(rows(&Shape::from([3, 300, 300])), (270_000, 1));
    }
}
