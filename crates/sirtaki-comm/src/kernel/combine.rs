//! Many inputs to one output, block by block, so that every input is read once and partial results stay in the cache.

use bytemuck::Pod;

use super::{
    accumulate::{self, Accumulate, Job},
    native::{self, Loops},
    scale::{Float, Scale},
};
use crate::{DType, Plan, ReduceOp};

/// Elements per block: short, so that the processor fetches the next block while it still converts this one.
const BLOCK: usize = 512;

/// Elements in the first of the blocks that `bytes` of `T` are cut into.
fn block<T>(bytes: usize) -> usize {
    BLOCK.min(bytes / size_of::<T>())
}

/// From left to right, see [`super::combine`].
pub(super) fn in_order(plan: &Plan, inputs: &[&[u8]], out: &mut [u8]) {
    if inputs.len() > 1 && !plan.wide {
        if !plan.scales()
            && let Some(loops) = Loops::of(plan.dtype, plan.op)
        {
            return loops.combine(inputs, out);
        }
        let done = match plan.dtype {
            DType::F32 => scaled_sum::<f32>(plan, inputs, out),
            DType::F64 => scaled_sum::<f64>(plan, inputs, out),
            _ => false,
        };
        if done {
            return;
        }
    }
    accumulate::run(plan, InOrder { plan, inputs, out });
}

/// The sum with a factor for every input that the type can hold exactly, as for averages.
fn scaled_sum<F: Float + Pod>(plan: &Plan, inputs: &[&[u8]], out: &mut [u8]) -> bool {
    match F::exactly(plan.before) {
        Some(before) if plan.op == ReduceOp::Sum => native::scaled_sum(inputs, out, before, plan.after),
        _ => return false,
    }
    true
}

struct InOrder<'a> {
    plan: &'a Plan,
    inputs: &'a [&'a [u8]],
    out: &'a mut [u8],
}

impl Job for InOrder<'_> {
    fn run<T: Accumulate<A>, A: Scale>(self) {
        let block = block::<T>(self.out.len());
        let (mut sums, mut next) = (vec![A::default(); block], vec![A::default(); block]);
        let mut at = 0;
        for out in self.out.chunks_mut(block * size_of::<T>()) {
            let range = at..at + out.len();
            at = range.end;
            let count = out.len() / size_of::<T>();
            let (sums, next) = (&mut sums[..count], &mut next[..count]);
            accumulate::load::<T, A>(self.plan, &self.inputs[0][range.clone()], sums);
            for input in &self.inputs[1..] {
                accumulate::load::<T, A>(self.plan, &input[range.clone()], next);
                accumulate::fold(self.plan.op, sums, next);
            }
            accumulate::store::<T, A>(self.plan, sums, out);
        }
    }
}

/// Along the fixed tree, see [`super::combine_tree`].
pub(super) fn along_tree(plan: &Plan, inputs: &[&[u8]], out: &mut [u8]) {
    accumulate::run(plan, AlongTree { plan, inputs, out });
}

struct AlongTree<'a> {
    plan: &'a Plan,
    inputs: &'a [&'a [u8]],
    out: &'a mut [u8],
}

impl Job for AlongTree<'_> {
    /// Two finished subtrees of one size are joined at once, like carries in a binary counter, which leaves at most one
    /// row of sums per power of two.
    fn run<T: Accumulate<A>, A: Scale>(self) {
        let rows = self.inputs.len().ilog2() as usize + 2;
        let block = block::<T>(self.out.len());
        let mut sums = vec![A::default(); block * rows];
        let mut sizes: Vec<usize> = Vec::with_capacity(rows);
        let mut at = 0;
        for out in self.out.chunks_mut(block * size_of::<T>()) {
            let range = at..at + out.len();
            at = range.end;
            let count = out.len() / size_of::<T>();
            let join = |sizes: &mut Vec<usize>, sums: &mut [A]| {
                let top = sizes.len() - 1;
                let (below, last) = sums.split_at_mut(top * block);
                accumulate::fold(self.plan.op, &mut below[(top - 1) * block..][..count], &last[..count]);
                let size = sizes.pop().unwrap_or(0);
                sizes[top - 1] += size;
            };
            for input in self.inputs {
                accumulate::load::<T, A>(self.plan, &input[range.clone()], &mut sums[sizes.len() * block..][..count]);
                sizes.push(1);
                while let [.., left, right] = sizes[..]
                    && left == right
                {
                    join(&mut sizes, &mut sums);
                }
            }
            while sizes.len() > 1 {
                join(&mut sizes, &mut sums);
            }
            sizes.clear();
            accumulate::store::<T, A>(self.plan, &mut sums[..count], out);
        }
    }
}

/// One input that is its own output, see [`super::alone`].
pub(super) fn in_place(plan: &Plan, data: &mut [u8]) {
    accumulate::run(plan, InPlace { plan, data });
}

struct InPlace<'a> {
    plan: &'a Plan,
    data: &'a mut [u8],
}

impl Job for InPlace<'_> {
    fn run<T: Accumulate<A>, A: Scale>(self) {
        let mut sums = vec![A::default(); block::<T>(self.data.len())];
        for data in self.data.chunks_mut(BLOCK * size_of::<T>()) {
            let sums = &mut sums[..data.len() / size_of::<T>()];
            accumulate::load::<T, A>(self.plan, data, sums);
            accumulate::store::<T, A>(self.plan, sums, data);
        }
    }
}

/// `into = into op from` through the type that sums are kept in, for types without arithmetic of their own.
pub(super) struct Fold<'a> {
    pub(super) plan: &'a Plan,
    pub(super) into: &'a mut [u8],
    pub(super) from: &'a [u8],
}

impl Job for Fold<'_> {
    fn run<T: Accumulate<A>, A: Scale>(self) {
        let block = block::<T>(self.into.len());
        let (mut sums, mut next) = (vec![A::default(); block], vec![A::default(); block]);
        let bytes = block * size_of::<T>();
        for (into, from) in self.into.chunks_mut(bytes).zip(self.from.chunks(bytes)) {
            let count = into.len() / size_of::<T>();
            let (sums, next) = (&mut sums[..count], &mut next[..count]);
            accumulate::load::<T, A>(self.plan, into, sums);
            accumulate::load::<T, A>(self.plan, from, next);
            accumulate::fold(self.plan.op, sums, next);
            accumulate::store::<T, A>(self.plan, sums, into);
        }
    }
}
