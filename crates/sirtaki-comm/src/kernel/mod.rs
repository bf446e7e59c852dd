//! The arithmetic of reductions over byte slices.
//!
//! Slices are whole elements, aligned for their type, and of equal length within a call.
//!
//! - `number`, `scale`: what an operation and a factor mean for one type.
//! - `versions`: loops compiled for several vector units; all of them give the same bits.
//! - `native`: loops in the element type itself; `halves`, `accumulate`: conversions to a wider type and back.
//! - `combine`: many inputs to one output, block by block.
//!
//! The order of operands is the order in the formulas below. Sums of floats depend on it; smallest and largest do not,
//! not even in the sign of a zero.

mod accumulate;
mod combine;
mod copy;
mod halves;
mod native;
mod number;
mod scale;
#[cfg(test)]
mod speed;
#[cfg(test)]
mod tests;
mod versions;

pub(crate) use accumulate::single_suffices;
pub use copy::copy;
pub(crate) use scale::Factor;

use crate::{DType, Plan};

/// `into = into op from`, in the arithmetic of the type itself, without factors.
pub fn fold(plan: &Plan, into: &mut [u8], from: &[u8]) {
    same_length(into.len(), from);
    if into.is_empty() {
        return;
    }
    match native::Loops::of(plan.dtype, plan.op) {
        Some(loops) => (loops.fold)(into, from),
        None => {
            let plan = &plain(plan);
            accumulate::run(plan, combine::Fold { plan, into, from });
        }
    }
}

/// `a = b = a op b`, in the arithmetic of the type itself, without factors: both copies get the result in one pass.
pub fn fold_both(plan: &Plan, a: &mut [u8], b: &mut [u8]) {
    same_length(a.len(), b);
    if a.is_empty() {
        return;
    }
    match native::Loops::of(plan.dtype, plan.op) {
        Some(loops) => (loops.both)(a, b),
        None => {
            fold(plan, a, b);
            b.copy_from_slice(a);
        }
    }
}

/// `to = before·from`, in one pass where the type has the factor exactly; otherwise `from` is changed too.
pub fn put(plan: &Plan, to: &mut [u8], from: &mut [u8]) {
    same_length(to.len(), from);
    if plan.before == 1.0 || !native::put(plan, to, from) {
        scale(plan.dtype, from, plan.before);
        copy(to, from);
    }
}

/// `a = b = a op before·b`: [`fold_both`] with the plan's first factor for `b`.
pub fn fold_both_scaled(plan: &Plan, a: &mut [u8], b: &mut [u8]) {
    same_length(a.len(), b);
    if plan.before == 1.0 || !native::add_both(plan, a, b) {
        scale(plan.dtype, b, plan.before);
        fold_both(plan, a, b);
    }
}

/// Multiplies every element by `factor` in a precision at least that of the type; does nothing for 1 and for bool.
///
/// Integers round toward zero and saturate.
pub fn scale(dtype: DType, data: &mut [u8], factor: f64) {
    if factor == 1.0 || dtype == DType::Bool || data.is_empty() {
        return;
    }
    match dtype {
        DType::F32 => scale::Scale::scale(bytemuck::cast_slice_mut::<u8, f32>(data), factor),
        DType::F64 => scale::Scale::scale(bytemuck::cast_slice_mut::<u8, f64>(data), factor),
        _ => {
            let plan = Plan { dtype, op: crate::ReduceOp::Sum, before: factor, after: 1.0, wide: true };
            combine::in_place(&plan, data);
        }
    }
}

/// `out = after · (before·inputs[0] op before·inputs[1] op …)`, from left to right, accumulated in the wider type where
/// the plan says so. At least one input.
pub fn combine(plan: &Plan, inputs: &[&[u8]], out: &mut [u8]) {
    inputs.iter().for_each(|input| same_length(out.len(), input));
    if !out.is_empty() {
        combine::in_order(plan, inputs, out);
    }
}

/// As [`combine`], but added along a fixed binary tree over the inputs: the left part of `k` inputs is the largest
/// power of two below `k`. The result depends only on the order of the inputs.
pub fn combine_tree(plan: &Plan, inputs: &[&[u8]], out: &mut [u8]) {
    inputs.iter().for_each(|input| same_length(out.len(), input));
    if !out.is_empty() {
        combine::along_tree(plan, inputs, out);
    }
}

/// As [`combine`] of one input, in place.
pub fn alone(plan: &Plan, data: &mut [u8]) {
    if !data.is_empty() && (plan.scales() || plan.dtype == DType::Bool) {
        combine::in_place(plan, data);
    }
}

/// The same arithmetic without factors.
fn plain(plan: &Plan) -> Plan {
    Plan { before: 1.0, after: 1.0, ..*plan }
}

fn same_length(length: usize, other: &[u8]) {
    assert_eq!(length, other.len(), "the operands of a reduction differ in length");
}
