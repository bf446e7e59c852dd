//! Sums over leaves of which every worker keeps some rows of each parameter.
//!
//! Elements are added along the same tree as everywhere, by the worker that keeps them, so the bits do not depend on who
//! that is.

use std::collections::HashMap;

use burn::module::ParamId;
use sirtaki_comm::{DType, kernel, sum_tree::Branches};
use sirtaki_engine::Tensor;

use super::{
    LeafSums,
    convert::engine_type,
    sharded::split_sums,
    tree_sums::{Exchange, Sums, all_counts, join, over_all},
};
use crate::{Result, World};

impl LeafSums {
    /// Makes them those of all leaves of all workers of the world, of which this one keeps its part of each parameter;
    /// `kept` says how many elements each worker keeps. Statistics are whole on all of them.
    pub(super) fn keep_rows(&mut self, world: &World, name: &str, kept: &HashMap<ParamId, Vec<usize>>) -> Result<()> {
        let parameters = self.parameters.len();
        self.shares = Some(world.clone());
        if world.size() == 1 {
            return Ok(());
        }
        let (own, counts) = self.take_sums();
        let of_statistics = counts[parameters..].to_vec();
        let mut counts = all_counts(world, name, name, counts)?;
        let (own, statistics) = split_sums(own, self.leaves, parameters);
        let exchange = Exchange { world, name: name.to_owned(), total: self.leaves };
        let mut sums = self.rows(&exchange, own, &counts[..parameters], kept)?;
        let columns = &self.columns[parameters..];
        if !columns.is_empty() {
            let names = (format!("{name}, statistics"), format!("{name}, all statistics"));
            let (all, of_all) = over_all(world, (&names.0, &names.1), columns, statistics, self.leaves, of_statistics)?;
            sums.extend(all);
            counts.truncate(parameters);
            counts.extend(of_all);
        }
        let mut branches = Branches::new(self.leaves);
        branches.add(0..self.leaves, sums, join);
        self.put_sums(branches, counts);
        Ok(())
    }

    /// This worker's rows of the sums of those parameters that anyone has counted.
    fn rows(
        &self,
        exchange: &Exchange<'_>,
        mut own: Vec<Sums>,
        counts: &[f64],
        kept: &HashMap<ParamId, Vec<usize>>,
    ) -> Result<Sums> {
        let (rank, workers) = (exchange.world.rank(), exchange.world.size());
        let mut sums: Sums = counts.iter().map(|_| None).collect();
        let mut left: Vec<usize> = (0..counts.len()).filter(|&column| counts[column] > 0.0).collect();
        while let Some(&first) = left.first() {
            let dtype = engine_type(self.columns[first].dtype);
            let (same, others): (Vec<usize>, _) =
                left.into_iter().partition(|&column| engine_type(self.columns[column].dtype) == dtype);
            let lengths = |&column: &usize| kept.get(&self.parameters[column].id).map_or(&[][..], Vec::as_slice);
            let lengths: Vec<&[usize]> = same.iter().map(lengths).collect();
            let rows: Vec<Tensor> = own.iter_mut().map(|sums| by_worker(dtype, &same, &lengths, sums)).collect();
            let of_worker = |worker: usize| lengths.iter().map(|lengths| lengths[worker]).sum::<usize>();
            let mine = exchange.scatter_as(&rows, 0, &(0..workers).map(of_worker).collect::<Vec<_>>(), dtype)?;
            let mut rest = mine.bytes();
            for (&column, lengths) in same.iter().zip(&lengths) {
                let mut sum = Tensor::zeros(dtype, lengths[rank]);
                let (here, after) = rest.split_at(sum.byte_len());
                sum.bytes_mut().copy_from_slice(here);
                sums[column] = Some(sum);
                rest = after;
            }
            left = others;
        }
        Ok(sums)
    }
}

/// Some columns of a branch as one: first what the first worker keeps of each, then what the second keeps.
fn by_worker(dtype: DType, columns: &[usize], lengths: &[&[usize]], sums: &mut Sums) -> Tensor {
    let taken: Vec<Option<Tensor>> =
        columns.iter().map(|&column| sums.get_mut(column).and_then(Option::take)).collect();
    let mut flat = Tensor::zeros(dtype, lengths.iter().map(|lengths| lengths.iter().sum::<usize>()).sum());
    let mut rest = flat.bytes_mut();
    let mut starts = vec![0; columns.len()];
    for worker in 0..lengths.first().map_or(0, |lengths| lengths.len()) {
        for ((sum, lengths), start) in taken.iter().zip(lengths).zip(&mut starts) {
            let (part, after) = rest.split_at_mut(lengths[worker] * dtype.size());
            match sum {
                Some(sum) => part.copy_from_slice(&sum.bytes()[*start..*start + part.len()]),
                // Nothing may change when it is added.
                None => kernel::scale(dtype, part, -1.0),
            }
            *start += part.len();
            rest = after;
        }
    }
    flat
}
