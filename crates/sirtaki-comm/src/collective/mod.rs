//! The algorithms: plain functions over a [`crate::mesh::Mesh`] or over any communicator, and the rule that picks one.

mod algorithm;

pub use algorithm::Algorithm;
