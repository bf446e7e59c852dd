//! Every type and operation against one-line references, on random bits.

use half::{bf16, f16};
use proptest::prelude::*;

use super::*;
use crate::{Element, ReduceOp, Reduction};

/// What a test needs to know about a type.
trait Model: Element + Default {
    fn op(op: ReduceOp, a: Self, b: Self) -> Self;
    /// Equal bits, or two NaNs.
    fn same(self, other: Self) -> bool;
    /// The whole reduction; `shape` folds in the order under test.
    fn whole(plan: &Plan, inputs: &[Self], shape: Shape) -> Self;
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    Order,
    Tree,
}

impl Shape {
    fn reduce<A: Copy>(self, values: &[A], op: &dyn Fn(A, A) -> A) -> A {
        match (self, values) {
            (_, [one]) => *one,
            (Shape::Order, [first, rest @ ..]) => rest.iter().fold(*first, |a, &b| op(a, b)),
            (Shape::Tree, _) => {
                let (left, right) = values.split_at(values.len().next_power_of_two() / 2);
                op(self.reduce(left, op), self.reduce(right, op))
            }
            (_, []) => unreachable!("a reduction of nothing"),
        }
    }
}

macro_rules! integer_model {
    ($($int:ty),*) => {$(
        impl Model for $int {
            fn op(op: ReduceOp, a: Self, b: Self) -> Self {
                match op {
                    ReduceOp::Sum | ReduceOp::Average => a.wrapping_add(b),
                    ReduceOp::Min => a.min(b),
                    ReduceOp::Max => a.max(b),
                    ReduceOp::Product => a.wrapping_mul(b),
                }
            }

            fn same(self, other: Self) -> bool {
                self == other
            }

            fn whole(plan: &Plan, inputs: &[Self], shape: Shape) -> Self {
                if !plan.wide {
                    return shape.reduce(inputs, &|a, b| Self::op(plan.op, a, b));
                }
                let wide: Vec<i128> = inputs.iter().map(|&x| times(x.into(), plan.before)).collect();
                let limit = |x: i128| if size_of::<$int>() < 8 { x.clamp(i64::MIN.into(), i64::MAX.into()) } else { x };
                let sum = shape.reduce(&wide, &|a, b| limit(match plan.op {
                    ReduceOp::Product => a.saturating_mul(b),
                    ReduceOp::Min => a.min(b),
                    ReduceOp::Max => a.max(b),
                    _ => a + b,
                }));
                times(sum, plan.after).clamp(<$int>::MIN.into(), <$int>::MAX.into()) as $int
            }
        }
    )*};
}
integer_model!(i8, u8, i32, i64);

/// A product computed by hand, for the factors used here: whole numbers, halves, thirds and 0.3.
fn times(x: i128, factor: f64) -> i128 {
    match factor {
        f if f.fract() == 0.0 => x.saturating_mul(f as i128),
        0.3 => (x as f64 * 0.3) as i128,
        f => x / (1.0 / f).round() as i128,
    }
}

macro_rules! float_model {
    ($($float:ty: $wide:ty, $up:expr, $down:expr),*) => {$(
        impl Model for $float {
            fn op(op: ReduceOp, a: Self, b: Self) -> Self {
                let (x, y): ($wide, $wide) = ($up(a), $up(b));
                match op {
                    ReduceOp::Sum | ReduceOp::Average => $down(x + y),
                    ReduceOp::Product => $down(x * y),
                    _ if x.is_nan() || y.is_nan() => Self::NAN,
                    ReduceOp::Min if x < y || (x == y && x.is_sign_negative()) => a,
                    ReduceOp::Max if x > y || (x == y && x.is_sign_positive()) => a,
                    _ => b,
                }
            }

            fn same(self, other: Self) -> bool {
                self.to_bits() == other.to_bits() || (self.is_nan() && other.is_nan())
            }

            fn whole(plan: &Plan, inputs: &[Self], shape: Shape) -> Self {
                let inputs: Vec<f64> = inputs.iter().map(|&x| f64::from($up(x))).collect();
                let grows = Self::DTYPE == DType::BF16 && plan.before.abs() > 1.0;
                $down(if grows { float_whole::<f64>(plan, &inputs, shape) } else { float_whole::<$wide>(plan, &inputs, shape) } as $wide)
            }
        }
    )*};
}
float_model!(
    f32: f32, |x| x, |x| x,
    f64: f64, |x| x, |x| x,
    f16: f32, f16::to_f32, f16::from_f32,
    bf16: f32, bf16::to_f32, bf16::from_f32
);

trait Real: Model + Into<f64> {
    fn round(x: f64) -> Self;
}

impl Real for f32 {
    fn round(x: f64) -> f32 {
        x as f32
    }
}

impl Real for f64 {
    fn round(x: f64) -> f64 {
        x
    }
}

/// The whole reduction, kept in `W`.
fn float_whole<W: Real>(plan: &Plan, inputs: &[f64], shape: Shape) -> f64 {
    let scaled: Vec<W> = inputs.iter().map(|x| W::round(x * plan.before)).collect();
    W::round(shape.reduce(&scaled, &|a, b| W::op(plan.op, a, b)).into() * plan.after).into()
}

