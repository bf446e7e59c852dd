//! Engines whose ranks are threads of one process: what has to hold whatever the ranks do.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

mod divergence;
mod names;
mod panics;
mod ranks;
