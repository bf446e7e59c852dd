//! NumPy's `.npz`: a zip file with one `.npy` for each array, stored or deflated, of any size.

use std::{
    fs::File,
    io::{BufReader, Read, Seek},
    path::{Path, PathBuf},
};

use sirtaki_engine::files;
use zip::{CompressionMethod, ZipArchive};

use super::{
    Array, Source, npy,
    source::{DAMAGED, DEFLATE_RATIO},
};
use crate::{Error, Result};

/// A `.npz` file, whose arrays are read one by one.
#[derive(Debug)]
pub struct Npz<R = BufReader<File>> {
    path: PathBuf,
    archive: ZipArchive<R>,
    /// In the order of the file.
    names: Vec<String>,
}

impl Npz {
    /// Opens a file and reads its directory.
    pub fn open(path: &Path) -> Result<Self> {
        let file = files::open(path).map_err(Error::io("open", path))?;
        Self::new(path, BufReader::new(file))
    }
}

impl<R: Read + Seek> Npz<R> {
    /// Reads the directory of an `.npz` file; `path` is for messages.
    pub fn new(path: &Path, bytes: R) -> Result<Self> {
        let refuse = |field: &str, problem: &str, hint: &str| Error::file(path, format!("{field}: {problem}"), hint);
        let archive = ZipArchive::new(bytes).map_err(|error| {
            refuse("directory", &format!("there is none, so this is not a .npz file ({error})"), DAMAGED)
        })?;
        let mut names = Vec::new();
        for index in 0..archive.len() {
            let damaged = |error| refuse(&format!("entry {index}"), &format!("{error}"), DAMAGED);
            let entry = archive.by_index_data(index).map_err(damaged)?;
            let name = entry.name().map_err(damaged)?;
            let (packed, size) = (entry.compressed_size(), entry.size());
            let possible = match entry.compression() {
                CompressionMethod::Stored if !entry.encrypted() => packed == size,
                CompressionMethod::Deflated if !entry.encrypted() => size <= packed.saturating_mul(DEFLATE_RATIO),
                _ => {
                    let hint = "save it again with np.savez or np.savez_compressed";
                    return Err(refuse(&name, "it is encrypted or packed in an unknown way", hint));
                }
            };
            if !possible {
                return Err(refuse(&name, &format!("{size} bytes cannot come out of {packed}"), DAMAGED));
            }
            names.push(name.strip_suffix(".npy").unwrap_or(&name).to_owned());
        }
        Ok(Self { path: path.to_owned(), archive, names })
    }

    /// The names of the arrays, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Reads an array.
    pub fn read(&mut self, name: &str) -> Result<Array> {
        let refuse = |problem: String, hint: &str| Error::file(&self.path, format!("entry `{name}`: {problem}"), hint);
        let Some(index) = self.names.iter().position(|known| known == name) else {
            return Err(refuse("there is no such array".into(), &format!("there are: {}", self.names.join(", "))));
        };
        let mut entry = self.archive.by_index(index).map_err(|error| refuse(error.to_string(), DAMAGED))?;
        let size = entry.size();
        npy::parse(Source::new(&self.path.join(name), &mut entry, size))
    }
}

#[cfg(test)]
#[path = "npz_tests.rs"]
mod tests;
