//! Ranks that meet in a folder all of them see, because their starter serves no store.
//!
//! The user's cache folder has a private one, *jobs*, with a note for every meeting in progress: the name of that
//! meeting's folder, which rank 0 has just made with a random name, and a fresh secret. Notes are found by the job's
//! key. A note that a dead job left can have the same key (a number that was reused), so no rank believes a note: a
//! rank leaves a random number in the folder that the note names and goes in when rank 0, which must be alive for that,
//! repeats it. Until then it keeps looking for another note. Clocks of different hosts are never compared.
//!
//! The folder belongs to the user alone, and nobody else can replace it: the folders above it are checked too.
//!
//! Rank 0 removes note and folder when all ranks are connected, and also if that fails. What it cannot remove because
//! it was killed is removed by the next job with the same key, and by any job a day later.

use std::{
    fs::{self, DirBuilder, Metadata},
    io::ErrorKind,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant, SystemTime},
};

use sha2::{Digest, Sha256};
use sirtaki_comm::{
    CommError,
    rendezvous::{FileStore, Store, not_private, this_member},
    secure::{Secret, fresh_id},
};

use super::{JobError, Position};

/// The shortest and longest pause between two looks at a note.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));
/// Leftovers of this age belong to no job; none waits that long for its ranks.
const STALE: Duration = Duration::from_secs(24 * 60 * 60);
/// Attempts to remove a folder into which others may still be writing.
const ATTEMPTS: usize = 10;

const ADMITTED: &str = "admitted";
const SHARED: &str = "all hosts have to see the same folder: set XDG_CACHE_HOME to one that they do, or start the job \
                      with `sirtaki run`";

/// The job's key as the name of a note. With `by_parent` it includes the process that started us.
pub(super) fn file_key(key: &str, by_parent: bool) -> Result<String, JobError> {
    let parent = if by_parent { parent()? } else { String::new() };
    Ok(hex(&Sha256::digest(format!("{key:?}{parent:?}"))[..16]))
}

/// An identity of the process that started us that no other process on any host ever has.
fn parent() -> Result<String, JobError> {
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let path = format!("/proc/{parent}/stat");
    // A parent in another namespace has neither an entry here nor a number.
    let stat = fs::read_to_string(path).unwrap_or_default();
    let start = stat.rsplit(')').next().and_then(|fields| fields.split_whitespace().nth(19)).unwrap_or_default();
    Ok(format!("{}/{parent}/{start}", this_member(0)?.host_id))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A meeting in progress. Rank 0's value ends it when dropped.
pub(super) struct Hall {
    store: Arc<FileStore>,
    secret: Secret,
    _note: Option<Note>,
}

impl Hall {
    /// Where the ranks exchange what they need to connect.
    pub(super) fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// The secret that all of them know.
    pub(super) fn secret(&self) -> Secret {
        self.secret.clone()
    }
}

/// Rank 0's note and the folder it names.
struct Note {
    board: FileStore,
    key: String,
    folder: PathBuf,
}

impl Drop for Note {
    fn drop(&mut self) {
        let _ = self.board.forget(&self.key);
        remove(&self.folder);
    }
}

/// Meets the others of the job with this key.
pub(super) fn meet(cache: &Path, key: &str, me: Position, patience: Duration) -> Result<Hall, JobError> {
    let jobs = prepare(cache)?;
    let board = FileStore::open(jobs.parent().unwrap_or(&jobs), "jobs")?;
    let deadline = Instant::now() + patience;
    match me.rank {
        0 => host(&jobs, board, key, me.size, deadline),
        rank => attend(&jobs, &board, key, rank, deadline),
    }
    .and_then(|hall| {
        hall.map_err(|rank| {
            let seconds = patience.as_secs_f64();
            let problem = format!("rank {rank} of {} did not come there within {seconds:.0} s", me.size);
            JobError::Folder { path: jobs.clone(), problem, hint: SHARED }
        })
    })
}

/// The folder for all meetings of this user, and of no other; its path contains no links.
fn prepare(cache: &Path) -> Result<PathBuf, JobError> {
    let jobs = cache.join("sirtaki").join("jobs");
    let fail = |problem: String, hint| JobError::Folder { path: jobs.clone(), problem, hint };
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&jobs);
    let found = made.and_then(|()| Ok((fs::symlink_metadata(&jobs)?, fs::canonicalize(&jobs)?)));
    let (found, real) = found.map_err(|error| fail(format!("it cannot be made: {error}"), SHARED))?;
    if let Some(problem) = not_private(&found) {
        return Err(fail(problem, "remove it, or set XDG_CACHE_HOME to a folder of your own"));
    }
    for above in real.ancestors().skip(1) {
        let found = fs::metadata(above).map_err(|error| fail(format!("{}: {error}", above.display()), SHARED))?;
        if let Some(problem) = replaceable(&found, fs::metadata("/").map_or(0, |root| root.uid())) {
            let problem = format!("somebody else could replace it, since {} {problem}", above.display());
            return Err(fail(
                problem,
                "take away that right with `chmod go-w`, or set XDG_CACHE_HOME to a folder of your own",
            ));
        }
    }
    Ok(real)
}

