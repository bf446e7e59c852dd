//! Where the checkpoints of a run are. Unless a folder is named, each run has a new one below `runs`. Either way a run has
//! its folder to itself.

use std::{
    fs::{self, File, TryLockError},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use sirtaki_comm::secure::fresh_id;
use sirtaki_engine::files;

use crate::{
    launch::runs::{self, RUNS},
    printer::Advice,
};

/// Held locked while a run uses the folder.
const LOCK: &str = "lock";

/// The folder for a run of this model, new or to be continued, as an absolute path. Nothing is made.
pub(super) fn choose(wanted: Option<&Path>, model: &str, resume: bool) -> Result<PathBuf> {
    let folder = match (wanted, resume) {
        (Some(folder), true) => folder.to_owned(),
        (Some(folder), false) => unused(folder)?,
        (None, true) => newest(Path::new(RUNS), model)?,
        (None, false) => runs::name(model),
    };
    Ok(std::path::absolute(folder)?)
}

/// The same for a host on which the folder cannot be made now: with a name that no other run has.
pub(super) fn unique(folder: &Path) -> Result<PathBuf> {
    let id: String = fresh_id()?[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    Ok(folder.with_file_name(format!("{name}-{id}")))
}

/// A folder that only this run uses, until this value is dropped.
pub(super) struct Claim {
    pub(super) folder: PathBuf,
    /// None where the file system has no locks.
    lock: Option<File>,
}

impl Claim {
    /// Makes the folder if need be; a `new` one gets a number if its name is already taken.
    pub(super) fn new(folder: &Path, new: bool) -> Result<Self> {
        let made = match new {
            true => files::new_folder(folder),
            false => files::make_private(folder).map(|()| folder.to_owned()),
        };
        let usable = made.and_then(|folder| files::check(&folder.join(LOCK)).map(|()| folder));
        let folder = usable.map_err(|error| {
            let hint = "name a folder that can be made and written to with --checkpoint-dir";
            Advice::new(format!("checkpoints cannot be written to {}: {error}", folder.display()), hint)
        })?;
        let lock = lock(&folder)?;
        Ok(Self { folder, lock })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.lock.is_some() {
            let _ = fs::remove_file(self.folder.join(LOCK));
        }
        // If the folder is empty, the run has produced nothing.
        let _ = fs::remove_dir(&self.folder);
    }
}

fn lock(folder: &Path) -> Result<Option<File>> {
    let path = folder.join(LOCK);
    let mut options = files::options(&path).with_context(|| format!("cannot write {}", path.display()))?;
    options.create(true).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    loop {
        let file = options.open(&path).with_context(|| format!("cannot write {}", path.display()))?;
        match file.try_lock() {
            // Its previous holder may have removed it just now.
            Ok(()) if is_at(&file, &path) => return Ok(Some(file)),
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let problem = format!("another run uses {}", folder.display());
                return Err(Advice::new(problem, "wait for its end, or name another --checkpoint-dir").into());
            }
            Err(TryLockError::Error(_)) => return Ok(None),
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    file.metadata().ok().map(identity) == fs::symlink_metadata(path).ok().map(identity)
}

/// A folder that holds no checkpoints yet.
fn unused(folder: &Path) -> Result<PathBuf> {
    if checkpoints(folder) {
        let problem = format!("{} holds the checkpoints of another run", folder.display());
        return Err(Advice::new(problem, "add --resume to continue it, or name another --checkpoint-dir").into());
    }
    Ok(folder.to_owned())
}

/// The newest run of this model.
fn newest(runs: &Path, model: &str) -> Result<PathBuf> {
    let prefix = format!("{model}-");
    let mut found: Vec<PathBuf> = fs::read_dir(runs).map_or(Vec::new(), |entries| {
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| checkpoints(path)).collect()
    });
    found.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix)));
    found.sort();
    found.pop().ok_or_else(|| {
        let problem = format!("there is no run of {model} in {} to continue", runs.display());
        Advice::new(problem, "name the folder of its checkpoints with --checkpoint-dir, or leave --resume out").into()
    })
}

fn checkpoints(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| {
        entries.any(|entry| entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("checkpoint-")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_keep_out_of_each_other_s_way() {
        let runs = tempfile::tempdir().unwrap();
        let make = |name: &str| fs::create_dir_all(runs.path().join(name).join("checkpoint-000001")).unwrap();
        assert!(newest(runs.path(), "lenet").unwrap_err().to_string().contains("no run of lenet"));
        for name in ["lenet-20260101-000000", "lenet-20260102-000000", "cnn-20260103-000000"] {
            make(name);
        }
        fs::create_dir(runs.path().join("lenet-20260104-000000")).unwrap();
        assert!(newest(runs.path(), "lenet").unwrap().ends_with("lenet-20260102-000000"));
        assert!(unused(&runs.path().join("cnn-20260103-000000")).is_err());
        assert!(unused(&runs.path().join("new")).is_ok());
    }

    #[test]
    fn a_folder_has_one_run_at_a_time() {
        let runs = tempfile::tempdir().unwrap();
        let folder = runs.path().join("below/mine");
        let first = Claim::new(&folder, true).unwrap();
        assert_eq!(first.folder, folder);
        assert!(Claim::new(&folder, true).unwrap().folder.ends_with("mine-2"));
        let refused = Claim::new(&folder, false).err().unwrap();
        assert!(refused.to_string().contains("another run uses"), "{refused}");
        drop(first);
        assert!(!folder.exists() && !folder.with_file_name("mine-2").exists(), "empty ones do not stay");
        let again = Claim::new(&folder, false).unwrap();
        fs::write(folder.join("result"), "").unwrap();
        drop(again);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::write(runs.path().join("file"), "").unwrap();
        let refused = Claim::new(&runs.path().join("file/x"), false).err().unwrap();
        assert!(refused.downcast::<Advice>().unwrap().hint.contains("--checkpoint-dir"));
        assert_ne!(unique(&folder).unwrap(), unique(&folder).unwrap());
    }
}
