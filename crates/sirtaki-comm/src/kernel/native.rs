//! Loops over elements in the arithmetic of their own type: the fast paths of `f32` and `f64`, and integers.

use bytemuck::Pod;

use super::{
    number::{Max, Min, Number, Op, Product, Sum, Truth},
    scale::Float,
    versions::versioned,
};
use crate::{DType, Plan, ReduceOp};

/// Bytes per block. Measured with eight inputs: shorter ones cost a quarter, because streams are left too early.
const BLOCK: usize = 32 << 10;

versioned! {
    /// `into = into op from`
    pub(super) fn fold<N: Number, O: Op>(into: &mut [N], from: &[N]) {
        for (x, &y) in into.iter_mut().zip(from) {
            *x = O::apply(*x, y);
        }
    }
}

versioned! {
    /// `into = into op (a op' b)` in the order `(into op a) op b`
    fn fold_two<N: Number, O: Op>(into: &mut [N], a: &[N], b: &[N]) {
        for ((x, &a), &b) in into.iter_mut().zip(a).zip(b) {
            *x = O::apply(O::apply(*x, a), b);
        }
    }
}

versioned! {
    /// `out = a op b`
    fn pair<N: Number, O: Op>(out: &mut [N], a: &[N], b: &[N]) {
        for ((x, &a), &b) in out.iter_mut().zip(a).zip(b) {
            *x = O::apply(a, b);
        }
    }
}

versioned! {
    /// `a = b = a op b`
    fn both<N: Number, O: Op>(a: &mut [N], b: &mut [N]) {
        for (x, y) in a.iter_mut().zip(b) {
            *x = O::apply(*x, *y);
            *y = *x;
        }
    }
}

versioned! {
    /// `out = factor·a + factor·b`
    fn pair_scaled<F: Float>(out: &mut [F], a: &[F], b: &[F], factor: F) {
        for ((x, &a), &b) in out.iter_mut().zip(a).zip(b) {
            *x = a.times(factor).sum(b.times(factor));
        }
    }
}

versioned! {
    /// `into = into + factor·from`
    fn fold_scaled<F: Float>(into: &mut [F], from: &[F], factor: F) {
        for (x, &y) in into.iter_mut().zip(from) {
            *x = x.sum(y.times(factor));
        }
    }
}

versioned! {
    /// `to = factor·from`
    fn put_scaled<F: Float>(to: &mut [F], from: &[F], factor: F) {
        for (x, &y) in to.iter_mut().zip(from) {
            *x = y.times(factor);
        }
    }
}

versioned! {
    /// `a = b = a + factor·b`
    fn both_scaled<F: Float>(a: &mut [F], b: &mut [F], factor: F) {
        for (x, y) in a.iter_mut().zip(b) {
            *x = x.sum(y.times(factor));
            *y = *x;
        }
    }
}

/// `to = before·from`. Says whether it was done: only where the type has the factor exactly.
pub(super) fn put(plan: &Plan, to: &mut [u8], from: &[u8]) -> bool {
    fn by<F: Float + Pod>(factor: f64, to: &mut [u8], from: &[u8]) -> bool {
        let factor = F::exactly(factor);
        factor.map(|factor| put_scaled(bytemuck::cast_slice_mut(to), bytemuck::cast_slice(from), factor)).is_some()
    }
    match plan.dtype {
        DType::F32 => by::<f32>(plan.before, to, from),
        DType::F64 => by::<f64>(plan.before, to, from),
        _ => false,
    }
}

/// `a = b = a + before·b`. Says whether it was done: only for sums, and where the type has the factor exactly.
pub(super) fn add_both(plan: &Plan, a: &mut [u8], b: &mut [u8]) -> bool {
    fn by<F: Float + Pod>(factor: f64, a: &mut [u8], b: &mut [u8]) -> bool {
        let factor = F::exactly(factor);
        factor.map(|factor| both_scaled(bytemuck::cast_slice_mut(a), bytemuck::cast_slice_mut(b), factor)).is_some()
    }
    match plan.dtype {
        DType::F32 if plan.op == ReduceOp::Sum => by::<f32>(plan.before, a, b),
        DType::F64 if plan.op == ReduceOp::Sum => by::<f64>(plan.before, a, b),
        _ => false,
    }
}