/// Why somebody other than this user and the system can change what is in a folder. `root` is the owner of the root
/// folder, whose number differs in containers.
fn replaceable(found: &Metadata, root: u32) -> Option<String> {
    const STICKY: u32 = 0o1000;
    let (us, owner, mode) = (rustix::process::geteuid().as_raw(), found.uid(), found.permissions().mode());
    match () {
        () if ![us, 0, root].contains(&owner) => Some(format!("belongs to user {owner}")),
        () if mode & 0o022 != 0 && mode & STICKY == 0 => Some(format!("is open to others (mode {:03o})", mode & 0o777)),
        () => None,
    }
}

/// A meeting, or the rank that did not come.
type Outcome = Result<Result<Hall, usize>, JobError>;

/// Rank 0's part.
fn host(jobs: &Path, board: FileStore, key: &str, size: usize, deadline: Instant) -> Outcome {
    if let Some((old, _)) = board.wait(key, Instant::now())?.as_deref().and_then(read_note) {
        remove(&jobs.join(old));
    }
    let (name, secret) = (hex(&fresh_id()?), Secret::random()?);
    let note = Note { board, key: key.into(), folder: jobs.join(&name) };
    let made = DirBuilder::new().mode(0o700).create(&note.folder);
    made.map_err(|error| CommError::io(format!("cannot create {}", note.folder.display()), error))?;
    sweep(jobs, &note.folder);
    let store = Arc::new(FileStore::open(jobs, &name)?);
    note.board.set(key, format!("{name} {}", secret.to_hex().as_str()).as_bytes())?;
    let mut numbers = Vec::new();
    for rank in 1..size {
        match store.wait(&call_key(rank), deadline)? {
            Some(number) => numbers.push(String::from_utf8_lossy(&number).into_owned()),
            None => return Ok(Err(rank)),
        }
    }
    store.set(ADMITTED, numbers.join(" ").as_bytes())?;
    Ok(Ok(Hall { store, secret, _note: Some(note) }))
}

/// The part of all other ranks.
fn attend(jobs: &Path, board: &FileStore, key: &str, rank: usize, deadline: Instant) -> Outcome {
    let number = hex(&fresh_id()?);
    let mut entered: Option<(Vec<u8>, FileStore, Secret)> = None;
    let mut pause = PAUSES.0;
    loop {
        if let Some(note) = board.wait(key, Instant::now())?
            && entered.as_ref().is_none_or(|(known, ..)| *known != note)
            && let Some((name, secret)) = read_note(&note)
            && let Some(store) = call(jobs, name, rank, &number)?
        {
            entered = Some((note, store, secret));
        }
        if let Some((_, store, _)) = &entered
            && let Some(admitted) = store.wait(ADMITTED, Instant::now())?
            && String::from_utf8_lossy(&admitted).split(' ').nth(rank - 1) == Some(number.as_str())
            && let Some((_, store, secret)) = entered.take()
        {
            return Ok(Ok(Hall { store: Arc::new(store), secret, _note: None }));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Err(0));
        }
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(PAUSES.1);
    }
}

/// The folder's name and the secret in a note.
fn read_note(note: &[u8]) -> Option<(&str, Secret)> {
    let (name, secret) = std::str::from_utf8(note).ok()?.split_once(' ')?;
    let harmless = name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    harmless.then(|| Secret::from_hex(secret).ok())?.map(|secret| (name, secret))
}

fn call_key(rank: usize) -> String {
    format!("call/{rank}")
}

/// Leaves our number in a folder that a note names; `None` if the folder is gone because its meeting is over.
fn call(jobs: &Path, name: &str, rank: usize, number: &str) -> Result<Option<FileStore>, CommError> {
    let store = FileStore::open(jobs, name);
    match store.and_then(|store| store.set(&call_key(rank), number.as_bytes()).map(|()| store)) {
        Ok(store) => Ok(Some(store)),
        Err(CommError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a folder with everything in it, where possible.
fn remove(folder: &Path) {
    for _ in 0..ATTEMPTS {
        match fs::remove_dir_all(folder) {
            // Another process has just put something there.
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
            _ => return,
        }
    }
}

/// Removes what jobs left behind that were killed long before `fresh` was made. Times are the file system's own.
fn sweep(jobs: &Path, fresh: &Path) {
    let changed = |path: &Path| -> Option<SystemTime> { fs::symlink_metadata(path).ok()?.modified().ok() };
    let (Some(now), Ok(entries)) = (changed(fresh), fs::read_dir(jobs)) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let old = |time: SystemTime| now.duration_since(time).is_ok_and(|age| age > STALE);
        if changed(&path).is_some_and(old) {
            match path.is_dir() {
                true => remove(&path),
                false => drop(fs::remove_file(&path)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
