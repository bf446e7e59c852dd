//! Memory of GPUs, and collectives in it. Neither building nor starting needs any part of CUDA: the driver and NCCL are
//! found at run time.
//!
//! Work is *queued*: calls return at once, and a stream of the device does what they ask for later, in order. That is why
//! nothing here is a [`crate::Communicator`], whose calls return with the result.
//!
//! - [`Driver`]: the functions of the CUDA driver.
//! - [`Gpu`], [`Stream`], [`Event`], [`DeviceMemory`]: what these functions work on, as values that free themselves.
//! - [`View`]: elements in the memory of a GPU.
//! - [`Kernels`]: reducing and copying in it.
//! - [`DeviceArena`]: collectives of ranks that reach each other's device memory.
//! - [`Nccl`], [`NcclGroup`]: NVIDIA's library for collectives.
//! - [`Nvml`]: NVIDIA's library for management, which says how much of a GPU is in use.

mod arena;
mod driver;
mod gpu;
mod job;
mod kernels;
mod layout;
mod leavers;
mod memory;
mod nccl;
mod nccl_group;
mod nccl_guard;
mod nvml;
mod proof;
mod staging;
mod view;

pub use arena::DeviceArena;
pub use driver::{Driver, IpcHandle};
pub use gpu::{Event, Gpu, Stream};
pub use kernels::Kernels;
pub use memory::{DeviceMemory, PinnedMemory};
pub use nccl::{Nccl, UniqueId};
pub use nccl_group::NcclGroup;
pub use nvml::{GpuLink, GpuUsage, Nvml, NvmlDevice};
pub use view::View;
