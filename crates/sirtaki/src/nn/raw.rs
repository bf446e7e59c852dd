//! The numbers behind the tensors of Burn's back end for CPUs.

use burn::{backend::flex::FlexTensor, tensor::TensorData};

/// The numbers of a contiguous tensor.
pub(super) fn values(tensor: &FlexTensor) -> &[f32] {
    let start = tensor.layout().start_offset();
    &tensor.storage()[start..start + tensor.layout().num_elements()]
}

/// A tensor of these numbers.
pub(super) fn tensor<const D: usize>(values: Vec<f32>, shape: [usize; D]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape))
}
