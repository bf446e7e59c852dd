//! Hyper-parameter search without the world around it.
//!
//! A *study* tries points of a *space* and learns which of them give small losses. This crate decides; it knows no
//! framework, clock, file or process. Times come in as numbers, the journal goes out as bytes, and every suggestion is a
//! function of the seed and of what the journal says alone. So a study that is killed and resumed goes on exactly, and
//! thousands of random histories run through it in every test run.
//!
//! # Layout
//!
//! - [`space`]: parameters, their domains and the conditions under which they exist; points, and their way to and from
//!   the unit cube.
//! - [`sampler`]: which point to try next, given all that was tried before.
//! - [`stopper`]: which running trials are not worth finishing.
//! - [`study`]: the states of trials and of the study.
//! - [`journal`]: the study as lines of JSON that Optuna reads and writes.
//! - [`importance`]: which parameters matter.
//! - [`random`] and [`pareto`]: what several of these share.

mod error;
pub mod importance;
pub mod journal;
mod numerics;
pub mod pareto;
pub mod random;
pub mod sampler;
pub mod space;
pub mod stopper;
pub mod study;

pub use error::SearchError;
