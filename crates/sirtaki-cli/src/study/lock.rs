//! Who may write. Two locks, for two purposes:
//!
//! - [`JournalLock`] is Optuna's: a symbolic link beside the journal, which is there while somebody appends. It works on
//!   every file system and is held for one change at a time, so Optuna's own processes can write in between.
//! - [`StudyClaim`] is held by the coordinator of a study for as long as it runs: a second one would start the same trials
//!   again. The system drops it with the process, however that ends.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, symlink},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant, SystemTime},
};

use rustix::process::{Pid, test_kill_process};
use sirtaki_comm::secure::fresh_id;
use sirtaki_engine::files;

use crate::printer::Advice;

/// After this time without a change, a lock belongs to a process that died; Optuna waits as long.
const STALE: Duration = Duration::from_secs(30);
/// How long to wait for others who come and go.
const PATIENCE: Duration = Duration::from_secs(300);
/// Longest pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// The file that the coordinator of a study holds locked.
const COORDINATOR: &str = "coordinator";

/// The name of this host.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn is_alive(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// Optuna's lock on a journal, until this is dropped.
#[derive(Debug)]
pub struct JournalLock {
    link: PathBuf,
}

impl JournalLock {
    /// Waits for the lock of this journal.
    pub fn acquire(journal: &Path) -> Result<Self, Advice> {
        let link = beside(journal, ".lock");
        let target = format!("sirtaki:{}:{}", host(), std::process::id());
        let explain = |error: io::Error| {
            let message = format!("cannot lock the journal {}: {error}", journal.display());
            Advice::new(message, "name a folder that can be written to with --folder")
        };
        let (began, mut pause, mut seen) = (Instant::now(), Duration::from_millis(1), None);
        loop {
            match symlink(&target, &link) {
                Ok(()) => return Ok(Self { link }),
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(explain(error)),
                Err(_) => {}
            }
            let Some(holder) = Holder::of(&link) else { continue };
            let since = match &seen {
                Some((known, since)) if *known == holder => *since,
                _ => Instant::now(),
            };
            if holder.is_dead() || since.elapsed() > STALE {
                remove(&link);
            } else if began.elapsed() > PATIENCE {
                let message = format!("the journal {} stays locked by others", journal.display());
                return Err(Advice::new(message, format!("if nobody uses it, remove {}", link.display())));
            } else {
                thread::sleep(pause);
                pause = (2 * pause).min(PAUSE);
            }
            seen = Some((holder, since));
        }
    }
}

impl Drop for JournalLock {
    fn drop(&mut self) {
        remove(&self.link);
    }
}

/// A lock as somebody who waits for it sees it.
#[derive(PartialEq)]
struct Holder {
    target: Option<PathBuf>,
    time: Option<SystemTime>,
}

impl Holder {
    fn of(link: &Path) -> Option<Self> {
        let about = fs::symlink_metadata(link).ok()?;
        Some(Self { target: fs::read_link(link).ok(), time: about.modified().ok() })
    }

    /// Whether it is one of ours, of a process of this host that is gone.
    fn is_dead(&self) -> bool {
        let text = self.target.as_ref().map(|target| target.to_string_lossy().into_owned()).unwrap_or_default();
        let ours = text.strip_prefix("sirtaki:").and_then(|rest| rest.rsplit_once(':'));
        ours.is_some_and(|(there, pid)| there == host() && pid.parse().is_ok_and(|pid| !is_alive(pid)))
    }
}

/// Renaming comes first: of two that remove it, only one succeeds.
fn remove(link: &Path) {
    let unique: String = fresh_id()
        .map_or_else(|_| std::process::id().to_string(), |id| id.iter().map(|byte| format!("{byte:02x}")).collect());
    let aside = beside(link, &format!("{unique}.rename"));
    if fs::rename(link, &aside).is_ok() {
        let _ = fs::remove_file(&aside);
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The right to coordinate the study in a folder, until this is dropped.
#[derive(Debug)]
pub struct StudyClaim {
    path: PathBuf,
    /// Held locked where the file system has locks.
    _file: File,
}

impl StudyClaim {
    /// Claims the study in this folder, or says who has it.
    pub fn new(folder: &Path) -> Result<Self, Advice> {
        let path = folder.join(COORDINATOR);
        let explain = |error: io::Error| {
            let hint = "name a folder that can be made and written to with --folder";
            Advice::new(format!("a study cannot be kept in {}: {error}", folder.display()), hint)
        };
        let mut options = files::options(&path).map_err(explain)?;
        options.read(true).create(true).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
        loop {
            let mut file = options.open(&path).map_err(explain)?;
            let mut said = String::new();
            match file.try_lock() {
                Ok(()) if !is_at(&file, &path) => continue,
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(taken(&file, folder)),
                // Without locks, what the file says has to do.
                Err(TryLockError::Error(_)) => {
                    file.read_to_string(&mut said).map_err(explain)?;
                    let (there, pid) = said.trim().split_once(' ').unwrap_or_default();
                    if !said.trim().is_empty() && (there != host() || pid.parse().is_ok_and(is_alive)) {
                        return Err(taken(&file, folder));
                    }
                }
            }
            let text = format!("{} {}\n", host(), std::process::id());
            let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(text.as_bytes()));
            written.map_err(explain)?;
            return Ok(Self { path, _file: file });
        }
    }
}

impl Drop for StudyClaim {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn taken(mut file: &File, folder: &Path) -> Advice {
    let mut said = String::new();
    let _ = file.rewind().and_then(|()| file.read_to_string(&mut said));
    let who = match said.trim().split_once(' ') {
        Some((host, pid)) => format!("process {pid} on {host}"),
        None => "another process".to_owned(),
    };
    let message = format!("the study in {} is being run by {who}", folder.display());
    Advice::new(message, "wait for its end or stop it; `sirtaki search show` shows how far it is")
}

fn is_at(file: &File, path: &Path) -> bool {
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    file.metadata().ok().map(identity) == fs::symlink_metadata(path).ok().map(identity)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_journal_has_one_writer_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let journal = place.path().join("journal.log");
        let inside = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..25 {
                        let _lock = JournalLock::acquire(&journal).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn the_lock_of_a_dead_process_is_taken_over() {
        let place = tempfile::tempdir().unwrap();
        let journal = place.path().join("journal.log");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        symlink(format!("sirtaki:{}:{}", host(), child.id()), beside(&journal, ".lock")).unwrap();
        drop(JournalLock::acquire(&journal).unwrap());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_second_coordinator_is_refused_by_name() {
        let place = tempfile::tempdir().unwrap();
        let first = StudyClaim::new(place.path()).unwrap();
        let refused = StudyClaim::new(place.path()).unwrap_err();
        let expected = format!("is being run by process {} on {}", std::process::id(), host());
        assert!(refused.message.ends_with(&expected), "{}", refused.message);
        drop(first);
        StudyClaim::new(place.path()).unwrap();
        assert!(!place.path().join(COORDINATOR).exists());
    }
}
