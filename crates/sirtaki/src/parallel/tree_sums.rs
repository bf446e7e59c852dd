//! Sums over the shards of a step, along one tree, over all ranks.
//!
//! A rank adds up what it can of its own shards. Of the rest, every rank gets its part of all elements from all others,
//! adds along the same tree, and sends the result to all: what an all-reduce moves, as long as a rank's shards are one
//! branch of the tree. So the bits of a sum depend on the shards alone, not on the number of ranks.
//!
//! Where a shard has nothing to add, nothing is added. On the wire that is a minus zero, which, unlike a zero, leaves the
//! bits of every number as they are.

use std::ops::Range;

use burn::tensor::{DType, Shape};
use sirtaki_comm::{
    Plan, Reduction, kernel,
    sum_tree::{Branches, branches},
};
use sirtaki_engine::{Operation, Request, Tensor, decide::request::shares};

use super::convert::engine_type;
use crate::{
    Result, World,
    data::{Worker, shards_of},
    world::{elements, wrong_type},
};

/// Elements that are exchanged at a time, so that the memory needed besides the sums stays small.
const WINDOW: usize = 4 << 20;

/// A tensor that shards add to.
pub(super) struct Column {
    pub(super) shape: Shape,
    pub(super) dtype: DType,
}

/// The sum of each column over some neighbouring shards; none where none of them had anything to add.
pub(super) type Sums = Vec<Option<Tensor>>;

/// Adds two neighbouring branches.
pub(super) fn join(left: &mut Sums, right: Sums) {
    if left.is_empty() {
        *left = right;
        return;
    }
    for (left, right) in left.iter_mut().zip(right) {
        match (left.as_mut(), right) {
            (_, None) => {}
            (None, right) => *left = right,
            (Some(left), Some(right)) => fold(left.dtype(), left.bytes_mut(), right.bytes()),
        }
    }
}

fn fold(dtype: sirtaki_comm::DType, left: &mut [u8], right: &[u8]) {
    kernel::fold(&Plan::new(dtype, Reduction::SUM, 2), left, right);
}

/// The sums over all shards and ranks, and for each column the sum of the `counts` of all ranks, which are whole numbers;
/// a column that counts zero is not summed. All ranks call it with the same columns, which `group` stands for.
pub(super) fn over_all(
    world: &World,
    (purpose, group): (&str, &str),
    columns: &[Column],
    own: Branches<Sums>,
    total: usize,
    counts: Vec<f64>,
) -> Result<(Sums, Vec<f64>)> {
    let mut own: Vec<Sums> = own.into_values().collect();
    if world.size() == 1 {
        return Ok((own.pop().unwrap_or_default(), counts));
    }
    let counts = all_counts(world, purpose, group, counts)?;
    let mut sums: Sums = columns.iter().map(|_| None).collect();
    let mut left: Vec<usize> = (0..columns.len()).filter(|&column| counts[column] > 0.0).collect();
    while let Some(&first) = left.first() {
        let dtype = engine_type(columns[first].dtype);
        let (same, others): (Vec<usize>, _) =
            left.into_iter().partition(|&column| engine_type(columns[column].dtype) == dtype);
        let rows: Vec<Tensor> = own.iter_mut().map(|sums| flat(dtype, columns, &same, sums)).collect();
        let result = Exchange { world, name: format!("{purpose} of shards"), total }.run(rows, dtype)?;
        let mut start = 0;
        for &column in &same {
            let mut sum = Tensor::zeros(dtype, columns[column].shape.num_elements());
            let length = sum.bytes().len();
            sum.bytes_mut().copy_from_slice(&result.bytes()[start..start + length]);
            start += length;
            sums[column] = Some(sum);
        }
        left = others;
    }
    Ok((sums, counts))
}

/// The counts of all ranks. Whole numbers, of which `f64` can add very many without rounding, in any order.
pub(super) fn all_counts(world: &World, purpose: &str, group: &str, counts: Vec<f64>) -> Result<Vec<f64>> {
    let name = format!("{purpose} counts");
    let operation = Operation::AllReduce(Reduction::SUM);
    let request = Request::new(&name, operation, sirtaki_comm::DType::F64, &[counts.len()]);
    let mut outputs = world.engine().submit_group(group, vec![(request, Tensor::from_vec(counts))]).wait()?;
    outputs.pop().map_or(Ok(Vec::new()), |output| elements::<f64>(&name, output))
}

