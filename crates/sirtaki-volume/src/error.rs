//! The crate's one error type.

use std::{io, path::PathBuf};

/// Why a volume could not be planned, read, computed or written.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// A file or folder could not be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// A file is not what its name or its metadata say.
    #[error("{}: {problem}", path.display())]
    Format {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it, and where.
        problem: String,
    },
    /// A region, a shape or a setting cannot be right.
    #[error("{0}")]
    Invalid(String),
}
