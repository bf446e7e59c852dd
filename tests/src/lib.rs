//! What the tests of all parts share: one set of checks for every communicator, and a communicator to check them with.
//!
//! This is a library of assertions, so failing means panicking here.

#![allow(clippy::unwrap_used, reason = "an assertion that fails has to panic")]

pub mod browser;
pub mod cables;
pub mod conformance;
pub mod container;
pub mod data;
pub mod driver;
pub mod engines;
pub mod hosts;
pub mod job;
pub mod launch;
pub mod links;
pub mod make;
pub mod memory;
pub mod python;
pub mod reference;
pub mod runs;
pub mod scale;
pub mod slurm;
pub mod sshd;
pub mod stand_in;
pub mod team;
pub mod trace;
pub mod wait;
