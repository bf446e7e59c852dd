//! Whole parameters for the stage that computes, where every worker keeps only some rows of each.
//!
//! Before a stage computes, its parameters are gathered from all workers that have other samples; they are asked for while
//! the stage before it still computes, and are gone as soon as another stage is opened. So a worker has room for its own
//! rows of everything, and for the stage at work and the next one in whole. Burn's graph would keep weights alive until
//! the backward pass, which is why stages are computed again there.

use std::{collections::HashMap, sync::Arc};

use burn::{
    module::ParamId,
    tensor::{DType, Shape, TensorData},
};
use sirtaki_engine::{Operation, Request, Tensor, Ticket};

use super::{
    chain::{Chain, Layer},
    splits::Splits,
};
use crate::{
    Result,
    parallel::{
        convert::copied,
        module_tensors::{Which, read},
        sharded::fill,
    },
    world::{elements, wrong_type},
};

/// A parameter of which every worker has some rows.
struct Rows {
    id: ParamId,
    /// Of the whole.
    shape: Shape,
    dtype: DType,
    /// Elements of each worker's rows.
    elements: Vec<usize>,
}

/// The stages of a worker, of which one is open.
pub(super) struct Loans<L> {
    parts: Vec<Chain<L>>,
    /// How parameters are split, if workers lend them to each other.
    splits: Option<Arc<Splits>>,
    rows: Vec<Vec<Rows>>,
    whole: Option<(usize, Chain<L>)>,
    asked: HashMap<usize, Ticket>,
}

impl<L: Layer> Loans<L> {
    /// These stages, of which none is open.
    pub(super) fn new(parts: Vec<Chain<L>>) -> Result<Self> {
        let splits = parts.first().and_then(Chain::lenders);
        let rows = match &splits {
            Some(splits) => parts.iter().map(|part| rows(part, splits)).collect::<Result<_>>()?,
            None => Vec::new(),
        };
        Ok(Self { parts, splits, rows, whole: None, asked: HashMap::new() })
    }

    /// All stages as they are kept.
    pub(super) fn parts(&self) -> &[Chain<L>] {
        &self.parts
    }

    /// Asks the others for what a stage will need.
    pub(super) fn ask(&mut self, stage: usize) -> Result<()> {
        let Some(splits) = self.splits.as_ref().filter(|_| !self.asked.contains_key(&stage)) else { return Ok(()) };
        let mut own = Vec::new();
        for tensor in read(&self.parts[stage], "", Which::All, true)? {
            if splits.is_cut(&tensor.name) {
                own.extend_from_slice(tensor.data.as_ref().map_or(&[], |data| data.as_bytes()));
            }
        }
        let request =
            Request::new(name(&self.parts[stage]), Operation::AllGather, sirtaki_comm::DType::U8, &[own.len()]);
        self.asked.insert(stage, splits.world.engine().submit(request, Tensor::from_vec(own)));
        Ok(())
    }

    /// A stage as it computes, to be given back. All workers that have the same stages open them in the same order.
    pub(super) fn open(&mut self, stage: usize) -> Result<Chain<L>> {
        if self.splits.is_none() {
            return Ok(std::mem::take(&mut self.parts[stage]));
        }
        match self.whole.take() {
            Some((open, whole)) if open == stage => return Ok(whole),
            other => drop(other),
        }
        self.ask(stage)?;
        let name = name(&self.parts[stage]);
        let ticket = self.asked.remove(&stage).ok_or_else(|| wrong_type(&name))?;
        let all = elements::<u8>(&name, ticket.wait_one()?)?;
        let values = whole(&self.rows[stage], &all).ok_or_else(|| wrong_type(&name))?;
        drop(all);
        Ok(fill(self.parts[stage].clone(), values))
    }

    /// Takes back what was opened.
    pub(super) fn give_back(&mut self, stage: usize, chain: Chain<L>) {
        match self.splits {
            None => self.parts[stage] = chain,
            Some(_) => self.whole = Some((stage, chain)),
        }
    }

    /// Who lends parameters to whom, and how many elements of each parameter of a stage each worker keeps.
    pub(super) fn kept(&self, stage: usize) -> Option<(&Splits, HashMap<ParamId, Vec<usize>>)> {
        let splits = self.splits.as_deref()?;
        let kept = self.rows[stage].iter().map(|rows| (rows.id, rows.elements.clone()));
        Some((splits, kept.collect()))
    }

    /// All stages as they are kept.
    pub(super) fn end(self) -> Vec<Chain<L>> {
        self.parts
    }
}

fn name<L: Layer>(part: &Chain<L>) -> String {
    let (first, last) = (part.numbers().next().unwrap_or(0), part.numbers().last().unwrap_or(0));
    format!("parameters of layers {first} to {last}")
}

/// What every worker keeps of the parameters of a stage.
fn rows<L: Layer>(part: &Chain<L>, splits: &Splits) -> Result<Vec<Rows>> {
    let mut rows = Vec::new();
    for tensor in read(part, "", Which::All, false)? {
        let Some(sizes) = splits.rows(&tensor.name) else { continue };
        let row: usize = tensor.shape.iter().skip(1).product();
        let mut shape = tensor.shape.to_vec();
        shape[0] = sizes.iter().sum();
        let elements = sizes.iter().map(|size| size * row).collect();
        rows.push(Rows { id: tensor.id, shape: shape.into(), dtype: tensor.dtype, elements });
    }
    Ok(rows)
}

/// Whole parameters, from the rows of all workers one after the other.
fn whole(rows: &[Rows], all: &[u8]) -> Option<HashMap<ParamId, TensorData>> {
    let workers = rows.first().map_or(0, |rows| rows.elements.len());
    let mut values: Vec<Vec<u8>> = rows.iter().map(|_| Vec::new()).collect();
    let mut rest = all;
    for worker in 0..workers {
        for (rows, value) in rows.iter().zip(&mut values) {
            let (part, after) = rest.split_at_checked(rows.elements[worker] * rows.dtype.size())?;
            value.extend_from_slice(part);
            rest = after;
        }
    }
    let value = |(rows, bytes): (&Rows, Vec<u8>)| (rows.id, copied(&bytes, rows.shape.clone(), rows.dtype));
    rest.is_empty().then(|| rows.iter().zip(values).map(value).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_workers_make_up_parameters() {
        // A parameter of three rows of two, of which the first worker has two rows, and one of a single number.
        let of = |id: u64, shape: &[usize], elements: &[usize]| Rows {
            id: ParamId::from(id),
            shape: shape.to_vec().into(),
            dtype: DType::U8,
            elements: elements.to_vec(),
        };
        let rows = [of(1, &[3, 2], &[4, 2]), of(2, &[1], &[1, 0])];
        let values = whole(&rows, &[1, 2, 3, 4, 9, 5, 6]).unwrap();
        assert_eq!(values[&ParamId::from(1)].as_bytes(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(values[&ParamId::from(2)].as_bytes(), [9]);
        assert!(whole(&rows, &[1, 2, 3]).is_none() && whole(&rows, &[0; 8]).is_none());
    }
}
