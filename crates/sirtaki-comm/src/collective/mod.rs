//! The algorithms: plain functions over a [`crate::mesh::Mesh`] or over any communicator, and the rule that picks one.

mod algorithm;
pub mod direct;
pub mod fixed_tree;
mod window;

pub use algorithm::Algorithm;
