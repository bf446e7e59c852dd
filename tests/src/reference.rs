//! What a reduction should give, computed the obvious way.

use sirtaki_comm::{DType, ReduceOp, Reduction};

use crate::data::{self, Data};

/// The reduction of one element of every rank.
pub fn reduce(dtype: DType, reduction: Reduction, inputs: &[f64]) -> f64 {
    let (op, count) = (reduction.op, inputs.len() as f64);
    if dtype == DType::Bool {
        let all = matches!(op, ReduceOp::Min | ReduceOp::Product);
        return f64::from(if all { !inputs.contains(&0.0) } else { inputs.iter().any(|&x| x != 0.0) });
    }
    let cut = |x: f64| if dtype.is_float() { x } else { x.trunc() };
    let scaled = inputs.iter().map(|x| cut(x * reduction.before));
    let whole = match op {
        ReduceOp::Sum | ReduceOp::Average => scaled.sum(),
        ReduceOp::Min => scaled.fold(f64::INFINITY, f64::min),
        ReduceOp::Max => scaled.fold(f64::NEG_INFINITY, f64::max),
        ReduceOp::Product => scaled.product::<f64>(),
    };
    let mean = if op == ReduceOp::Average { whole / count } else { whole };
    let result = cut(mean * reduction.after);
    let plain = reduction.before == 1.0 && reduction.after == 1.0 && op != ReduceOp::Average;
    match dtype {
        DType::I8 if plain => (result as i64 as i8).into(),
        DType::U8 if plain => (result as i64 as u8).into(),
        _ => result,
    }
}

/// The result of all ranks of a group of `size` reducing `count` elements of [`data::numbers`].
pub fn expected(dtype: DType, reduction: Reduction, size: usize, count: usize, seed: usize) -> Data {
    let mut column = vec![0.0; size];
    let element = |i: usize| {
        column.iter_mut().enumerate().for_each(|(rank, x)| *x = data::number(dtype, rank, i, seed));
        reduce(dtype, reduction, &column)
    };
    Data::new(dtype, &(0..count).map(element).collect::<Vec<_>>())
}

/// Panics unless the two hold the same numbers: exactly, or to the last place or two where a division had to round.
pub fn assert_close(what: &str, dtype: DType, got: &Data, expected: &Data) {
    let tolerance = match dtype {
        DType::F16 => 2e-3,
        DType::BF16 => 1e-2,
        DType::F32 => 3e-7,
        DType::F64 => 1e-15,
        _ => 0.0,
    };
    let (got, expected) = (got.numbers(), expected.numbers());
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (got, expected)) in got.iter().zip(&expected).enumerate() {
        let close = got == expected || (got - expected).abs() <= tolerance * expected.abs();
        assert!(close, "{what}: element {i} is {got} instead of {expected}");
    }
}
