//! A folder for a test of several processes.

use std::path::PathBuf;

use sirtaki::launch;

/// A folder that all processes of a test know, and that goes with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    #[track_caller]
    pub(crate) fn new() -> Self {
        // What a call returned is what ranks started later get at this place.
        let made = launch(1, |_| tempfile::tempdir().map(|folder| folder.keep()));
        Self(made.unwrap().remove(0))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
