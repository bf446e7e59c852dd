//! Which part of a layer is whose.

use std::ops::Range;

use burn::{module::Param, tensor::Tensor};
use sirtaki_engine::decide::request::shares;

use crate::{Error, Result, World};

/// This rank's part of `total` things; the first ranks have one more where that does not come out even.
pub(super) fn part(world: &World, total: usize, what: &str) -> Result<Range<usize>> {
    if total < world.size() {
        let problem = format!("a layer with {total} {what} cannot be split over {} workers", world.size());
        return Err(Error::setting(problem, format!("take at most {total} workers for it, or leave it whole")));
    }
    let counts = shares(total, world.size());
    let start: usize = counts[..world.rank()].iter().sum();
    Ok(start..start + counts[world.rank()])
}

/// Some of a parameter along a dimension, as a parameter.
pub(super) fn cut<const D: usize>(whole: &Param<Tensor<D>>, dimension: usize, part: &Range<usize>) -> Param<Tensor<D>> {
    let tensor = whole.val().narrow(dimension, part.start, part.len()).detach();
    Param::initialized(whole.id, tensor.set_require_grad(whole.is_require_grad()))
}
