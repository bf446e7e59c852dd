//! What the launcher knows of the world outside: variables and files, passed in so that tests need neither.

use std::{io, path::Path};

use crate::env::Lookup;

/// Where variables and files come from.
#[derive(Clone, Copy)]
pub struct Outside<'a> {
    /// The value of a variable.
    pub get: Lookup<'a>,
    /// The text of a file.
    pub read: &'a dyn Fn(&Path) -> io::Result<String>,
}

impl std::fmt::Debug for Outside<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Outside")
    }
}

impl Outside<'static> {
    /// The process's own environment and file system.
    pub fn real() -> Self {
        Self { get: &crate::env::process, read: &|path| std::fs::read_to_string(path) }
    }
}

impl Outside<'_> {
    /// A variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<String> {
        (self.get)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }
}
