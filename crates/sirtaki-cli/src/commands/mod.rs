//! One module per command.

pub mod bench;
pub mod doctor;
pub mod infer;
pub mod predict;
pub mod report;
pub mod run;
pub mod search;
pub mod shell;
#[cfg(feature = "train")]
pub mod train;
