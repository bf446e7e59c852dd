//! Which part of a volume is computed when, and how much is read for it.

pub mod region;
