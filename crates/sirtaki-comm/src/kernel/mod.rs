//! The arithmetic of reductions over byte slices.
//!
//! Slices are whole elements, aligned for their type, and of equal length within a call.

use crate::{DType, Plan};

/// `into = into op from`, in the arithmetic of the type itself, without factors.
pub fn fold(plan: &Plan, into: &mut [u8], from: &[u8]) {
    let _ = (plan, into, from);
    unimplemented!()
}

/// `a = b = a op b`, in the arithmetic of the type itself, without factors: both copies get the result in one pass.
pub fn fold_both(plan: &Plan, a: &mut [u8], b: &mut [u8]) {
    let _ = (plan, a, b);
    unimplemented!()
}

/// Multiplies every element by `factor` in a precision at least that of the type; nothing happens for 1 and for bool.
pub fn scale(dtype: DType, data: &mut [u8], factor: f64) {
    let _ = (dtype, data, factor);
    unimplemented!()
}

/// `out = after · (before·inputs[0] op before·inputs[1] op …)`, from left to right, accumulated in the wider type where
/// the plan says so. At least one input.
pub fn combine(plan: &Plan, inputs: &[&[u8]], out: &mut [u8]) {
    let _ = (plan, inputs, out);
    unimplemented!()
}

/// As [`combine`], but added along a fixed binary tree over the inputs: the left part of `k` inputs is the largest
/// power of two below `k`. The result depends on the order of the inputs alone.
pub fn combine_tree(plan: &Plan, inputs: &[&[u8]], out: &mut [u8]) {
    let _ = (plan, inputs, out);
    unimplemented!()
}
