//! The type in which the sums of an element type are kept, and conversions to it and back.
//!
//! Blocks of elements are loaded into the accumulating type with the first factor applied, folded there, and stored with
//! the second factor applied. Types that are kept in themselves are the simplest case.

use bytemuck::Pod;
use half::{bf16, f16};

use super::{
    halves::Half,
    native,
    number::{Max, Min, Number, Product, Sum, Truth, Wide},
    scale::Scale,
};
use crate::{DType, Plan, ReduceOp};

/// An element type whose sums can be kept in `A`.
pub(super) trait Accumulate<A: Scale>: Pod {
    fn widen(from: &[Self], to: &mut [A]);
    fn narrow(from: &[A], to: &mut [Self]);
}

macro_rules! same {
    ($($number:ty),*) => {$(
        impl Accumulate<$number> for $number {
            fn widen(from: &[Self], to: &mut [Self]) {
                to.copy_from_slice(from);
            }

            fn narrow(from: &[Self], to: &mut [Self]) {
                to.copy_from_slice(from);
            }
        }
    )*};
}
same!(f32, f64, i8, u8, i32, i64);

impl Accumulate<Truth> for Truth {
    fn widen(from: &[Truth], to: &mut [Truth]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = from.normal());
    }

    fn narrow(from: &[Truth], to: &mut [Truth]) {
        to.copy_from_slice(from);
    }
}

macro_rules! halves {
    ($($half:ty),*) => {$(
        impl Accumulate<f32> for $half {
            fn widen(from: &[Self], to: &mut [f32]) {
                Half::lengthen(from, to);
            }

            fn narrow(from: &[f32], to: &mut [Self]) {
                Half::shorten(from, to);
            }
        }

        // Through `f32` on the way back, which every processor does identically.
        impl Accumulate<f64> for $half {
            fn widen(from: &[Self], to: &mut [f64]) {
                to.iter_mut().zip(from).for_each(|(to, from)| *to = from.to_f64());
            }

            fn narrow(from: &[f64], to: &mut [Self]) {
                to.iter_mut().zip(from).for_each(|(to, &from)| *to = Self::from_f32(from as f32));
            }
        }
    )*};
}
halves!(f16, bf16);

macro_rules! integers {
    ($($int:ty => $wide:ty),*) => {$(
        impl Accumulate<Wide<$wide>> for $int {
            fn widen(from: &[Self], to: &mut [Wide<$wide>]) {
                to.iter_mut().zip(from).for_each(|(to, &from)| to.0 = from.into());
            }

            fn narrow(from: &[Wide<$wide>], to: &mut [Self]) {
                let ends = (<$wide>::from(<$int>::MIN), <$wide>::from(<$int>::MAX));
                to.iter_mut().zip(from).for_each(|(to, from)| *to = from.0.clamp(ends.0, ends.1) as $int);
            }
        }
    )*};
}
integers!(i8 => i64, u8 => i64, i32 => i64, i64 => i128);

/// `into = into op from` in the type that sums are kept in.
pub(super) fn fold<N: Number>(op: ReduceOp, into: &mut [N], from: &[N]) {
    match op {
        ReduceOp::Sum | ReduceOp::Average => native::fold::<N, Sum>(into, from),
        ReduceOp::Product => native::fold::<N, Product>(into, from),
        ReduceOp::Min => native::fold::<N, Min>(into, from),
        ReduceOp::Max => native::fold::<N, Max>(into, from),
    }
}

/// The elements of `from`, multiplied by the first factor.
pub(super) fn load<T: Accumulate<A>, A: Scale>(plan: &Plan, from: &[u8], to: &mut [A]) {
    T::widen(bytemuck::cast_slice(from), to);
    A::scale(to, plan.before);
}

/// The elements of `from`, multiplied by the second factor.
pub(super) fn store<T: Accumulate<A>, A: Scale>(plan: &Plan, from: &mut [A], to: &mut [u8]) {
    A::scale(from, plan.after);
    T::narrow(from, bytemuck::cast_slice_mut(to));
}

/// Work that depends on the types of a plan.
pub(super) trait Job {
    fn run<T: Accumulate<A>, A: Scale>(self);
}

/// Runs a job with the element type and the accumulating type of the plan.
pub(super) fn run(plan: &Plan, job: impl Job) {
    match (plan.dtype, plan.wide) {
        (DType::F32, _) => job.run::<f32, f32>(),
        (DType::F64, _) => job.run::<f64, f64>(),
        (DType::F16, _) if single_suffices(plan) => job.run::<f16, f32>(),
        (DType::F16, _) => job.run::<f16, f64>(),
        (DType::BF16, _) if single_suffices(plan) => job.run::<bf16, f32>(),
        (DType::BF16, _) => job.run::<bf16, f64>(),
        (DType::I8, false) => job.run::<i8, i8>(),
        (DType::U8, false) => job.run::<u8, u8>(),
        (DType::I32, false) => job.run::<i32, i32>(),
        (DType::I64, false) => job.run::<i64, i64>(),
        (DType::I8, true) => job.run::<i8, Wide<i64>>(),
        (DType::U8, true) => job.run::<u8, Wide<i64>>(),
        (DType::I32, true) => job.run::<i32, Wide<i64>>(),
        (DType::I64, true) => job.run::<i64, Wide<i128>>(),
        (DType::Bool, _) => job.run::<Truth, Truth>(),
    }
}

/// Whether halves multiplied by these factors stay within the range of `f32`; other factors need `f64`. A `bf16` has
/// the range of an `f32`, so it must not grow on the way.
pub(crate) fn single_suffices(plan: &Plan) -> bool {
    let room = f64::from(1 << 20);
    let largest = if plan.dtype == DType::BF16 { 1.0 } else { room };
    let fits = |factor: f64, largest: f64| (1.0 / room..=largest).contains(&factor.abs());
    fits(plan.before, largest) && fits(plan.after, room)
}
