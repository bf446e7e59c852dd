//! Burn's data as the engine's tensors and back. Elements are moved, not copied, if Burn's memory is a vector without
//! other owners.

use burn::tensor::{Bytes, DType, Shape, TensorData, bf16, f16};
use sirtaki_comm::Element;
use sirtaki_engine::{Operation, Output, Request, Tensor};

use crate::{Result, world::elements};

/// Runs the body with `T` as the type of the elements, or `otherwise` if the engine does not have that type.
macro_rules! typed {
    ($dtype:expr, $body:expr, otherwise $raw:expr) => {
        match $dtype {
            DType::F64 => typed!(@f64, $body),
            DType::F32 | DType::Flex32 => typed!(@f32, $body),
            DType::F16 => typed!(@f16, $body),
            DType::BF16 => typed!(@bf16, $body),
            DType::I64 => typed!(@i64, $body),
            DType::I32 => typed!(@i32, $body),
            DType::I8 => typed!(@i8, $body),
            DType::U8 => typed!(@u8, $body),
            _ => $raw,
        }
    };
    (@$type:ident, $body:expr) => {{
        type T = $type;
        $body
    }};
}

/// A request for these elements. Elements of types that the engine does not know are sent as bytes, with one more
/// dimension.
pub(super) fn outbound(name: &str, operation: Operation, data: TensorData) -> (Request, Tensor) {
    let (bytes, shape, dtype) = data.into_parts();
    typed!(
        dtype,
        {
            let elements: Vec<T> = bytes.try_into_vec().unwrap_or_else(|bytes| bytemuck::pod_collect_to_vec(&bytes));
            (Request::new(name, operation, T::DTYPE, &shape), Tensor::from_vec(elements))
        },
        otherwise {
            let elements: Vec<u8> = bytes.try_into_vec().unwrap_or_else(|bytes| bytes.to_vec());
            let shape: Vec<usize> = shape.iter().copied().chain([dtype.size()]).collect();
            (Request::new(name, operation, u8::DTYPE, &shape), Tensor::from_vec(elements))
        }
    )
}

/// The result of [`outbound`].
pub(super) fn inbound(name: &str, output: Output, shape: Shape, dtype: DType) -> Result<TensorData> {
    let bytes = typed!(
        dtype,
        Bytes::from_elems(elements::<T>(name, output)?),
        otherwise Bytes::from_bytes_vec(elements::<u8>(name, output)?)
    );
    Ok(TensorData::from_bytes(bytes, shape, dtype))
}

/// The engine's type for elements of this type.
pub(super) fn engine_type(dtype: DType) -> sirtaki_comm::DType {
    typed!(dtype, T::DTYPE, otherwise u8::DTYPE)
}

/// A copy of elements that lie elsewhere.
pub(super) fn copied(bytes: &[u8], shape: Shape, dtype: DType) -> TensorData {
    let bytes = typed!(
        dtype,
        Bytes::from_elems(bytemuck::pod_collect_to_vec::<u8, T>(bytes)),
        otherwise Bytes::from_bytes_vec(bytes.to_vec())
    );
    TensorData::from_bytes(bytes, shape, dtype)
}

/// Zeros, for what this rank does not have.
pub(super) fn zeros(shape: &Shape, dtype: DType) -> TensorData {
    let count = shape.num_elements();
    let bytes = typed!(
        dtype,
        Bytes::from_elems(vec![T::default(); count]),
        otherwise Bytes::from_bytes_vec(vec![0; count * dtype.size()])
    );
    TensorData::from_bytes(bytes, shape.clone(), dtype)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(data: TensorData) -> (Request, TensorData) {
        let (shape, dtype) = (data.shape().clone(), data.dtype());
        let (request, tensor) = outbound("t", Operation::Barrier, data);
        assert_eq!((tensor.dtype(), tensor.len()), (request.dtype, request.elements()));
        let back = inbound("t", Output::Tensor(tensor, request.shape.clone()), shape, dtype).unwrap();
        (request, back)
    }

    #[test]
    fn vectors_go_and_come_without_a_copy() {
        let elements = vec![1.0_f32, 2.0, 3.0, 4.0];
        let place = elements.as_ptr();
        let (request, back) = round_trip(TensorData::new(elements, [2, 2]));
        assert_eq!(
            (request.shape.as_slice(), back.as_slice::<f32>().unwrap()),
            ([2, 2].as_slice(), [1.0, 2.0, 3.0, 4.0].as_slice())
        );
        assert_eq!(back.as_slice::<f32>().unwrap().as_ptr(), place);
    }

    #[test]
    fn types_that_the_engine_does_not_know_travel_as_bytes() {
        let data = TensorData::new(vec![u64::MAX, 7, 1], [3]);
        let (request, back) = round_trip(data.clone());
        assert_eq!((request.shape.as_slice(), back), ([3, 8].as_slice(), data));
        let flags = TensorData::new(vec![true, false], [2]);
        assert_eq!(round_trip(flags.clone()).1, flags);
        let none = TensorData::new(Vec::<f32>::new(), [0, 3]);
        assert_eq!(round_trip(none.clone()).1, none);
    }

    #[test]
    fn zeros_have_the_type_and_shape_asked_for() {
        for dtype in [DType::F32, DType::I64, DType::U32] {
            let zeros = zeros(&Shape::from([2, 3]), dtype);
            assert_eq!(
                (zeros.dtype(), zeros.shape().num_elements(), zeros.as_bytes().iter().max()),
                (dtype, 6, Some(&0))
            );
        }
    }
}
