//! What the kernels of `reduce.cu` are told: their parameters, and which of them performs a reduction.

use crate::{DType, Plan, ReduceOp, kernel};

// As in `reduce.cu`.
pub(super) const THREADS: u32 = 256;
pub(super) const TILE_BYTES: u32 = THREADS * 2 * 16;
pub(super) const COPY_TILE_BYTES: u32 = THREADS * 4 * 16;
pub(super) const MOST_INPUTS: usize = 64;
pub(super) const COMBINE_SEGMENTS: usize = 128;
pub(super) const COPY_SEGMENTS: usize = 160;

#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct KernelFactor {
    pub(super) kind: u32,
    pub(super) unused: u32,
    pub(super) bits: u64,
}

impl KernelFactor {
    pub(super) const NONE: KernelFactor = KernelFactor { kind: 0, unused: 0, bits: 0 };

    pub(super) fn single(factor: f64) -> KernelFactor {
        KernelFactor { kind: 1, unused: 0, bits: factor.to_bits() }
    }

    pub(super) fn double(factor: f64) -> KernelFactor {
        KernelFactor { kind: 2, unused: 0, bits: factor.to_bits() }
    }

    pub(super) fn times(factor: i64) -> KernelFactor {
        KernelFactor { kind: 3, unused: 0, bits: factor as u64 }
    }

    pub(super) fn over(divisor: i64) -> KernelFactor {
        KernelFactor { kind: 4, unused: 0, bits: divisor as u64 }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct CombineSegment {
    pub(super) out: u64,
    pub(super) offset: u32,
    pub(super) count: u32,
    pub(super) first_tile: u32,
    pub(super) aligned: u32,
}

#[repr(C)]
pub(super) struct CombineJob {
    pub(super) inputs: [u64; MOST_INPUTS],
    pub(super) segments: [CombineSegment; COMBINE_SEGMENTS],
    pub(super) input_count: u32,
    pub(super) segment_count: u32,
    pub(super) tiles: u32,
    pub(super) op: u32,
    pub(super) before: KernelFactor,
    pub(super) after: KernelFactor,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct CopySegment {
    pub(super) to: u64,
    pub(super) from: u64,
    pub(super) bytes: u32,
    pub(super) first_tile: u32,
}

#[repr(C)]
pub(super) struct CopyJob {
    pub(super) segments: [CopySegment; COPY_SEGMENTS],
    pub(super) segment_count: u32,
    pub(super) tiles: u32,
}

/// Kernels take at most this many bytes of parameters.
const _: () = assert!(size_of::<CombineJob>() <= 4096 && size_of::<CopyJob>() <= 4096);

/// The type in which sums are kept; only what factors depend on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Sums {
    Single,
    Double,
    WideInteger,
    /// Types without factors.
    Own,
}

impl Sums {
    pub(super) fn factor(self, factor: f64) -> KernelFactor {
        match self {
            _ if factor == 1.0 => KernelFactor::NONE,
            Sums::Own => KernelFactor::NONE,
            Sums::Single if f64::from(factor as f32) == factor => KernelFactor::single(factor),
            Sums::Single | Sums::Double => KernelFactor::double(factor),
            Sums::WideInteger => match kernel::Factor::new(factor) {
                kernel::Factor::Times(times) => KernelFactor::times(times),
                kernel::Factor::Over(divisor) => KernelFactor::over(divisor),
                kernel::Factor::Real(real) => KernelFactor::double(real),
            },
        }
    }
}

/// The kernels of reductions, by what [`lane`] returns.
pub(super) const COMBINE: [&str; 15] = [
    "combine_f32",
    "combine_f64",
    "combine_f16",
    "combine_f16_double",
    "combine_bf16",
    "combine_bf16_double",
    "combine_i8",
    "combine_u8",
    "combine_i32",
    "combine_i64",
    "combine_i8_wide",
    "combine_u8_wide",
    "combine_i32_wide",
    "combine_i64_wide",
    "combine_bool",
];

/// Which kernel carries out a plan, and in what type it keeps sums.
pub(super) fn lane(plan: &Plan) -> (usize, Sums) {
    match (plan.dtype, plan.wide) {
        (DType::F32, _) => (0, Sums::Single),
        (DType::F64, _) => (1, Sums::Double),
        (DType::F16, _) if kernel::single_suffices(plan) => (2, Sums::Single),
        (DType::F16, _) => (3, Sums::Double),
        (DType::BF16, _) if kernel::single_suffices(plan) => (4, Sums::Single),
        (DType::BF16, _) => (5, Sums::Double),
        (DType::I8, false) => (6, Sums::Own),
        (DType::U8, false) => (7, Sums::Own),
        (DType::I32, false) => (8, Sums::Own),
        (DType::I64, false) => (9, Sums::Own),
        (DType::I8, true) => (10, Sums::WideInteger),
        (DType::U8, true) => (11, Sums::WideInteger),
        (DType::I32, true) => (12, Sums::WideInteger),
        (DType::I64, true) => (13, Sums::WideInteger),
        (DType::Bool, _) => (14, Sums::Own),
    }
}

/// What the kernels call an operation.
pub(super) fn op_code(op: ReduceOp) -> u32 {
    match op {
        ReduceOp::Sum | ReduceOp::Average => 0,
        ReduceOp::Product => 1,
        ReduceOp::Min => 2,
        ReduceOp::Max => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reduction;

    const SOURCE: &str = include_str!("reduce.cu");
    const PTX: &str = include_str!("reduce.ptx");

    #[test]
    fn constants_are_those_of_the_source() {
        let expected = [
            format!("THREADS = {THREADS};"),
            format!("MOST_INPUTS = {MOST_INPUTS};"),
            format!("COMBINE_SEGMENTS = {COMBINE_SEGMENTS};"),
            format!("COPY_SEGMENTS = {COPY_SEGMENTS};"),
        ];
        expected.iter().for_each(|line| assert!(SOURCE.contains(line), "{line}"));
        assert!(PTX.contains(&format!("combine_f32_param_0[{}]", size_of::<CombineJob>())));
        assert!(PTX.contains(&format!("copy_segments_param_0[{}]", size_of::<CopyJob>())));
    }

    #[test]
    fn factors_are_applied_as_on_the_host() {
        let average = |dtype| Plan::new(dtype, Reduction::AVERAGE, 3);
        let after = |dtype| lane(&average(dtype)).1.factor(average(dtype).after);
        assert_eq!(after(DType::I32), KernelFactor::over(3));
        assert_eq!(after(DType::F64), KernelFactor::double(4.0 / 3.0));
        assert_eq!(after(DType::F32), KernelFactor::double(4.0 / 3.0));
        assert_eq!(Sums::Single.factor(average(DType::F32).before), KernelFactor::single(0.25));
        assert_eq!(after(DType::Bool), KernelFactor::NONE);
        assert_eq!(Sums::WideInteger.factor(-2.0), KernelFactor::times(-2));
        assert_eq!(Sums::WideInteger.factor(0.3), KernelFactor::double(0.3));
        let large = Plan::new(DType::F16, Reduction::SUM.scaled(1e9, 1e-9), 2);
        assert_eq!((COMBINE[lane(&large).0], lane(&large).1), ("combine_f16_double", Sums::Double));
    }
}
