//! A lookup table, split by rows.

use std::ops::Range;

use burn::{
    module::{Module, Param},
    nn::Embedding,
    tensor::{Int, Tensor, module::embedding},
};

use super::{
    super::differentiable::Collective,
    part::{cut, name, part},
};
use crate::{Result, World};

/// A lookup table of which every worker has some rows.
#[derive(Module, Debug)]
pub struct SplitEmbedding {
    /// This worker's rows.
    pub weight: Param<Tensor<2>>,
    #[module(skip)]
    rows: Range<usize>,
    #[module(skip)]
    leaving: Collective,
}

impl SplitEmbedding {
    /// This worker's part of a table, which is the same on all of them; all of it without a world.
    pub fn new<'a>(world: impl Into<Option<&'a World>>, whole: Embedding) -> Result<Self> {
        let world = world.into();
        let rows = part(world, whole.weight.dims()[0], "rows")?;
        let leaving = Collective::leaving(world, &name(world, "embedding"));
        Ok(Self { weight: cut(&whole.weight, 0, &rows), rows, leaving })
    }

    /// The rows of these numbers, on all workers: `[samples, length]` to `[samples, length, features]`.
    pub fn forward(&self, numbers: Tensor<2, Int>) -> Tensor<3> {
        let ([samples, length], [_, features]) = (numbers.dims(), self.weight.dims());
        let outside = numbers
            .clone()
            .lower_elem(self.rows.start as i64)
            .bool_or(numbers.clone().greater_equal_elem(self.rows.end as i64));
        let here = numbers.sub_scalar(self.rows.start as i64).mask_fill(outside.clone(), 0);
        let found = embedding(self.weight.val(), here);
        let outside = outside.unsqueeze_dim::<3>(2).expand([samples, length, features]);
        self.leaving.of(found.mask_fill(outside, 0.0))
    }
}
