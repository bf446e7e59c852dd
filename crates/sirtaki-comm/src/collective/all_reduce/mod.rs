//! All-reduce, four ways. Each leaves the same bits on every rank, and the same in every run: every element is
//! computed in one place and copied, or computed everywhere from the same operands in the same order.
//!
//! The factors of a plan are not applied here; the communicator applies them before and after.

mod doubling;
mod excess;
mod halving;
mod ring;
mod tree;

pub use doubling::doubling;
pub use halving::halving;
pub use ring::{PIECE, ring};
pub use tree::tree;
