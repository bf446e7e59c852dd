//! The crate's one error type. Errors about a file name the file, the field and what to do.

use std::{
    any::Any,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use sirtaki_engine::{EngineError, job::JobError};
use sirtaki_infer::InferError;
use sirtaki_server::ServerError;
use sirtaki_volume::VolumeError;

/// Why data could not be read, a checkpoint written or a setting used, or why ranks could not work together.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A file is there but does not hold what it should.
    #[error("`{}`: {problem}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong, with the field.
        problem: String,
        /// What to do about it.
        hint: String,
    },
    /// The operating system reported an error.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// What was being done, as in "cannot read".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: Arc<io::Error>,
    },
    /// Values that cannot be used, or not together.
    #[error("{problem}")]
    Setting {
        /// What is wrong with them.
        problem: String,
        /// What to do about it.
        hint: String,
    },
    /// The code that reads samples panicked.
    #[error("reading batch {batch} panicked: {message}")]
    Panic {
        /// The batch's number.
        batch: usize,
        /// What the panic said.
        message: String,
    },
    /// Workers of an elastic job come or leave; [`elastic::run`](crate::elastic::run) goes on with those who are there.
    #[error("workers come or leave, and the training goes on with those who are there")]
    Changing,
    /// This process could not take its place among the others.
    #[error(transparent)]
    Job(#[from] JobError),
    /// A collective failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The parameter servers could not do what they were asked for.
    #[error(transparent)]
    Server(#[from] ServerError),
}

/// A result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An [`Error::File`].
    pub fn file(path: &Path, problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Error::File { path: path.to_owned(), problem: problem.into(), hint: hint.into() }
    }

    /// An [`Error::Setting`].
    pub fn setting(problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Error::Setting { problem: problem.into(), hint: hint.into() }
    }

    /// About a volume or what is done with it.
    pub(crate) fn volume(error: impl Into<InferError>) -> Self {
        match error.into() {
            InferError::Volume(VolumeError::Io { path, error }) => Self::io("use", &path)(error),
            error => Self::setting(error.to_string(), error.hint().unwrap_or_default()),
        }
    }

    /// For `map_err` after a call to the operating system.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Error::Io { action, path, source: Arc::new(source) }
    }

    /// The same about a file: a setting that comes from what the file holds.
    pub(crate) fn in_file(self, file: &Path) -> Self {
        match self {
            Error::Setting { problem, hint } => Error::File { path: file.to_owned(), problem, hint },
            other => other,
        }
    }

    /// What the user can do about it, where that is known.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Error::File { hint, .. } | Error::Setting { hint, .. } => {
                Some(hint.as_str()).filter(|hint| !hint.is_empty())
            }
            Error::Io { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => Some("check the path"),
                io::ErrorKind::NotADirectory => Some("check the path: a part of it is a file"),
                io::ErrorKind::InvalidInput => Some("name a regular file"),
                io::ErrorKind::PermissionDenied => Some("check who owns it and who may read and write it"),
                io::ErrorKind::ReadOnlyFilesystem => Some("name a place that can be written to"),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    Some("make room on that disk, or use another one")
                }
                _ => None,
            },
            Error::Job(error) => error.hint(),
            Error::Server(error) => error.hint(),
            Error::Engine(EngineError::Failed { reason, .. } | EngineError::Comm(reason)) => reason.hint(),
            Error::Engine(_) | Error::Panic { .. } | Error::Changing => None,
        }
    }
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}
