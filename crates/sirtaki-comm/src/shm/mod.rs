//! Memory that the processes of one host share: the segment, and the words they sleep on.

mod futex;
mod segment;
mod signal;
pub(crate) mod sync;

pub use segment::Segment;
pub use signal::Signal;
