//! Where an output grows: under another name in the same folder, which becomes its own when it is complete.
//!
//! Whatever happens in between, no reader sees something that looks like a volume and is half of one, and nothing that
//! was there before is touched until its successor is ready. Several processes may work on one unfinished output, and
//! another one may continue it after all of them died.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::VolumeError;

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
pub(crate) struct Place {
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

impl Place {
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
        let error = VolumeError::io(&self.path);
        match (self.existing, exists(&self.path)?) {
            (Existing::Keep, _) => match rename(&self.unfinished, &self.path, RenameFlags::NOREPLACE) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(self.taken()),
                other => other.map_err(error),
            },
            (Existing::Replace, false) => fs::rename(&self.unfinished, &self.path).map_err(error),
            (Existing::Replace, true) => {
                rename(&self.unfinished, &self.path, RenameFlags::EXCHANGE).map_err(error)?;
                remove(&self.unfinished)
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

/// Writes a whole file, or nothing: it gets its name when it is complete. Folders are made as needed.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), VolumeError> {
    let name = path.file_name().ok_or_else(|| nameless(path))?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    // Two processes that compute the same chunk, as after a time limit, do not write into each other's file.
    hidden.push(format!(".{}-{:?}", std::process::id(), std::thread::current().id()));
    let temporary = path.with_file_name(hidden);
    let mut written = fs::write(&temporary, bytes);
    if written.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        && let Some(folder) = path.parent()
    {
        fs::create_dir_all(folder).map_err(VolumeError::io(folder))?;
        written = fs::write(&temporary, bytes);
    }
    written.and_then(|()| fs::rename(&temporary, path)).map_err(|error| {
        // What could not be written whole would only take up space on what may be a full disk.
        let _ = fs::remove_file(&temporary);
        VolumeError::Io { path: path.to_owned(), error }
    })
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
        let error = Place::prepare(&path, Existing::Keep).unwrap_err();
        assert!(error.to_string().contains("there already"), "{error}");

        let place = Place::prepare(&path, Existing::Replace).unwrap();
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
        let place = Place::prepare(&path, Existing::Replace).unwrap();
        fs::create_dir_all(place.unfinished().join("new")).unwrap();
        place.finish().unwrap();
        assert!(path.join("new").exists() && !path.join("old").exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_appears_meanwhile_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.npy");
        let place = Place::prepare(&path, Existing::Keep).unwrap();
        fs::write(place.unfinished(), "new").unwrap();
        assert!(Place::prepare(&path, Existing::Keep).unwrap_err().to_string().contains("not finished"));
        fs::write(&path, "another").unwrap();
        assert!(place.finish().is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "another");
    }
}