/// `count` elements of any bits, `skip` elements into their buffer.
fn random<T: Element + Default>(seed: &mut u64, count: usize, skip: usize) -> Vec<T> {
    let mut elements = vec![T::default(); count + skip];
    for byte in bytemuck::cast_slice_mut(&mut elements) {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        *byte = (*seed >> 56) as u8;
    }
    // Some zeros of either sign, which random bits hardly ever produce.
    for (i, element) in elements.iter_mut().enumerate().filter(|(i, _)| i % 7 == 3) {
        bytemuck::bytes_of_mut(element).fill(0);
        *bytemuck::bytes_of_mut(element).last_mut().unwrap() = if i % 2 == 0 { 0x80 } else { 0 };
    }
    elements
}

fn agree<T: Model>(what: &str, plan: &Plan, got: &[T], expected: impl Iterator<Item = T>) {
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let (g, e) = (bytemuck::bytes_of(got), bytemuck::bytes_of(&expected));
        assert!(got.same(expected), "{what} {plan:?}: element {i} is {g:02x?} instead of {e:02x?}");
    }
}

/// One random call of every function.
fn check<T: Model>(reduction: Reduction, inputs: usize, length: usize, skip: usize, mut seed: u64) {
    let plan = &Plan::new(T::DTYPE, reduction, inputs);
    let data: Vec<Vec<T>> = (0..inputs).map(|_| random(&mut seed, length, skip)).collect();
    let rows: Vec<&[T]> = data.iter().map(|row| &row[skip..]).collect();
    let bytes: Vec<&[u8]> = rows.iter().map(|row| bytemuck::cast_slice(row)).collect();
    let column = |i: usize| rows.iter().map(|row| row[i]).collect::<Vec<T>>();

    let mut out = vec![T::default(); length + skip];
    combine(plan, &bytes, bytemuck::cast_slice_mut(&mut out[skip..]));
    agree("combine", plan, &out[skip..], (0..length).map(|i| T::whole(plan, &column(i), Shape::Order)));
    combine_tree(plan, &bytes, bytemuck::cast_slice_mut(&mut out[skip..]));
    agree("combine_tree", plan, &out[skip..], (0..length).map(|i| T::whole(plan, &column(i), Shape::Tree)));

    let mut one = data[0].clone();
    alone(plan, bytemuck::cast_slice_mut(&mut one[skip..]));
    agree("alone", plan, &one[skip..], rows[0].iter().map(|&x| T::whole(plan, &[x], Shape::Order)));

    let (mut a, b) = (data[0].clone(), random::<T>(&mut seed, length, 0));
    let folded = |i: usize| T::op(plan.op, rows[0][i], b[i]);
    fold(plan, bytemuck::cast_slice_mut(&mut a[skip..]), bytemuck::cast_slice(&b));
    agree("fold", plan, &a[skip..], (0..length).map(folded));
    let (mut a, mut c) = (data[0].clone(), b.clone());
    fold_both(plan, bytemuck::cast_slice_mut(&mut a[skip..]), bytemuck::cast_slice_mut(&mut c));
    agree("fold_both", plan, &a[skip..], (0..length).map(folded));
    agree("fold_both", plan, &c, (0..length).map(folded));

    let mut scaled = data[0].clone();
    scale(T::DTYPE, bytemuck::cast_slice_mut(&mut scaled[skip..]), reduction.before);
    let once =
        Plan { before: reduction.before, after: 1.0, wide: !matches!(T::DTYPE, DType::F32 | DType::F64), ..*plan };
    agree("scale", &once, &scaled[skip..], rows[0].iter().map(|&x| T::whole(&once, &[x], Shape::Order)));
}

#[test]
fn a_factor_on_the_way_gives_the_bits_of_a_factor_before() {
    fn check<T: Element + PartialEq + std::fmt::Debug>(numbers: &[T], op: ReduceOp, before: f64) {
        let plan = Plan::new(T::DTYPE, Reduction::new(op).scaled(before, 1.0), 2);
        let (mut first, mut second) = (numbers.to_vec(), numbers.iter().rev().copied().collect::<Vec<T>>());
        let (mut put_here, mut sum) = (numbers.to_vec(), second.clone());
        put(&plan, bytemuck::cast_slice_mut(&mut put_here), bytemuck::cast_slice_mut(&mut sum.clone()));
        fold_both_scaled(&plan, bytemuck::cast_slice_mut(&mut first), bytemuck::cast_slice_mut(&mut sum));
        scale(T::DTYPE, bytemuck::cast_slice_mut(&mut second), plan.before);
        assert_eq!(put_here, second, "{plan:?}");
        let mut expected = numbers.to_vec();
        fold_both(&plan, bytemuck::cast_slice_mut(&mut expected), bytemuck::cast_slice_mut(&mut second));
        assert_eq!((&first, &sum), (&expected, &second), "{plan:?}");
    }
    let singles: Vec<f32> = (0..1003).map(|i| (i as f32 - 500.3) / 7.1).collect();
    let doubles: Vec<f64> = singles.iter().map(|&x| f64::from(x) / 3.0).collect();
    for op in [ReduceOp::Sum, ReduceOp::Average, ReduceOp::Max] {
        for before in [1.0, 0.5, 0.3, -2.0] {
            check(&singles, op, before);
            check(&doubles, op, before);
        }
    }
}

