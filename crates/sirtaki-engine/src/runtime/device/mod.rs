//! Carrying out batches of tensors that lie in the memory of GPUs.
//!
//! Nothing here waits for the device: a batch is *queued* on a stream of the engine's own, behind the events that say
//! when its tensors are there, and its results come with an event that says when they are. The caller makes its own
//! stream wait for that event. Agreement, votes and everything else that ranks say to each other stay in the host's
//! memory.
//!
//! - `way`: which way all ranks take, decided from what each of them has.
//! - `queue`, `transport`, `pack`: through NCCL, or directly in the device's memory.
//! - `staged`: through the host's memory, where neither is available.
//! - `gate`: the order in which groups of ranks use one device.
//! - `links`: what lies between the devices.
//! - `timer`: when the device did what.

mod gate;
mod lane;
mod links;
mod pack;
mod queue;
mod staged;
mod timer;
mod transport;
mod way;

pub(crate) use lane::DeviceLane;
pub(crate) use timer::Timed;
pub use way::{DeviceSettings, Way};
