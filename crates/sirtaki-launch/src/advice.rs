//! The error of this crate, which is read by people: what went wrong, and what to do about it.

use std::{fmt::Display, io};

use sirtaki_comm::CommError;

/// An error with what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Advice {
    /// What went wrong.
    pub message: String,
    /// What to do; empty where nobody knows.
    pub hint: String,
}

impl Advice {
    /// An error that says what to do.
    pub fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: hint.into() }
    }

    /// An error about which nothing is known but what went wrong.
    pub fn bare(message: impl Into<String>) -> Self {
        Self::new(message, "")
    }
}

impl From<CommError> for Advice {
    fn from(error: CommError) -> Self {
        Self::new(error.to_string(), error.hint().unwrap_or_default())
    }
}

impl From<io::Error> for Advice {
    fn from(error: io::Error) -> Self {
        Self::bare(error.to_string())
    }
}

impl From<rustix::io::Errno> for Advice {
    fn from(error: rustix::io::Errno) -> Self {
        io::Error::from(error).into()
    }
}

/// Says what failed.
pub(crate) trait Explain<T> {
    /// The same, with what could not be done before the reason.
    fn explain(self, what: impl Display) -> Result<T, Advice>;
}

impl<T, E: Into<Advice>> Explain<T> for Result<T, E> {
    fn explain(self, what: impl Display) -> Result<T, Advice> {
        self.map_err(|error| {
            let Advice { message, hint } = error.into();
            Advice { message: format!("{what}: {message}"), hint }
        })
    }
}

impl<T> Explain<T> for Option<T> {
    fn explain(self, what: impl Display) -> Result<T, Advice> {
        self.ok_or_else(|| Advice::bare(what.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_follows_what_failed_and_the_hint_stays() {
        let failed: Result<(), _> = Err(Advice::new("no room", "make some"));
        assert_eq!(failed.explain("cannot write"), Err(Advice::new("cannot write: no room", "make some")));
        assert_eq!(None::<()>.explain("no such rank"), Err(Advice::bare("no such rank")));
    }
}