/// The loops for one type and operation, over bytes.
#[derive(Clone, Copy)]
pub(super) struct Loops {
    pub(super) fold: fn(&mut [u8], &[u8]),
    pub(super) both: fn(&mut [u8], &mut [u8]),
    pair: fn(&mut [u8], &[u8], &[u8]),
    fold_two: fn(&mut [u8], &[u8], &[u8]),
}

impl Loops {
    /// The loops for `dtype`; halves have none of their own.
    pub(super) fn of(dtype: DType, op: ReduceOp) -> Option<Loops> {
        match dtype {
            DType::F16 | DType::BF16 => None,
            DType::F32 => Some(Self::by_op::<f32>(op)),
            DType::F64 => Some(Self::by_op::<f64>(op)),
            DType::I8 => Some(Self::by_op::<i8>(op)),
            DType::U8 => Some(Self::by_op::<u8>(op)),
            DType::I32 => Some(Self::by_op::<i32>(op)),
            DType::I64 => Some(Self::by_op::<i64>(op)),
            DType::Bool => Some(Self::by_op::<Truth>(op)),
        }
    }

    fn by_op<N: Number + Pod>(op: ReduceOp) -> Loops {
        match op {
            ReduceOp::Sum | ReduceOp::Average => Self::new::<N, Sum>(),
            ReduceOp::Product => Self::new::<N, Product>(),
            ReduceOp::Min => Self::new::<N, Min>(),
            ReduceOp::Max => Self::new::<N, Max>(),
        }
    }

    fn new<N: Number + Pod, O: Op>() -> Loops {
        use bytemuck::{cast_slice, cast_slice_mut};
        Loops {
            fold: |into, from| fold::<N, O>(cast_slice_mut(into), cast_slice(from)),
            both: |a, b| both::<N, O>(cast_slice_mut(a), cast_slice_mut(b)),
            pair: |out, a, b| pair::<N, O>(cast_slice_mut(out), cast_slice(a), cast_slice(b)),
            fold_two: |into, a, b| fold_two::<N, O>(cast_slice_mut(into), cast_slice(a), cast_slice(b)),
        }
    }

    /// `out = inputs[0] op inputs[1] op …` for at least two inputs. The part of `out` being worked on stays in the
    /// cache, so that every input is read once and nothing else moves.
    pub(super) fn combine(&self, inputs: &[&[u8]], out: &mut [u8]) {
        let (first, rest) = inputs.split_at(2);
        let block = if rest.is_empty() { out.len() } else { BLOCK };
        for start in (0..out.len()).step_by(block) {
            let range = start..out.len().min(start + block);
            let out = &mut out[range.clone()];
            (self.pair)(out, &first[0][range.clone()], &first[1][range.clone()]);
            let two = rest.chunks_exact(2);
            let last = two.remainder();
            two.for_each(|two| (self.fold_two)(out, &two[0][range.clone()], &two[1][range.clone()]));
            last.iter().for_each(|last| (self.fold)(out, &last[range.clone()]));
        }
    }
}

/// `out = after · (before·inputs[0] + before·inputs[1] + …)` for at least two inputs whose factors `F` holds exactly.
pub(super) fn scaled_sum<F: Float + Pod>(inputs: &[&[u8]], out: &mut [u8], before: F, after: f64) {
    for start in (0..out.len()).step_by(BLOCK) {
        let range = start..out.len().min(start + BLOCK);
        let input = |i: usize| bytemuck::cast_slice::<u8, F>(&inputs[i][range.clone()]);
        let out = bytemuck::cast_slice_mut::<u8, F>(&mut out[range.clone()]);
        pair_scaled(out, input(0), input(1), before);
        (2..inputs.len()).for_each(|i| fold_scaled(out, input(i), before));
        F::scale(out, after);
    }
}
