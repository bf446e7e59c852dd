//! A store in a directory that all processes see, such as a shared home. For clusters where no port may be opened
//! before the job runs.
//!
//! A value appears by renaming a complete file, so nobody reads half of one. Every job has its own sub-directory, so
//! what an earlier job left behind is never seen; the directory belongs to the user alone, and one that does not is
//! refused, since anybody who can write there could send ranks anywhere. Counters are guarded by a lock that the system
//! releases when its holder dies.

use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, flock};

use super::{Store, wire};
use crate::CommError;

/// The shortest and longest pause between two looks at a file.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// A store in a shared directory.
#[derive(Debug)]
pub struct FileStore {
    folder: PathBuf,
    writes: AtomicU64,
}

impl FileStore {
    /// The store of job `job` under `folder`, created if it is not there yet. `job` must be new for every job.
    pub fn new(folder: impl AsRef<Path>, job: &str) -> Result<Self, CommError> {
        wire::check(job, &[])?;
        let path = folder.as_ref().join(file_name(job));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|error| CommError::io(format!("cannot create {}", path.display()), error))?;
        Self::open(folder, job)
    }

    /// The store of job `job` under `folder` that another process has created and may remove at any time.
    pub fn open(folder: impl AsRef<Path>, job: &str) -> Result<Self, CommError> {
        wire::check(job, &[])?;
        let folder = folder.as_ref().join(file_name(job));
        let found = fs::symlink_metadata(&folder);
        let found = found.map_err(|error| CommError::io(format!("cannot open {}", folder.display()), error))?;
        if let Some(problem) = not_private(&found) {
            let problem = format!("{} cannot be a store of this user: {problem}", folder.display());
            return Err(CommError::Invalid { problem });
        }
        Ok(Self { folder, writes: AtomicU64::new(0) })
    }

    /// Removes a key's value.
    pub fn forget(&self, key: &str) -> Result<(), CommError> {
        let path = self.path(key, "value");
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(CommError::io(format!("cannot remove {}", path.display()), error))
            }
            _ => Ok(()),
        }
    }

    /// Deletes everything of this job. For the process that started it, once all its processes have ended.
    pub fn remove(self) -> Result<(), CommError> {
        fs::remove_dir_all(&self.folder)
            .map_err(|error| CommError::io(format!("cannot remove {}", self.folder.display()), error))
    }

    fn path(&self, key: &str, kind: &str) -> PathBuf {
        self.folder.join(format!("{}.{kind}", file_name(key)))
    }

    /// Puts a file in place, whole or not at all.
    fn put(&self, path: &Path, content: &[u8]) -> Result<(), CommError> {
        let mut unique = [0; 8];
        getrandom::fill(&mut unique)
            .map_err(|error| CommError::io("cannot draw random bytes", io::Error::other(error)))?;
        let count = self.writes.fetch_add(1, Ordering::Relaxed);
        let draft = self.folder.join(format!("{:016x}-{count}.draft", u64::from_le_bytes(unique)));
        let write = || -> io::Result<()> {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            file.write_all(content)?;
            file.sync_all()?;
            fs::rename(&draft, path)
        };
        write().map_err(|error| {
            let _ = fs::remove_file(&draft);
            CommError::io(format!("cannot write {}", path.display()), error)
        })
    }

    fn get(&self, path: &Path) -> Result<Option<Vec<u8>>, CommError> {
        let mut value = Vec::new();
        let read = File::open(path).and_then(|file| file.take(wire::VALUE_LIMIT as u64 + 1).read_to_end(&mut value));
        match read {
            Ok(_) if value.len() > wire::VALUE_LIMIT => {
                Err(CommError::Invalid { problem: format!("{} is too long for a value", path.display()) })
            }
            Ok(_) => Ok(Some(value)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(CommError::io(format!("cannot read {}", path.display()), error)),
        }
    }
}

/// Why a folder is not this user's alone.
pub fn not_private(found: &Metadata) -> Option<String> {
    let (us, owner, mode) = (rustix::process::geteuid().as_raw(), found.uid(), found.permissions().mode() & 0o777);
    match () {
        () if !found.is_dir() => Some("it is not a folder".into()),
        () if owner != us => Some(format!("it belongs to user {owner}, and we are user {us}")),
        () if mode & 0o077 != 0 => Some(format!("others have access to it (mode {mode:03o} instead of 700)")),
        () => None,
    }
}

impl Store for FileStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<(), CommError> {
        wire::check(key, value)?;
        self.put(&self.path(key, "value"), value)
    }

    fn wait(&self, key: &str, deadline: Instant) -> Result<Option<Vec<u8>>, CommError> {
        wire::check(key, &[])?;
        let path = self.path(key, "value");
        let mut pause = PAUSES.0;
        loop {
            let value = self.get(&path)?;
            let left = deadline.saturating_duration_since(Instant::now());
            if value.is_some() || left.is_zero() {
                return Ok(value);
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    fn add(&self, key: &str, amount: i64) -> Result<i64, CommError> {
        wire::check(key, &[])?;
        let lock = self.path(key, "lock");
        let what = |error: io::Error| CommError::io(format!("cannot lock {}", lock.display()), error);
        let guard = OpenOptions::new().write(true).create(true).truncate(false).open(&lock).map_err(what)?;
        flock(&guard, FlockOperation::LockExclusive).map_err(|error| what(error.into()))?;
        let path = self.path(key, "count");
        let before = match self.get(&path)? {
            None => 0,
            Some(bytes) => i64::from_le_bytes(
                bytes
                    .try_into()
                    .map_err(|_| CommError::Invalid { problem: format!("{} is not a counter", path.display()) })?,
            ),
        };
        let after = before.wrapping_add(amount);
        self.put(&path, &after.to_le_bytes())?;
        Ok(after)
    }
}

/// A key as a file name: letters, digits and dashes stay, everything else becomes `_` and two digits. Names that are
/// too long for a file system are hashed instead.
fn file_name(key: &str) -> String {
    use std::fmt::Write as _;
    let mut name = String::new();
    for byte in key.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => name.push(char::from(byte)),
            _ => {
                let _ = write!(name, "_{byte:02x}");
            }
        }
    }
    if name.len() > 200 {
        let digest = <sha2::Sha256 as sha2::Digest>::digest(key.as_bytes());
        name = digest.iter().fold(String::from("_sha"), |mut name, byte| {
            let _ = write!(name, "{byte:02x}");
            name
        });
    }
    name
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_harmless_and_distinct() {
        let long = "é".repeat(120);
        let keys = ["a", "a/b", "a_b", "..", "/etc/passwd", "a b", "_2f", "/", long.as_str(), &long[2..]];
        let names: HashSet<String> = keys.iter().map(|key| file_name(key)).collect();
        assert_eq!(names.len(), keys.len());
        assert!(names.iter().all(|name| !name.contains(['/', '.']) && name.len() <= 200));
    }

    #[test]
    fn an_earlier_job_is_not_seen_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let old = FileStore::new(&folder, "monday").unwrap();
        old.set("key", b"old").unwrap();
        let new = FileStore::new(&folder, "tuesday").unwrap();
        assert_eq!(new.wait("key", Instant::now()).unwrap(), None);
        new.set("key", b"new").unwrap();
        assert_eq!(FileStore::open(&folder, "tuesday").unwrap().wait("key", Instant::now()).unwrap().unwrap(), b"new");
        new.forget("key").and_then(|()| new.forget("key")).unwrap();
        assert_eq!(new.wait("key", Instant::now()).unwrap(), None);
        assert!(FileStore::open(&folder, "wednesday").is_err());
        old.remove().unwrap();
        new.remove().unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }
}
