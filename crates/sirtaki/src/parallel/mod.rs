//! Burn's modules on many processes.
//!
//! Every process has the whole module and its own part of the data. Tensors leave Burn as plain elements, go to the
//! engine under the path they have in the module, and come back; on the CPU neither way copies them. Each step hands in
//! one group, so that what shares a buffer does not depend on timing, and neither do the bits of the sums.
//!
//! - [`carry`]: Burn's data as the engine's tensors and back.
//! - [`path`]: where a visitor is in a module, and what a set of names is called.
//! - [`parts`]: the tensors of a module, read and replaced.
//! - [`share`]: modules made equal, and running statistics averaged.
//! - [`gradients`]: gradients reduced over all ranks.
//! - [`optimizer`]: any optimizer of Burn's, with reduced gradients.

mod carry;
mod gradients;
mod optimizer;
mod parts;
mod path;
mod share;

use burn::tensor::Device;

pub use optimizer::DistributedOptimizer;

use crate::World;

impl World {
    /// Where this rank computes: the CPU. Add `.autodiff()` to train there.
    pub fn device(&self) -> Device {
        Device::flex()
    }
}
