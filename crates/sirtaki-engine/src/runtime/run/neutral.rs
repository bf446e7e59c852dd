//! What a rank without data brings to a reduction: something that changes nothing.

use half::{bf16, f16};
use sirtaki_comm::{DType, ReduceOp};

use crate::{decide::request::Request, runtime::memory::Tensor};

/// A tensor that changes nothing.
pub(super) fn neutral(request: &Request, op: ReduceOp) -> Tensor {
    let mut tensor = Tensor::zeros(request.dtype, request.elements());
    fill(tensor.bytes_mut(), request.dtype, op);
    tensor
}

/// Elements that change nothing.
pub(crate) fn fill(place: &mut [u8], dtype: DType, op: ReduceOp) {
    let element = neutral_element(dtype, op);
    place.chunks_exact_mut(dtype.size()).for_each(|chunk| chunk.copy_from_slice(&element[..dtype.size()]));
}

fn neutral_element(dtype: DType, op: ReduceOp) -> [u8; 8] {
    let mut element = [0; 8];
    let mut set = |bytes: &[u8]| element[..bytes.len()].copy_from_slice(bytes);
    macro_rules! number {
        ($type:ty, $one:expr, $low:expr, $high:expr) => {{
            let value: $type = match op {
                ReduceOp::Sum | ReduceOp::Average => <$type>::default(),
                ReduceOp::Product => $one,
                ReduceOp::Min => $high,
                ReduceOp::Max => $low,
            };
            set(&value.to_ne_bytes());
        }};
    }
    match dtype {
        DType::F16 => number!(f16, f16::ONE, f16::NEG_INFINITY, f16::INFINITY),
        DType::BF16 => number!(bf16, bf16::ONE, bf16::NEG_INFINITY, bf16::INFINITY),
        DType::F32 => number!(f32, 1.0, f32::NEG_INFINITY, f32::INFINITY),
        DType::F64 => number!(f64, 1.0, f64::NEG_INFINITY, f64::INFINITY),
        DType::I8 => number!(i8, 1, i8::MIN, i8::MAX),
        DType::U8 => number!(u8, 1, u8::MIN, u8::MAX),
        DType::I32 => number!(i32, 1, i32::MIN, i32::MAX),
        DType::I64 => number!(i64, 1, i64::MIN, i64::MAX),
        DType::Bool => number!(u8, 1, 0, 1),
    }
    element
}
