//! Named tensors in any order: agreed on between ranks, fused, run, and explained when they wait.
//!
//! ```text
//! submit → agree → check → fuse → order → run          (watch and report look on)
//! ```
//!
//! # Layout
//!
//! - [`decide`]: which collective runs when. Pure: no clock, no socket.
//! - `runtime`: one thread that owns the communicator, and everything around it.
//! - [`telemetry`]: what a job shows of itself: flight record, timeline, profile, progress.
//! - [`job`]: a process's place in a job.
//! - [`files`], [`heap`], [`machine`]: files that are replaced as a whole, the process's allocator, the machine.

pub mod decide;
mod error;
pub mod files;
pub mod heap;
pub mod job;
pub mod machine;
mod runtime;
mod settings;
pub mod telemetry;

pub use decide::{
    channel::{MessageForm, Tag},
    fuse::Limits,
    request::{Compression, Operation, Request, TensorPlace, shares},
};
pub use error::EngineError;
pub use runtime::{
    callers::{Blocking, Doing, HandIn},
    channel::{Expected, Source},
    device::{DeviceSettings, Way},
    engine::Engine,
    memory::Tensor,
    ticket::{Outcome, Output, Ticket},
};
pub use settings::{Accuse, CurrentWork, FindEnding, Profiling, Settings, TimelineForm, Warn};
pub use telemetry::{InPhase, InSpan, counts::Phase};
