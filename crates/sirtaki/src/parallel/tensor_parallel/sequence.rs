//! Sequences split over the workers that share layers, where every position is computed by itself.
//!
//! Between layers that are split, all workers would compute the same norms and dropout on the same values. Instead each
//! can have a part of every sequence: a column layer gathers the parts, and a row layer adds up what workers have and
//! leaves each its part, which moves as many bytes as the two sums without. Parameters of what is computed on parts have
//! gradients from all of them; dropout draws the numbers of whole sequences, of which each worker uses its own.

use std::ops::Range;

use burn::{
    module::{Module, ModuleMapper, Param},
    tensor::Tensor,
};

use super::{
    super::{differentiable::Collective, dropout::ShardDropout},
    part::{name, part},
};
use crate::{Result, World};

/// The dimension of a sequence in `[samples, length, features]`.
const LENGTH: usize = 1;

/// Sequences of one length, of which every worker has a part.
///
/// ```no_run
/// # use burn::{nn::LayerNorm, tensor::{Tensor, activation::gelu}};
/// # use sirtaki::{ShardDropout, tensor_parallel::{ColumnLinear, RowLinear, SequenceParts}};
/// # fn dense(parts: &SequenceParts, norm: &LayerNorm, up: &ColumnLinear, down: &RowLinear, dropout: &ShardDropout,
/// #     values: Tensor<3>) -> Tensor<3> {
/// // `values` is this worker's part, and so is the result.
/// let hidden = parts.module(norm).forward(values.clone());
/// let hidden = gelu(up.forward_parts(parts, hidden));
/// values + parts.dropout(dropout, down.forward_parts(parts, hidden))
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SequenceParts {
    world: Option<World>,
    name: String,
    total: usize,
    own: Range<usize>,
}

impl SequenceParts {
    /// For sequences of this length.
    pub fn new<'a>(world: impl Into<Option<&'a World>>, length: usize) -> Result<Self> {
        let world = world.into();
        let own = part(world, length, "positions")?;
        Ok(Self { world: world.cloned(), name: name(world, "sequence"), total: length, own })
    }

    /// The positions that this worker has.
    pub fn own(&self) -> Range<usize> {
        self.own.clone()
    }

    /// This worker's part of sequences that all workers have.
    ///
    /// # Panics
    /// If they have another length.
    pub fn split(&self, whole: Tensor<3>) -> Tensor<3> {
        let [_, length, _] = whole.dims();
        assert!(length == self.total, "sequences of {length} positions, and they were to have {}", self.total);
        let split = Collective::split(self.world.as_ref(), &self.name, self.total, self.own.clone());
        split.along(LENGTH, whole)
    }

    /// Whole sequences, with which all workers go on to compute the same.
    pub fn join(&self, part: Tensor<3>) -> Tensor<3> {
        let name = format!("{} joined", self.name);
        Collective::gather(self.world.as_ref(), &name, self.total, self.own.clone()).along(LENGTH, part)
    }

    /// A module as it computes on this worker's part: each of its parameters has the gradients of all workers' parts. It is
    /// asked for in every pass, by all workers in the same order.
    pub fn module<M: Module>(&self, module: &M) -> M {
        module.clone().map(&mut Summed { parts: self, count: 0 })
    }

    /// Dropout on this worker's part, of the values that would be dropped of the whole.
    pub fn dropout(&self, dropout: &ShardDropout, part: Tensor<3>) -> Tensor<3> {
        dropout.forward_part(part, LENGTH, &self.own, self.total)
    }

    /// Whole sequences for a layer of which every worker computes a part. Gradients are added up, and each worker gets
    /// those of its part.
    pub(super) fn gathered(&self, name: &str, part: Tensor<3>) -> Tensor<3> {
        Collective::gather_parts(self.world.as_ref(), name, self.total).along(LENGTH, part)
    }

    /// The sum of what all workers have of whole sequences, of which each keeps its part.
    pub(super) fn scattered(&self, name: &str, whole: Tensor<3>) -> Tensor<3> {
        Collective::scatter_parts(self.world.as_ref(), name, self.total).along(LENGTH, whole)
    }
}

/// Makes the gradients of parameters those of all workers.
struct Summed<'a> {
    parts: &'a SequenceParts,
    count: usize,
}

impl ModuleMapper for Summed<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        let name = format!("{} parameter {}", self.parts.name, self.count);
        self.count += 1;
        Param::from_mapped_value(id, Collective::entering(self.parts.world.as_ref(), &name).of(tensor), mapper)
    }
}
