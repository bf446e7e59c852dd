//! A batch of samples as Burn's tensors.

use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::{Error, Result, data::Batch};

impl Batch {
    /// Values and labels as tensors. The first has a dimension for the samples before those of one sample; its memory
    /// is the batch's.
    pub fn into_tensors<const D: usize>(mut self, device: &Device) -> Result<(Tensor<D>, Tensor<1, Int>)> {
        let shape: Vec<usize> = std::iter::once(self.count()).chain(self.shape().iter().copied()).collect();
        if shape.len() != D {
            let problem = format!("a batch of shape {shape:?} is not a tensor of {D} dimensions");
            return Err(Error::setting(problem, format!("ask for one of {} dimensions", shape.len())));
        }
        let labels: Vec<i64> = self.labels().iter().map(|&label| i64::from(label)).collect();
        let (count, values) = (labels.len(), TensorData::new(self.take_values(), shape));
        Ok((Tensor::from_data(values, device), Tensor::from_data(TensorData::new(labels, [count]), device)))
    }
}
