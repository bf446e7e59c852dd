//! What "reduce" means for a call: the operation and the factors around it.

use serde::{Deserialize, Serialize};

use crate::DType;

/// How two elements become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum ReduceOp {
    /// Addition; integers wrap around, booleans mean "any".
    Sum = 0,
    /// Addition, then division by the number of ranks; integers round toward zero, booleans mean "any".
    Average = 1,
    /// The smallest; booleans mean "all". A NaN in any input gives NaN.
    Min = 2,
    /// The largest; booleans mean "any". A NaN in any input gives NaN.
    Max = 3,
    /// Multiplication; integers wrap around, booleans mean "all".
    Product = 4,
}

impl ReduceOp {
    /// Every operation, in the order of their codes.
    pub const ALL: [ReduceOp; 5] = [ReduceOp::Sum, ReduceOp::Average, ReduceOp::Min, ReduceOp::Max, ReduceOp::Product];

    /// The lower-case name used in messages and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Average => "average",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
            ReduceOp::Product => "product",
        }
    }

    /// The operation with this code, if there is one.
    pub fn from_code(code: u8) -> Option<ReduceOp> {
        ReduceOp::ALL.get(usize::from(code)).copied()
    }
}

/// A reduction as the caller asks for it: `after · fold(op, before · xᵢ)`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Reduction {
    /// How two elements become one.
    pub op: ReduceOp,
    /// Multiplies every input; 1 leaves it unchanged. Ignored for booleans.
    pub before: f64,
    /// Multiplies the result; 1 leaves it unchanged. Ignored for booleans.
    pub after: f64,
}

impl Reduction {
    /// Plain addition.
    pub const SUM: Reduction = Reduction::new(ReduceOp::Sum);
    /// The arithmetic mean over the ranks.
    pub const AVERAGE: Reduction = Reduction::new(ReduceOp::Average);

    /// The operation without factors.
    pub const fn new(op: ReduceOp) -> Self {
        Self { op, before: 1.0, after: 1.0 }
    }

    /// The same with factors for the inputs and for the result.
    pub const fn scaled(self, before: f64, after: f64) -> Self {
        Self { before, after, ..self }
    }
}

/// How the elements of one call are combined, once type and number of inputs are known.
///
/// **No avoidable overflow.** Halves accumulate in `f32`, scaled or averaged integers in wider integers (see
/// [`Plan::wide`]). `f32` and `f64` have no cheap wider type, and the range of `f32` is no larger than that of `bf16`,
/// so an average of these first multiplies by a power of two not above `1/n`, which is exact, and applies the rest of
/// the division after the sum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// The element type.
    pub dtype: DType,
    /// How two elements become one; never `Average`, which has become `Sum` and factors.
    pub op: ReduceOp,
    /// Multiplies every input.
    pub before: f64,
    /// Multiplies the result.
    pub after: f64,
    /// The sum must be kept in a wider type than `dtype`, so partial results cannot travel as `dtype`.
    pub wide: bool,
}

impl Plan {
    /// The plan for `inputs` contributions of `dtype`.
    pub fn new(dtype: DType, reduction: Reduction, inputs: usize) -> Plan {
        let Reduction { op, mut before, mut after } = reduction;
        if dtype == DType::Bool {
            let op = if op == ReduceOp::Average { ReduceOp::Sum } else { op };
            return Plan { dtype, op, before: 1.0, after: 1.0, wide: false };
        }
        let mean = op == ReduceOp::Average;
        let native_float = matches!(dtype, DType::F32 | DType::F64);
        if mean {
            let full_range = native_float || dtype == DType::BF16;
            let power = if full_range { inputs.next_power_of_two() as f64 } else { 1.0 };
            before /= power;
            after *= power / inputs as f64;
        }
        let op = if mean { ReduceOp::Sum } else { op };
        let scaled = before != 1.0 || after != 1.0;
        let half = matches!(dtype, DType::F16 | DType::BF16) && matches!(op, ReduceOp::Sum | ReduceOp::Product);
        let wide = !native_float && (half || scaled);
        Plan { dtype, op, before, after, wide }
    }

    /// Whether inputs or results are multiplied at all.
    pub fn scales(&self) -> bool {
        self.before != 1.0 || self.after != 1.0
    }
}
