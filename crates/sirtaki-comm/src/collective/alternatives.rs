//! What a communicator could do otherwise.

use super::Algorithm;

/// Choices that are worth measuring against a communicator's own; the same on every rank. Empty where there are none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Alternatives {
    /// For [`crate::Communicator::force`].
    pub algorithms: Vec<Algorithm>,
    /// For [`crate::Communicator::set_piece`], in bytes.
    pub pieces: Vec<usize>,
}
