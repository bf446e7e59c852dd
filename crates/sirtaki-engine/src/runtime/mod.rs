//! The thread that owns a communicator, and everything around it.
//!
//! - `engine`, `inbox`, `memory`, `ticket`: from callers to that thread and back.
//! - `control`, `wire`: the links between ranks.
//! - `owner`, `ballot`, `execute`, `run`, `adasum`: the thread and what it does.
//! - `watch`, `process`: a second thread, which notices deaths and silence.
//! - `fail`, `ending`: the one way in which it ends.

pub(crate) mod adasum;
mod ballot;
pub(crate) mod control;
mod ending;
pub(crate) mod engine;
mod execute;
mod fail;
mod inbox;
pub(crate) mod memory;
mod owner;
mod process;
mod run;
pub(crate) mod shared;
pub(crate) mod ticket;
mod watch;
mod wire;
