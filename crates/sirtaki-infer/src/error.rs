//! The crate's one error type.

use std::path::PathBuf;

use sirtaki_volume::{Region, VolumeError};

/// Why a network could not be applied to a volume.
#[derive(Debug, thiserror::Error)]
pub enum InferError {
    /// Something about volumes, tiles or the ledger.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The library that computes is not there or of no use.
    #[error("ONNX Runtime {problem}")]
    Library {
        /// What is wrong with it.
        problem: String,
        /// What to do about it.
        hint: String,
    },
    /// A model cannot be loaded, or fails.
    #[error("{}: {problem}", path.display())]
    Model {
        /// Its file.
        path: PathBuf,
        /// What the library said.
        problem: String,
    },
    /// A tile could not be computed or written.
    #[error("tile {number}, which writes voxels {core}: {error}")]
    Tile {
        /// Its number.
        number: u64,
        /// What it writes.
        core: Region,
        /// Why.
        error: Box<InferError>,
    },
}

impl InferError {
    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<&str> {
        match self {
            InferError::Volume(error) => error.hint(),
            InferError::Library { hint, .. } => Some(hint),
            InferError::Model { .. } => None,
            InferError::Tile { error, .. } => error.hint(),
        }
    }
}

/// Something that cannot be done as asked, and what can.
pub(crate) fn refused(problem: impl Into<String>, hint: impl Into<String>) -> InferError {
    VolumeError::refused(problem, hint).into()
}
