//! The crate's one error type.

use std::{
    io,
    path::{Path, PathBuf},
};

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
        /// What to do about it.
        hint: String,
    },
    /// No tile of this network gives what the whole volume gives.
    #[error("{problem}")]
    Inexact {
        /// Which part of the network, and why.
        problem: String,
        /// The ways out.
        hint: String,
    },
    /// It cannot be done as asked, but it can be done.
    #[error("{problem}")]
    Refused {
        /// Why not.
        problem: String,
        /// What to ask for instead.
        hint: String,
    },
    /// A region, a shape or a setting cannot be right.
    #[error("{0}")]
    Invalid(String),
}

impl VolumeError {
    /// A [`VolumeError::Format`].
    pub fn format(path: &Path, problem: impl Into<String>, hint: impl Into<String>) -> Self {
        VolumeError::Format { path: path.to_owned(), problem: problem.into(), hint: hint.into() }
    }

    /// A [`VolumeError::Refused`].
    pub fn refused(problem: impl Into<String>, hint: impl Into<String>) -> Self {
        VolumeError::Refused { problem: problem.into(), hint: hint.into() }
    }

    /// For `map_err` after a call to the operating system.
    pub fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| VolumeError::Io { path, error }
    }

    /// What to do about it, where that is known.
    pub fn hint(&self) -> Option<&str> {
        match self {
            VolumeError::Format { hint, .. }
            | VolumeError::Inexact { hint, .. }
            | VolumeError::Refused { hint, .. } => Some(hint),
            VolumeError::Io { .. } | VolumeError::Invalid(_) => None,
        }
    }
}
