//! Training on many processes: data that is shared out exactly, rates that know the number of workers, checkpoints that
//! survive a crash.
//!
//! # Layout
//!
//! - [`random`]: streams of random numbers, the same everywhere and for ever.
//! - [`data`]: readers for common formats, who reads which samples, and threads that read ahead.
//! - [`launch`]: a closure on many processes of this machine.
//! - [`schedule`], [`lars`]: learning rates for large batches.
//! - [`checkpoint`]: tensors by name and a manifest, on disk completely or not at all.
//!
//! Nothing here knows a tensor framework; values are slices of numbers and bytes.

pub mod checkpoint;
pub mod data;
mod error;
pub mod lars;
mod launch;
pub mod random;
pub mod schedule;

pub use error::{Error, Result};
pub use launch::{LaunchError, launch};