fn reductions() -> impl Strategy<Value = Reduction> {
    let factor = prop_oneof![4 => Just(1.0), 1 => prop::sample::select(vec![0.5, 3.0, -2.0, 1.0 / 3.0, 0.3])];
    (prop::sample::select(ReduceOp::ALL.to_vec()), factor.clone(), factor.prop_map(|after| after))
        .prop_filter("the reference knows a few factors only", |(op, _, after)| {
            *op != ReduceOp::Average || *after == 1.0
        })
        .prop_map(|(op, before, after)| Reduction::new(op).scaled(before, after))
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), Just(1), 2usize..70, 500usize..530, Just(2049), 4000usize..4200]
}

macro_rules! properties {
    ($($name:ident: $type:ty),*) => {
        proptest! {
            #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
            $(#[test]
            fn $name(reduction in reductions(), inputs in 1usize..10, length in lengths(), skip in 0usize..4, seed: u64) {
                check::<$type>(reduction, inputs, length, skip, seed);
            })*
        }
    };
}
properties!(
    f32_is_right: f32, f64_is_right: f64, f16_is_right: f16, bf16_is_right: bf16,
    i8_is_right: i8, u8_is_right: u8, i32_is_right: i32, i64_is_right: i64
);

#[test]
fn booleans_are_logical_whatever_the_byte() {
    let (a, b) = ([0u8, 0, 7, 0x80, 1], [0u8, 2, 0, 255, 1]);
    for op in ReduceOp::ALL {
        let plan = Plan::new(DType::Bool, Reduction::new(op).scaled(3.0, 5.0), 2);
        let any = !matches!(op, ReduceOp::Min | ReduceOp::Product);
        let expected = if any { [0, 1, 1, 1, 1] } else { [0, 0, 0, 1, 1] };
        let (mut x, mut y, mut out) = (a, b, [9u8; 5]);
        fold_both(&plan, &mut x, &mut y);
        assert_eq!((x, y), (expected, expected), "{op:?}");
        combine(&plan, &[&a, &b], &mut out);
        assert_eq!(out, expected, "{op:?}");
        combine_tree(&plan, &[&a, &b], &mut out);
        assert_eq!(out, expected, "{op:?}");
        combine(&plan, &[&a], &mut out);
        assert_eq!(out, [0, 0, 1, 1, 1], "{op:?}");
        scale(DType::Bool, &mut out, 0.0);
        assert_eq!(out, [0, 0, 1, 1, 1], "{op:?}");
    }
}

#[test]
fn averages_do_not_overflow_on_the_way() {
    fn average<T: Model>(value: T) {
        for inputs in 1..10 {
            let row = vec![value; 33];
            let mut out = vec![T::default(); 33];
            let rows: Vec<&[u8]> = vec![bytemuck::cast_slice(&row); inputs];
            combine(&Plan::new(T::DTYPE, Reduction::AVERAGE, inputs), &rows, bytemuck::cast_slice_mut(&mut out));
            let plan = Plan::new(T::DTYPE, Reduction::AVERAGE, inputs);
            agree("average", &plan, &out, row.iter().copied());
        }
    }
    average(f16::from_f32(40000.0));
    average(bf16::from_f32(3.0e38));
    average(2f32.powi(127));
    average(2f64.powi(1023));
    average(i8::MIN);
    average(u8::MAX);
    average(i32::MAX);
    average(i64::MAX - 1);
}

#[test]
fn extreme_factors_of_halves_meet_in_a_wider_type() {
    for factor in [1e60, 1e-60, 1e30] {
        let plan = Plan::new(DType::BF16, Reduction::SUM.scaled(factor, 1.0 / factor), 2);
        let row = [bf16::from_f32(1e30); 9];
        let mut out = [bf16::ZERO; 9];
        combine(&plan, &[bytemuck::cast_slice(&row); 2], bytemuck::cast_slice_mut(&mut out));
        assert_eq!(out, [bf16::from_f32(2e30); 9], "{factor:e}");
    }
}

#[test]
fn empty_slices_need_no_alignment() {
    let byte = [0u8; 9];
    let mut other = [0u8; 9];
    for dtype in DType::ALL {
        let plan = Plan::new(dtype, Reduction::AVERAGE, 2);
        for at in 0..9 {
            fold(&plan, &mut other[at..at], &byte[at..at]);
            combine(&plan, &[&byte[at..at], &byte[0..0]], &mut other[at..at]);
            combine_tree(&plan, &[&byte[at..at], &byte[0..0]], &mut other[at..at]);
            scale(dtype, &mut other[at..at], 2.0);
            alone(&plan, &mut other[at..at]);
        }
    }
}
