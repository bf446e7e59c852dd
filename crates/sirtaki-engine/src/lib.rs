//! Named tensors in any order: agreed between ranks, fused, run, and explained when they wait.
//!
//! ```text
//! submit → agree → check → fuse → order → run          (watch and report look on)
//! ```
//!
//! # Layout
//!
//! Decisions, pure, without clock or socket:
//! - [`request`], [`message`]: what ranks ask for and what they say about it.
//! - [`agree`]: the table on rank 0 where all wishes meet, with [`check`], [`fuse`], [`cycle`] and [`late`].
//! - [`order`]: one rank's side, which also knows an adopted order by heart.
//! - [`tune`]: what to fuse and how to carry it out, by measuring steps.
//!
//! The rest, around one thread that owns the communicator:
//! - `inbox`, [`memory`], [`ticket`]: from callers to that thread and back.
//! - [`control`], `wire`: the links between ranks.
//! - `owner`, `ballot`, `execute`, `run`, [`adasum`]: the thread and what it does.
//! - [`blame`], `fail`, `ending`: how it ends.
//! - `tuning`, `saved`: measuring steps, and what came of it in earlier jobs.
//! - [`job`]: a process's place in a job; [`heap`]: its allocator.
//! - [`seeing`]: timeline and profile.
//! - [`recorder`], [`stall`], `watch`, `process`, [`report`]: what can be seen from outside.

pub mod adasum;
pub mod agree;
mod ballot;
pub mod blame;
pub mod check;
pub mod control;
pub mod cycle;
mod ending;
mod engine;
mod error;
mod execute;
mod fail;
pub mod files;
mod follow;
pub mod fuse;
pub mod heap;
mod inbox;
pub mod job;
pub mod late;
pub mod machine;
pub mod memory;
pub mod message;
pub mod order;
mod owner;
mod process;
pub mod recorder;
pub mod report;
pub mod request;
mod run;
mod saved;
pub mod seeing;
mod settings;
mod shared;
mod slot;
pub mod stall;
pub mod ticket;
pub mod tune;
mod tuning;
mod watch;
mod wire;

pub use engine::Engine;
pub use error::EngineError;
pub use memory::Tensor;
pub use request::{Compression, Operation, Request};
pub use seeing::{InPhase, counts::Phase};
pub use settings::{Ending, Profiling, Settings, Warn};
pub use ticket::{Outcome, Output, Ticket};
