//! Where an output grows: under another name in the same folder, which becomes its own when it is complete.
//!
//! Whatever happens in between, no reader sees something that looks like a volume and is half of one, and nothing that
//! was there before is touched until its successor is ready. Several processes may work on one unfinished output, and
//! another one may continue it after all of them died.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::VolumeError;

/// The folder of files that are not complete, in an output that is a folder.
const TEMPORARY: &str = ".temporary";

/// What happens to an output that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and the new one is refused.
    Keep,
    /// The new one takes its place when it is complete.
    Replace,
}

/// The two names of an output.
#[derive(Debug, Clone)]
pub(crate) struct OutputPlace {
    /// Its name when it is complete.
    path: PathBuf,
    /// Its name until then.
    unfinished: PathBuf,
    existing: Existing,
}

/// Says that a name has nothing that could be a file.
fn nameless(path: &Path) -> VolumeError {
    VolumeError::format(path, "this is not the name of a file", "name a file, as in `out.zarr`")
}

impl OutputPlace {
    /// The place of an output that may be there already, unfinished.
    pub(crate) fn of(path: &Path, existing: Existing) -> Result<Self, VolumeError> {
        let name = path.file_name().ok_or_else(|| nameless(path))?;
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(".unfinished");
        Ok(Self { path: path.to_owned(), unfinished: path.with_file_name(hidden), existing })
    }

    /// The place of a new output, which is free.
    pub(crate) fn prepare(path: &Path, existing: Existing) -> Result<Self, VolumeError> {
        let place = Self::of(path, existing)?;
        match existing {
            Existing::Keep => {
                if exists(path)? {
                    return Err(place.taken());
                }
                if exists(&place.unfinished)? {
                    let problem = "an output of this name was begun and not finished";
                    let hint = format!("continue it, or delete `{}`", place.unfinished.display());
                    return Err(VolumeError::format(path, problem, hint));
                }
            }
            Existing::Replace => remove(&place.unfinished)?,
        }
        Ok(place)
    }

    /// The name under which it grows.
    pub(crate) fn unfinished(&self) -> &Path {
        &self.unfinished
    }

    /// The name that it will have.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the output its own name.
    pub(crate) fn finish(&self) -> Result<(), VolumeError> {
        self.finish_with(&self.unfinished)
    }

    /// Gives a file that was made of the output its name, and removes what it was made of.
    pub(crate) fn finish_with(&self, whole: &Path) -> Result<(), VolumeError> {
        if self.unfinished.is_dir() {
            remove(&self.unfinished.join(TEMPORARY))?;
        }
        let error = VolumeError::io(&self.path);
        match (self.existing, exists(&self.path)?) {
            (Existing::Keep, _) => match rename(whole, &self.path, RenameFlags::NOREPLACE) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(self.taken()),
                other => other.map_err(error)?,
            },
            (Existing::Replace, false) => fs::rename(whole, &self.path).map_err(error)?,
            (Existing::Replace, true) => rename(whole, &self.path, RenameFlags::EXCHANGE).map_err(error)?,
        }
        // The predecessor, if there was one, has the other name now.
        remove(&self.unfinished)
    }

    /// Writes a whole file of an output that is a folder, or nothing: it gets its name when it is complete. Folders are
    /// made as needed.
    pub(crate) fn write_file(&self, path: &Path, bytes: &[u8]) -> Result<(), VolumeError> {
        let (temporary, mut file) = self.temporary_file()?;
        let written = file.write_all(bytes).and_then(|()| match fs::rename(&temporary, path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                path.parent().map_or(Ok(()), fs::create_dir_all)?;
                fs::rename(&temporary, path)
            }
            other => other,
        });
        written.map_err(|error| {
            // What could not be written whole would only take up space on what may be a full disk.
            let _ = fs::remove_file(&temporary);
            VolumeError::Io { path: path.to_owned(), error }
        })
    }

    /// A new file that no other process has, whatever its host: those that computed the same chunk, as after a time
    /// limit, do not write into each other's. What a dead process leaves is removed with the folder in the end.
    fn temporary_file(&self) -> Result<(PathBuf, File), VolumeError> {
        let folder = self.unfinished.join(TEMPORARY);
        let mut number = u64::from(std::process::id()) << 32;
        loop {
            let path = folder.join(number.to_string());
            match File::create_new(&path) {
                Ok(file) => return Ok((path, file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    fs::create_dir_all(&folder).map_err(VolumeError::io(&folder))?;
                }
                Err(error) => return Err(VolumeError::Io { path, error }),
            }
        }
    }

    fn taken(&self) -> VolumeError {
        let hint = "choose another name, or allow it to be replaced";
        VolumeError::format(&self.path, "this is there already", hint)
    }
}

/// Renames; where the file system does not know the flags, as well as it can.
fn rename(from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, flags).map_err(io::Error::from) {
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
            if flags.contains(RenameFlags::EXCHANGE) {
                let mut aside = from.to_owned().into_os_string();
                aside.push(".old");
                fs::rename(to, &aside)?;
                fs::rename(from, to)?;
                return fs::rename(&aside, from);
            }
            match to.try_exists()? {
                true => Err(io::ErrorKind::AlreadyExists.into()),
                false => fs::rename(from, to),
            }
        }
        other => other,
    }
}

fn exists(path: &Path) -> Result<bool, VolumeError> {
    path.try_exists().map_err(VolumeError::io(path))
}

/// Removes a file or folder, if it is there.
fn remove(path: &Path) -> Result<(), VolumeError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(VolumeError::io(path)),
    }
}

/// Removes a file, if it is there.
pub(crate) fn remove_file(path: &Path) -> Result<(), VolumeError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(VolumeError::Io { path: path.to_owned(), error }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exists_stays_until_its_successor_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.npy");
        fs::write(&path, "old").unwrap();
        let error = OutputPlace::prepare(&path, Existing::Keep).unwrap_err();
        assert!(error.to_string().contains("there already"), "{error}");

        let place = OutputPlace::prepare(&path, Existing::Replace).unwrap();
        fs::write(place.unfinished(), "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        place.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_takes_the_place_of_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.zarr");
        fs::create_dir_all(path.join("old")).unwrap();
        let place = OutputPlace::prepare(&path, Existing::Replace).unwrap();
        fs::create_dir_all(place.unfinished().join("new")).unwrap();
        place.finish().unwrap();
        assert!(path.join("new").exists() && !path.join("old").exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_appears_meanwhile_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.npy");
        let place = OutputPlace::prepare(&path, Existing::Keep).unwrap();
        fs::write(place.unfinished(), "new").unwrap();
        assert!(OutputPlace::prepare(&path, Existing::Keep).unwrap_err().to_string().contains("not finished"));
        fs::write(&path, "another").unwrap();
        assert!(place.finish().is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "another");
    }
}
