//! A study as lines of JSON in the format of Optuna's journal storage. Files and locks are the business of the caller.
//!
//! Every line is one operation: an object with its code, its writer and its fields. Trials get their numbers by order, and
//! a line about a trial that is over is ignored, so any reader that starts at the beginning arrives at the same state. What
//! Optuna has no place for is in attributes whose names begin with `sirtaki:`.

mod json;
mod operation;
mod read;
#[cfg(test)]
pub(crate) mod tests;
mod time;
mod write;

pub use json::Json;
pub use operation::{Direction, NewTrial, Operation, OptunaState, Owner, Record, Setting};
pub use read::{Reading, domain_from_text, read};
pub use time::Time;
pub use write::domain_to_text;

pub(crate) use {read::choice as choice_from_json, write::choice as choice_to_json};
