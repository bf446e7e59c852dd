//! Memory of GPUs, and collectives in it. Neither building nor starting needs anything of CUDA's: the driver and NCCL are
//! found at run time.
//!
//! Work is *queued*: calls return at once, and a stream of the device does what they ask for later, in order. That is why
//! nothing here is a [`crate::Communicator`], whose calls return with the result.
//!
//! - [`Driver`]: the functions of the CUDA driver.
//! - [`Gpu`], [`Stream`], [`Event`], [`Memory`]: what they are about, as values that free themselves.
//! - [`View`]: elements in the memory of a GPU.
//! - [`Nccl`], [`NcclGroup`]: NVIDIA's library for collectives.

mod driver;
mod gpu;
mod library;
mod memory;
mod nccl;
mod nccl_group;
mod nccl_guard;
mod view;

pub use driver::{Driver, IpcHandle};
pub use gpu::{Event, Gpu, Stream};
pub use memory::{Memory, PinnedMemory};
pub use nccl::{Nccl, UniqueId};
pub use nccl_group::NcclGroup;
pub use view::View;
