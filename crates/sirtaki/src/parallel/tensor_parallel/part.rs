//! Which part of a layer is whose.

use std::ops::Range;

use burn::{module::Param, tensor::Tensor};
use sirtaki_engine::decide::request::shares;

use crate::{Error, Result, World};

/// This rank's part of `total` things; the first ranks have one more where that does not come out even. All of them if
/// they are not split.
pub(super) fn part(world: Option<&World>, total: usize, what: &str) -> Result<Range<usize>> {
    let Some(world) = world else { return Ok(0..total) };
    if total < world.size() {
        let problem = format!("a layer with {total} {what} cannot be split over {} workers", world.size());
        return Err(Error::setting(problem, format!("take at most {total} workers for it, or leave it whole")));
    }
    let counts = shares(total, world.size());
    let start: usize = counts[..world.rank()].iter().sum();
    Ok(start..start + counts[world.rank()])
}

/// What a layer is called where ranks find each other.
pub(super) fn name(world: Option<&World>, what: &str) -> String {
    world.map_or_else(String::new, |world| format!("{what} {}", world.next_layer()))
}

/// Some of a parameter along a dimension, as a parameter that keeps nothing of the rest alive.
pub(super) fn cut<const D: usize>(whole: &Param<Tensor<D>>, dimension: usize, part: &Range<usize>) -> Param<Tensor<D>> {
    let tensor = whole.val();
    if tensor.dims()[dimension] == part.len() {
        return whole.clone();
    }
    let (device, dtype) = (tensor.device(), tensor.dtype());
    let data = tensor.narrow(dimension, part.start, part.len()).into_data();
    let tensor = Tensor::from_data(data, (&device, dtype)).set_require_grad(whole.is_require_grad());
    Param::initialized(whole.id, tensor)
}
