//! Burn's modules on many processes.
//!
//! Every process has the whole module and its own part of the data. Tensors leave Burn as plain elements, go to the
//! engine under the path they have in the module, and come back; on the CPU neither way copies them. Each step submits
//! one group, so that what shares a buffer does not depend on timing, and neither do the bits of the sums.
//!
//! - [`batch`]: a batch of samples as tensors.
//! - [`convert`]: Burn's data as the engine's tensors and back.
//! - [`tensor_names`]: where a visitor is in a module, and what a set of names is called.
//! - [`module_tensors`]: the tensors of a module, read and replaced.
//! - [`synchronize`]: modules made equal, and running statistics averaged.
//! - [`gradients`]: gradients reduced over all ranks.
//! - [`update`]: how gradients become weights, whoever computed them.
//! - [`optimizer`], [`passes`], [`share_state`]: any Burn optimizer, with reduced gradients.
//! - [`sharded`]: the same with the optimizer's state split over the ranks.
//! - [`local_sgd`]: weights averaged now and then, instead of gradients in every step.
//! - [`server`]: weights and state on parameter servers.
//! - [`norm`]: the norm of all gradients, whoever has them.
//! - [`tree_sums`], [`leaf_sums`], [`leaf_rows`], [`shards`]: steps whose bits do not depend on the number of ranks.
//! - [`checkpoint_tensors`], [`optimizer_record`], [`resume`]: checkpoints of a module and its optimizer.
//! - [`lars`]: an optimizer for very large batches.
//! - [`differentiable`]: collectives that gradients flow through.
//! - [`batch_norm`], [`tensor_parallel`]: layers that need them.
//! - [`dropout`]: random zeros that do not depend on who has which layer.
//! - [`pipeline`]: networks in stages on different workers.
//! - `learner`: Burn's own training loop, with feature `train`.

mod batch;
mod batch_norm;
mod checkpoint_tensors;
mod convert;
mod differentiable;
mod dropout;
mod gradients;
mod lars;
mod leaf_rows;
mod leaf_sums;
#[cfg(feature = "train")]
mod learner;
mod local_sgd;
mod module_tensors;
mod norm;
mod optimizer;
mod optimizer_record;
mod passes;
mod pipeline;
mod resume;
mod server;
mod sharded;
mod shards;
mod share_state;
mod synchronize;
mod tensor_names;
pub mod tensor_parallel;
mod tree_sums;
mod update;

use burn::tensor::Device;

pub use batch_norm::SyncBatchNorm;
pub use dropout::ShardDropout;
pub use lars::LarsSgd;
pub use leaf_sums::LeafSums;
#[cfg(feature = "train")]
pub use learner::Strategy;
pub use local_sgd::LocalSgd;
pub use optimizer::DistributedOptimizer;
pub use pipeline::{Carried, Chain, Flow, Layer, Pipeline, PipelineTime};
pub use resume::Resumed;
pub use server::{ServerOptimizer, ServerOptions};
pub use sharded::ShardedOptimizer;
pub use shards::seed;
pub use update::{Gradients, OptimizerState, Update, UpdateCost};

use crate::World;

/// The version of Burn.
const BURN: &str = "0.22.1";

impl World {
    /// Where this rank computes: the CPU or, with feature `cuda`, its GPU. Add `.autodiff()` to train there.
    ///
    /// Ranks of a host take the GPUs they see in turn. That is right both if each rank sees all GPUs and if each sees
    /// only its own.
    pub fn device(&self) -> Device {
        #[cfg(feature = "cuda")]
        {
            let gpus = Device::enumerate(burn::tensor::DeviceType::Cuda);
            if !gpus.is_empty() {
                return gpus[self.seat() % gpus.len()].clone();
            }
        }
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
