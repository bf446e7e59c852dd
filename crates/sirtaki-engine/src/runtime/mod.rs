//! The thread that owns a communicator, and everything around it.
//!
//! - `engine`, `callers`, `inbox` with its `bell`, `memory`, `ticket`: from callers to that thread and back.
//! - `control`, `wire`: the links between ranks.
//! - `owner`, `rest`, `ballot`, `execute`, `run`, `adasum`: the thread and what it does.
//! - `channel`: messages between two ranks.
//! - `device`: the same for tensors in the memory of GPUs.
//! - `watch`, `explain`, `process`: a second thread, which notices deaths and silence and explains what waits.
//! - `fail`, `ending`: the one way in which an engine ends.

pub(crate) mod adasum;
mod ballot;
mod bell;
pub(crate) mod callers;
pub(crate) mod channel;
pub(crate) mod control;
pub(crate) mod device;
mod ending;
pub(crate) mod engine;
mod execute;
mod explain;
mod fail;
mod inbox;
pub(crate) mod memory;
mod owner;
mod process;
mod rest;
mod run;
pub(crate) mod shared;
pub(crate) mod ticket;
mod watch;
mod wire;
