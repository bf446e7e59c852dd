//! Operations that combine elements: which of them MPI does itself, and in what form.
//!
//! - Sums and products of `f32`, `f64` and integers are MPI's own.
//! - Minimum and maximum of floats go as integers, see [`super::ordered`].
//! - Booleans become bytes of zero and one, whose maximum is "any" and whose minimum is "all".
//! - What must be accumulated in a wider type (halves, scaled integers) cannot be left to MPI; the caller does that.
//!
//! MPI only recommends that an all-reduce gives the same bits on every rank. Open MPI and MPICH ensure it for the
//! operations used here, because each result is either computed once and distributed or computed on every rank along
//! the same tree of commutative operations. Which NaN (sign and payload) a sum of NaNs gives may differ.

use super::{
    core::Core,
    moves::narrow,
    ordered,
    raw::{MpiOp, Type},
};
use crate::{CommError, DType, Plan, Rank, ReduceOp, SliceMut, communicator::check::offsets, kernel};

/// Elements per call of a reduction to one rank, which may need a copy of them.
const STEP: usize = 1 << 20;

/// How MPI sees a plan.
#[derive(Clone, Copy)]
struct Native {
    of: Type,
    op: MpiOp,
    ordered: bool,
}

impl Native {
    fn new(plan: &Plan) -> Self {
        let op = match plan.op {
            ReduceOp::Sum | ReduceOp::Average => MpiOp::Sum,
            ReduceOp::Min => MpiOp::Min,
            ReduceOp::Max => MpiOp::Max,
            ReduceOp::Product => MpiOp::Product,
        };
        if let Some(of) = ordered::stand_in(plan.dtype).filter(|_| matches!(op, MpiOp::Min | MpiOp::Max)) {
            return Self { of, op, ordered: true };
        }
        let of = match plan.dtype {
            DType::F32 => Type::F32,
            DType::F64 => Type::F64,
            DType::I8 => Type::I8,
            DType::I32 => Type::I32,
            DType::I64 => Type::I64,
            DType::U8 => Type::U8,
            DType::F16 | DType::BF16 => Type::I16,
            DType::Bool => {
                let op = if matches!(op, MpiOp::Sum | MpiOp::Max) { MpiOp::Max } else { MpiOp::Min };
                return Self { of: Type::U8, op, ordered: false };
            }
        };
        Self { of, op, ordered: false }
    }
}

/// Applies factors and conversions before MPI sees the data.
fn prepare(plan: &Plan, native: Native, data: &mut [u8]) {
    kernel::scale(plan.dtype, data, plan.before);
    if plan.dtype == DType::Bool {
        data.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
    }
    if native.ordered {
        ordered::encode(plan.dtype, data, native.op);
    }
}

/// Applies conversions and factors to the result.
fn complete(plan: &Plan, native: Native, data: &mut [u8]) {
    if native.ordered {
        ordered::decode(plan.dtype, data);
    }
    kernel::scale(plan.dtype, data, plan.after);
}

/// For plans that are not wide.
pub(super) fn all_reduce(core: &Core, plan: &Plan, mut data: SliceMut<'_>) -> Result<(), CommError> {
    let native = Native::new(plan);
    let data = data.bytes_mut();
    prepare(plan, native, data);
    data.chunks_mut(core.limit * native.of.size()).try_for_each(|piece| {
        core.ask("reduce to all", |mpi, comm| mpi.all_reduce(piece, native.of, native.op, comm))
    })?;
    complete(plan, native, data);
    Ok(())
}

/// For plans that are not wide.
pub(super) fn reduce(core: &Core, plan: &Plan, mut data: SliceMut<'_>, root: Rank) -> Result<(), CommError> {
    let native = Native::new(plan);
    let data = data.bytes_mut();
    prepare(plan, native, data);
    to_root(core, native, data, root)?;
    complete(plan, native, data);
    Ok(())
}

fn to_root(core: &Core, native: Native, data: &mut [u8], root: Rank) -> Result<(), CommError> {
    data.chunks_mut(core.limit.min(STEP) * native.of.size())
        .try_for_each(|piece| core.ask("reduce", |mpi, comm| mpi.reduce(piece, native.of, native.op, root, comm)))
}

/// For plans that are not wide.
pub(super) fn reduce_scatter(
    core: &Core,
    plan: &Plan,
    mut all: SliceMut<'_>,
    counts: &[usize],
) -> Result<(), CommError> {
    let native = Native::new(plan);
    let (starts, size, me) = (offsets(counts), native.of.size(), core.group.rank());
    let fits = all.len() <= core.limit;
    let data = all.bytes_mut();
    prepare(plan, native, data);
    if fits {
        let counts = narrow(counts);
        core.ask("reduce parts", |mpi, comm| mpi.reduce_scatter(data, &counts, native.of, native.op, comm))?;
        data.copy_within(..(starts[me + 1] - starts[me]) * size, starts[me] * size);
    } else {
        for rank in 0..counts.len() {
            to_root(core, native, &mut data[starts[rank] * size..starts[rank + 1] * size], rank)?;
        }
    }
    complete(plan, native, &mut data[starts[me] * size..starts[me + 1] * size]);
    Ok(())
}
