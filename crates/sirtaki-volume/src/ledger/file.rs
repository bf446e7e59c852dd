//! The file of a ledger: lines are read and appended under a lock, whole or not at all.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use super::Company;
use crate::VolumeError;

/// How often a lock that somebody else has is tried again.
const LOOK: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct LedgerFile {
    path: PathBuf,
    file: File,
    /// Says by its lock that this process is there.
    _presence: File,
    /// Up to where lines have been read.
    at: u64,
    patience: Duration,
}

/// A ledger's file while nobody else may write.
#[derive(Debug)]
pub(super) struct Held<'a> {
    owner: &'a mut LedgerFile,
}

impl LedgerFile {
    /// Opens or makes the file; whether nobody else has it open.
    pub(super) fn open(path: &Path, company: Company, patience: Duration) -> Result<(Self, bool), VolumeError> {
        let mut beside = OsString::from(path.as_os_str());
        beside.push(".lock");
        let beside = PathBuf::from(beside);
        let presence = openable(&beside)?;
        let nobody_else = match presence.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(error)) => return Err(no_locks(&beside, error)),
        };
        let file = openable(path)?;
        if company == Company::Shared {
            // From alone to shared there is a moment without the lock, in which others may come: then nobody of them
            // is told that it is alone, and leases that this process has voided stay void.
            wait(&beside, patience, || presence.try_lock_shared())?;
        } else if !nobody_else {
            return Err(VolumeError::refused(
                format!("{}: another process works on this output", path.display()),
                "wait for it; or let all processes share the work with --join",
            ));
        }
        Ok((Self { path: path.to_owned(), file, _presence: presence, at: 0, patience }, nobody_else))
    }

    /// Waits until nobody else writes.
    pub(super) fn hold(&mut self) -> Result<Held<'_>, VolumeError> {
        wait(&self.path, self.patience, || self.file.try_lock())?;
        Ok(Held { owner: self })
    }
}

impl Held<'_> {
    /// The whole lines that were not read before, without their ends.
    pub(super) fn read_new(&mut self) -> Result<Vec<Vec<u8>>, VolumeError> {
        let mut bytes = Vec::new();
        let path = self.owner.path.clone();
        let start = SeekFrom::Start(self.owner.at);
        let read = self.owner.file.seek(start).and_then(|_| self.owner.file.read_to_end(&mut bytes));
        read.map_err(VolumeError::io(&path))?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        self.owner.at += whole as u64;
        let lines = bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        Ok(lines.map(<[u8]>::to_vec).collect())
    }

    /// Appends lines, after all others have been read. What somebody who died has left unfinished at the end is cut off.
    pub(super) fn append(&mut self, lines: &[Vec<u8>], sync: bool) -> Result<(), VolumeError> {
        let LedgerFile { path, file, at, .. } = &mut *self.owner;
        let bytes = lines.concat();
        let mut write = || {
            if file.metadata()?.len() > *at {
                file.set_len(*at)?;
            }
            file.seek(SeekFrom::Start(*at))?;
            file.write_all(&bytes)?;
            if sync { file.sync_data() } else { Ok(()) }
        };
        if let Err(error) = write() {
            // A full disk, for one. Nothing of it counts; should this fail too, the next one cuts it off.
            let _ = file.set_len(*at);
            return Err(VolumeError::io(path)(error));
        }
        *at += bytes.len() as u64;
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // It cannot fail for a file that is open and locked, and its closing would release it anyway.
        let _ = self.owner.file.unlock();
    }
}

fn openable(path: &Path) -> Result<File, VolumeError> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let file = file.map_err(VolumeError::io(path))?;
    // The name of a new file is safe only when its folder is.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(VolumeError::io(folder))?;
    Ok(file)
}

fn wait(
    path: &Path,
    patience: Duration,
    mut attempt: impl FnMut() -> Result<(), TryLockError>,
) -> Result<(), VolumeError> {
    let deadline = Instant::now() + patience;
    loop {
        match attempt() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(no_locks(path, error)),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(LOOK),
            Err(TryLockError::WouldBlock) => {
                let problem = format!("another process has locked it for {} s", patience.as_secs());
                let error = io::Error::new(ErrorKind::TimedOut, problem);
                return Err(VolumeError::Io { path: path.to_owned(), error });
            }
        }
    }
}

fn no_locks(path: &Path, error: io::Error) -> VolumeError {
    VolumeError::format(
        path,
        format!("the file system refuses locks: {error}"),
        "put the output on a file system with `flock`, which Lustre has when mounted with -o flock",
    )
}
