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
//! - [`tree`], [`sums`], [`shards`]: steps whose bits do not depend on the number of ranks.
//! - [`stored`], [`resume`]: checkpoints of a module and its optimizer.

mod carry;
mod gradients;
mod optimizer;
mod parts;
mod path;
mod resume;
mod shards;
mod share;
mod stored;
mod sums;
mod tree;

use burn::tensor::Device;

pub use optimizer::DistributedOptimizer;
pub use resume::Resumed;
pub use shards::seed;

use crate::World;

/// The version of Burn.
const BURN: &str = "0.22.1";

impl World {
    /// Where this rank computes: the CPU. Add `.autodiff()` to train there.
    pub fn device(&self) -> Device {
        Device::flex()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_version_of_burn_is_the_one_that_is_used() {
        let workspace = include_str!("../../../../Cargo.toml");
        assert!(workspace.contains(&format!("burn = {{ version = \"={}\"", super::BURN)));
    }
}
