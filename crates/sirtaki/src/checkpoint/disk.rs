//! Every change of the disk, one method each, so that tests can stop between any two of them.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::Path,
};

use sirtaki_engine::files;

use crate::{Error, Result};

/// Writes the content of a file.
pub(super) type WriteContent<'a> = &'a mut dyn FnMut(&mut dyn Write) -> io::Result<()>;

/// What saving and removing checkpoints does to the disk.
pub(super) trait Disk {
    fn create_folder(&mut self, path: &Path) -> Result<()>;

    /// Writes a new file; it may not be on the disk yet.
    fn write(&mut self, path: &Path, content: WriteContent<'_>) -> Result<()>;

    /// Forces a file, or the names in a folder, to the disk.
    fn sync(&mut self, path: &Path) -> Result<()>;

    fn rename(&mut self, from: &Path, to: &Path) -> Result<()>;

    fn remove_folder(&mut self, path: &Path) -> Result<()>;
}

/// The real one.
pub(super) struct Real;

impl Disk for Real {
    fn create_folder(&mut self, path: &Path) -> Result<()> {
        files::make_inside(path).map_err(Error::io("create", path))
    }

    fn write(&mut self, path: &Path, content: WriteContent<'_>) -> Result<()> {
        let mut write = || {
            let mut file = BufWriter::with_capacity(1 << 18, files::create_new(path)?);
            content(&mut file)?;
            file.flush()
        };
        write().map_err(Error::io("write", path))
    }

    fn sync(&mut self, path: &Path) -> Result<()> {
        match File::open(path).and_then(|file| file.sync_all()) {
            // Some network file systems cannot do this for folders and do not need to.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput && path.is_dir() => Ok(()),
            result => result.map_err(Error::io("bring to the disk", path)),
        }
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(Error::io("rename to", to))
    }

    fn remove_folder(&mut self, path: &Path) -> Result<()> {
        fs::remove_dir_all(path).map_err(Error::io("remove", path))
    }
}
