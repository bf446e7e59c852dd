//! The algorithms: plain functions over a [`crate::mesh::Mesh`] or over any communicator, and the rule that picks one.
//!
//! Functions over a mesh take the call they belong to and buffers as bytes; the communicator has checked them. In the
//! costs beside them, `n` is the number of ranks and `S` the bytes of the buffer; a step is one message each way. No
//! collective except send and receive ends on any rank before all ranks have begun it: that is how ranks whose calls
//! differ all find out, and it costs those with a root one sweep of empty messages.

mod algorithm;
pub mod all_gather;
pub mod all_reduce;
pub mod all_to_all;
pub mod barrier;
pub mod broadcast;
mod choose;
pub mod direct;
pub mod fixed_tree;
pub mod gather;
mod parts;
pub mod reduce;
pub mod reduce_scatter;
mod tree;
mod window;

pub use algorithm::Algorithm;
pub use choose::{Topology, choose};
