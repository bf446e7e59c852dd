//! Dense layers, split by outputs or by inputs.

use std::ops::Range;

use burn::{
    module::{Module, Param},
    nn::Linear,
    tensor::Tensor,
};

use super::{
    super::differentiable::Collective,
    part::{cut, name, part},
    sequence::SequenceParts,
};
use crate::{Result, World};

/// A dense layer of which every worker has some outputs.
#[derive(Module, Debug)]
pub struct ColumnLinear {
    /// This worker's columns, `[inputs, outputs here]`.
    pub weight: Param<Tensor<2>>,
    /// The offsets of its outputs.
    pub bias: Option<Param<Tensor<1>>>,
    #[module(skip)]
    entering: Collective,
    #[module(skip)]
    gather: Collective,
}

impl ColumnLinear {
    /// This worker's part of a layer, which is the same on all of them; all of it without a world.
    pub fn new<'a>(world: impl Into<Option<&'a World>>, whole: Linear) -> Result<Self> {
        let (world, [_, outputs]) = (world.into(), whole.weight.dims());
        let own = part(world, outputs, "outputs")?;
        let name = name(world, "column linear");
        Ok(Self {
            weight: cut(&whole.weight, 1, &own),
            bias: whole.bias.as_ref().map(|bias| cut(bias, 0, &own)),
            entering: Collective::entering(world, &name),
            gather: Collective::gather(world, &name, outputs, own),
        })
    }

    /// This worker's outputs for an input that all workers have, `[..., inputs]` to `[..., outputs here]`.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        Linear { weight: self.weight.clone(), bias: self.bias.clone() }.forward(self.entering.of(input))
    }

    /// This worker's outputs for whole sequences, of which it has a part: `[samples, length here, inputs]` to `[samples,
    /// length, outputs here]`.
    pub fn forward_parts(&self, parts: &SequenceParts, input: Tensor<3>) -> Tensor<3> {
        let input = parts.gathered(self.entering.name(), input);
        Linear { weight: self.weight.clone(), bias: self.bias.clone() }.forward(input)
    }

    /// The outputs of all workers, `[..., outputs]`.
    pub fn forward_whole<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        self.gather.along(D - 1, self.forward(input))
    }
}

/// A dense layer of which every worker has some inputs: those outputs that it has of the [`ColumnLinear`] before.
#[derive(Module, Debug)]
pub struct RowLinear {
    /// This worker's rows, `[inputs here, outputs]`.
    pub weight: Param<Tensor<2>>,
    /// The offsets of all outputs, the same on all workers.
    pub bias: Option<Param<Tensor<1>>>,
    #[module(skip)]
    leaving: Collective,
}

impl RowLinear {
    /// This worker's part of a layer, which is the same on all of them; all of it without a world.
    pub fn new<'a>(world: impl Into<Option<&'a World>>, whole: Linear) -> Result<Self> {
        let (world, [inputs, _]) = (world.into(), whole.weight.dims());
        let own = part(world, inputs, "inputs")?;
        Ok(Self::of_rows(world, whole, &own))
    }

    /// The part with these inputs.
    pub(super) fn of_rows(world: Option<&World>, whole: Linear, own: &Range<usize>) -> Self {
        let leaving = Collective::leaving(world, &name(world, "row linear"));
        Self { weight: cut(&whole.weight, 0, own), bias: whole.bias, leaving }
    }

    /// All outputs, on all workers, for this worker's inputs: `[..., inputs here]` to `[..., outputs]`.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let part = Linear { weight: self.weight.clone(), bias: None }.forward(input);
        let sum = self.leaving.of(part);
        match &self.bias {
            Some(bias) => sum + bias.val().unsqueeze(),
            None => sum,
        }
    }

    /// All outputs for this worker's part of sequences, from its inputs for whole ones: `[samples, length, inputs here]` to
    /// `[samples, length here, outputs]`.
    pub fn forward_parts(&self, parts: &SequenceParts, input: Tensor<3>) -> Tensor<3> {
        let part = Linear { weight: self.weight.clone(), bias: None }.forward(input);
        let sum = parts.scattered(self.leaving.name(), part);
        match &self.bias {
            Some(bias) => sum + parts.module(bias).val().unsqueeze(),
            None => sum,
        }
    }
}