/// Some columns of a branch as one.
fn flat(dtype: sirtaki_comm::DType, columns: &[Column], some: &[usize], sums: &mut Sums) -> Tensor {
    let count = some.iter().map(|&column| columns[column].shape.num_elements()).sum();
    let mut flat = Tensor::zeros(dtype, count);
    let mut rest = flat.bytes_mut();
    for &column in some {
        let (part, after) = rest.split_at_mut(columns[column].shape.num_elements() * dtype.size());
        match sums.get_mut(column).and_then(Option::take) {
            Some(sum) => part.copy_from_slice(sum.bytes()),
            None => kernel::scale(dtype, part, -1.0),
        }
        rest = after;
    }
    flat
}

/// Rows of one type, one for each branch of each rank, added along the tree.
pub(super) struct Exchange<'a> {
    pub(super) world: &'a World,
    pub(super) name: String,
    /// How many leaves the tree has.
    pub(super) total: usize,
}

impl Exchange<'_> {
    fn run(&self, mut rows: Vec<Tensor>, dtype: sirtaki_comm::DType) -> Result<Tensor> {
        let length = rows.first().map_or(0, Tensor::len);
        for start in (0..length).step_by(WINDOW) {
            let window = start..length.min(start + WINDOW);
            let sum = self.window(&rows, window.clone(), dtype)?;
            let bytes = window.start * dtype.size()..window.end * dtype.size();
            // The first row is not needed in this window any more.
            rows[0].bytes_mut()[bytes].copy_from_slice(sum.bytes());
        }
        Ok(rows.swap_remove(0))
    }

    fn window(&self, rows: &[Tensor], window: Range<usize>, dtype: sirtaki_comm::DType) -> Result<Tensor> {
        let mine = self.scatter(rows, window, dtype)?;
        self.submit("gathered", Operation::AllGather, mine)
    }

    /// This rank's share of the sum of these elements.
    pub(super) fn scatter(&self, rows: &[Tensor], window: Range<usize>, dtype: sirtaki_comm::DType) -> Result<Tensor> {
        self.scatter_as(rows, window.start, &shares(window.len(), self.world.size()), dtype)
    }

    /// The same from a place on, of which each rank gets as many elements as `counts` says.
    pub(super) fn scatter_as(
        &self,
        rows: &[Tensor],
        start: usize,
        counts: &[usize],
        dtype: sirtaki_comm::DType,
    ) -> Result<Tensor> {
        let mut packed = Tensor::zeros(dtype, counts.iter().sum::<usize>() * rows.len());
        let mut rest = packed.bytes_mut();
        let mut start = start * dtype.size();
        for count in counts {
            let end = start + count * dtype.size();
            for row in rows {
                let (part, after) = rest.split_at_mut(end - start);
                part.copy_from_slice(&row.bytes()[start..end]);
                rest = after;
            }
            start = end;
        }
        let splits = counts.iter().map(|count| count * rows.len()).collect();
        let received = self.submit("exchanged", Operation::AllToAll { splits }, packed)?;
        Ok(self.add(received, counts[self.world.rank()]))
    }

    /// Adds what came from all ranks, `count` elements for each of their branches.
    fn add(&self, mut received: Tensor, count: usize) -> Tensor {
        let (dtype, world) = (received.dtype(), self.world.size());
        let bytes = count * dtype.size();
        let runs = (0..world).flat_map(|rank| branches(self.total, shards_of(Worker { rank, world }, self.total)));
        let mut sums = Branches::new(self.total);
        for (row, branch) in runs.enumerate() {
            sums.add(branch, row, |&mut left, right| {
                let (before, after) = received.bytes_mut().split_at_mut(right * bytes);
                fold(dtype, &mut before[left * bytes..][..bytes], &after[..bytes]);
            });
        }
        let mut sum = Tensor::zeros(dtype, count);
        sum.bytes_mut().copy_from_slice(&received.bytes()[..bytes]);
        sum
    }

    fn submit(&self, what: &str, operation: Operation, tensor: Tensor) -> Result<Tensor> {
        let request = Request::new(format!("{} {what}", self.name), operation, tensor.dtype(), &[tensor.len()]);
        let output = self.world.engine().submit(request, tensor).wait_one()?;
        output.into_tensor().ok_or_else(|| wrong_type(&self.name))
    }
}
