//! One module per command.

pub mod bench;
pub mod doctor;
