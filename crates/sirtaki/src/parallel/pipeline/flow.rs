//! What goes from one layer of a chain to the next: some tensors, in order.
//!
//! A tensor that only a later layer needs, such as the input of a skip connection or a weight that two layers share,
//! goes along with the others; layers in between pass it on. Between workers, tensors travel as plain elements, and
//! their gradients travel back.

use std::{any::Any, collections::VecDeque};

use burn::tensor::{DType, Device, Float, Gradients, Int, Tensor, TensorData};

use super::pull::pull;
use crate::{Error, Result};

/// Some tensors, in order.
#[derive(Default)]
pub struct Flow(VecDeque<Box<dyn Carried>>);

impl Flow {
    /// No tensor yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more tensor, of floating-point numbers or integers, behind the others.
    #[must_use]
    pub fn with(mut self, tensor: impl Carried) -> Self {
        self.0.push_back(Box::new(tensor));
        self
    }

    /// How many tensors there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the first tensor, which has to be of this kind and number of dimensions.
    ///
    /// ```
    /// use burn::tensor::{Device, Tensor};
    /// use sirtaki::Flow;
    ///
    /// let mut flow = Flow::new().with(Tensor::<2>::ones([3, 4], &Device::flex()));
    /// let tensor: Tensor<2> = flow.take()?;
    /// assert_eq!((tensor.dims(), flow.len()), ([3, 4], 0));
    /// # Ok::<(), sirtaki::Error>(())
    /// ```
    pub fn take<T: Carried>(&mut self) -> Result<T> {
        let wanted = T::kind();
        let Some(first) = self.0.pop_front() else {
            return Err(Error::setting(
                format!("a layer takes {wanted} that the layer before it does not give"),
                "let each layer take as many tensors as the one before it gives",
            ));
        };
        let found = first.form();
        first.into_any().downcast().map(|tensor| *tensor).map_err(|_| {
            let problem = format!("a layer takes {wanted}, and the layer before it gives {found}");
            Error::setting(problem, "let each layer take what the one before it gives")
        })
    }

    /// The tensors as plain elements.
    pub(super) fn data(&self) -> Vec<TensorData> {
        self.0.iter().map(|tensor| tensor.data()).collect()
    }

    /// Tensors made of plain elements; those of floating-point numbers keep their gradients if the device does.
    pub(super) fn from_data(data: Vec<TensorData>, device: &Device) -> Result<Self> {
        data.into_iter().map(|data| carried(data, device)).collect::<Result<_>>().map(Self)
    }

    /// The same tensors again.
    pub(super) fn again(&self) -> Self {
        Self(self.0.iter().map(|tensor| tensor.again()).collect())
    }

    /// Lets Burn forget everything that was computed from these tensors and is gone. It looks for that only at the end of a
    /// backward pass through the same graph; until then, weights and activations stay alive.
    pub(super) fn forget(self) {
        let any = self.data().into_iter().filter(|data| is_float(data.dtype())).map(Some).collect();
        drop(self.pull(any).map(|loss| loss.backward()));
    }

    /// How many of the tensors have gradients.
    pub(super) fn floats(&self) -> usize {
        self.0.iter().filter(|tensor| tensor.is_float()).count()
    }

    /// The gradients of the tensors that can have one, as far as there are any.
    pub(super) fn gradients(&self, gradients: &mut Gradients) -> Vec<Option<TensorData>> {
        self.0.iter().filter(|tensor| tensor.is_float()).map(|tensor| tensor.gradient(gradients)).collect()
    }

    /// A number whose gradients with respect to the tensors are the ones given; `None` if there are none.
    pub(super) fn pull(self, gradients: Vec<Option<TensorData>>) -> Option<Tensor<1>> {
        let floats = self.0.into_iter().filter(|tensor| tensor.is_float());
        let pulled = floats.zip(gradients).filter_map(|(tensor, gradient)| tensor.pull(gradient?));
        pulled.reduce(|sum, next| sum + next)
    }
}

impl std::fmt::Debug for Flow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|tensor| tensor.form())).finish()
    }
}

/// A tensor in a [`Flow`]: of floating-point numbers, or of integers.
pub trait Carried: Any + Send {
    /// What such tensors are called.
    fn kind() -> String
    where
        Self: Sized;

    /// What this one is called.
    fn form(&self) -> String;

    #[doc(hidden)]
    fn into_any(self: Box<Self>) -> Box<dyn Any>;

    #[doc(hidden)]
    fn again(&self) -> Box<dyn Carried>;

    #[doc(hidden)]
    fn data(&self) -> TensorData;

    #[doc(hidden)]
    fn is_float(&self) -> bool {
        false
    }

    #[doc(hidden)]
    fn gradient(&self, _: &mut Gradients) -> Option<TensorData> {
        None
    }

    #[doc(hidden)]
    fn pull(self: Box<Self>, _: TensorData) -> Option<Tensor<1>> {
        None
    }
}

impl<const D: usize> Carried for Tensor<D, Float> {
    fn kind() -> String {
        format!("a tensor of floating-point numbers with {D} dimensions")
    }

    fn form(&self) -> String {
        format!("one of floating-point numbers with shape {:?}", self.dims())
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn again(&self) -> Box<dyn Carried> {
        Box::new(self.clone())
    }

    fn data(&self) -> TensorData {
        self.to_data()
    }

    fn is_float(&self) -> bool {
        true
    }

    fn gradient(&self, gradients: &mut Gradients) -> Option<TensorData> {
        self.grad_remove(gradients).map(Tensor::into_data)
    }

    fn pull(self: Box<Self>, gradient: TensorData) -> Option<Tensor<1>> {
        self.is_tracked().then(|| pull(*self, gradient))
    }
}

impl<const D: usize> Carried for Tensor<D, Int> {
    fn kind() -> String {
        format!("a tensor of integers with {D} dimensions")
    }

    fn form(&self) -> String {
        format!("one of integers with shape {:?}", self.dims())
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn again(&self) -> Box<dyn Carried> {
        Box::new(self.clone())
    }

    fn data(&self) -> TensorData {
        self.to_data()
    }
}

/// A tensor of as many dimensions as the elements have.
fn carried(data: TensorData, device: &Device) -> Result<Box<dyn Carried>> {
    match data.shape().len() {
        1 => Ok(of_rank::<1>(data, device)),
        2 => Ok(of_rank::<2>(data, device)),
        3 => Ok(of_rank::<3>(data, device)),
        4 => Ok(of_rank::<4>(data, device)),
        5 => Ok(of_rank::<5>(data, device)),
        6 => Ok(of_rank::<6>(data, device)),
        dimensions => Err(Error::setting(
            format!("a tensor of {dimensions} dimensions goes from one stage to the next"),
            "reshape it to between 1 and 6 dimensions",
        )),
    }
}

fn of_rank<const D: usize>(data: TensorData, device: &Device) -> Box<dyn Carried> {
    let dtype = data.dtype();
    if !is_float(dtype) {
        return Box::new(Tensor::<D, Int>::from_data(data, (device, dtype)));
    }
    let tensor = Tensor::<D>::from_data(data, (device, dtype));
    Box::new(if device.is_autodiff() { tensor.require_grad() } else { tensor })
}

fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F64 | DType::F32 | DType::Flex32 | DType::F16 | DType::BF16)
}
