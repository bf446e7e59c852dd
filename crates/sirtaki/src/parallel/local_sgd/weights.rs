//! The weights of a module, averaged over the ranks.

use burn::module::Module;

use super::super::{
    module_tensors::{Which, read, replace},
    synchronize::mean,
};
use crate::{Result, World};

/// What weights are called; their path in the module follows.
pub(super) const WEIGHT: &str = "weight";

/// The module with the mean of all ranks' weights.
pub(super) fn average<M: Module>(world: &World, module: M) -> Result<M> {
    let weights = mean(world, WEIGHT, read(&module, WEIGHT, Which::Trained, true)?)?;
    Ok(replace(module, WEIGHT, weights))
}
