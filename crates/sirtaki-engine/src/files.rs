//! Reading and writing files safely. A file that is written is either complete or unchanged, whatever happens
//! meanwhile; only regular files are read, so that reading ends, and opening one never waits.
//!
//! New folders belong to the user alone, unless they are inside one that does not. A new file can be read by those who
//! may look into its folder, and by nobody else: the usual permissions would expose it to all, should the folder ever
//! be opened.
//!
//! A regular file is written under another name in the same folder, flushed to disk and renamed, so that readers see
//! the old or the new contents and nothing in between. The other name cannot be guessed and is created exclusively, so
//! nobody can have put a link there. Links at the path itself are followed and stay. What cannot be replaced without
//! harm is written into: devices, pipes, and files that a process has open (`/dev/stdout`).

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, ErrorKind, Read, Write},
    os::{
        fd::AsRawFd,
        unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags};
use sirtaki_comm::secure::fresh_id;

/// How long a pipe may be without a reader before writing is given up.
const READER: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);
/// As many links as Linux follows.
const LINKS: usize = 40;

/// Writes these bytes to a path; see the module.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match Target::find(path)? {
        Target::File(place) => {
            let mut draft = Draft::new(&place)?;
            draft.file.write_all(bytes)?;
            draft.file.sync_all()?;
            draft.publish().map(drop)
        }
        Target::Stream(place) => open_stream(&place)?.write_all(bytes),
    }
}

/// Whether [`write()`] could write to this path now, without leaving a trace of the check.
pub fn check(path: &Path) -> io::Result<()> {
    match Target::find(path)? {
        Target::File(place) => Draft::new(&place).map(drop),
        Target::Stream(place) => Ok(rustix::fs::access(&place, Access::WRITE_OK)?),
    }
}

/// Opens a regular file to read it. Pipes, devices and folders are refused.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(ErrorKind::InvalidInput, "this is not a regular file")),
    }
}

/// All of a regular file of at most `most` bytes.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let problem = format!("it has more than the {most} bytes that are read");
        return Err(io::Error::new(ErrorKind::FileTooLarge, problem));
    }
    Ok(bytes)
}

/// Creates a folder that was not there, and the folders above it: this one, or the first free one with a number after
/// its name. Of several processes that ask at once, each gets a folder of its own.
pub fn new_folder(wanted: &Path) -> io::Result<PathBuf> {
    let name = wanted.file_name().ok_or_else(no_name)?.to_string_lossy().into_owned();
    make_private(parent(wanted))?;
    for number in 1_u32.. {
        let folder = if number == 1 { wanted.to_owned() } else { wanted.with_file_name(format!("{name}-{number}")) };
        match private().create(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// Makes a folder, and those above it that are missing, for this user alone. An existing one keeps its permissions: to
/// share it, make it first, or open it with `chmod`.
pub fn make_private(folder: &Path) -> io::Result<()> {
    private().recursive(true).create(folder)
}

/// Makes a folder inside an existing one, for the same people.
pub fn make_inside(folder: &Path) -> io::Result<()> {
    DirBuilder::new().mode(permissions(parent(folder), 0o777)?).create(folder)
}

/// Options to make a file at this path and write to it, for those who may look into its folder.
pub fn options(path: &Path) -> io::Result<OpenOptions> {
    let mut options = OpenOptions::new();
    options.write(true).mode(permissions(parent(path), 0o666)?);
    Ok(options)
}

/// Makes a file that was not there; see [`options`].
pub fn create_new(path: &Path) -> io::Result<File> {
    options(path)?.create_new(true).open(path)
}

/// Makes a file, or empties the existing one; see [`options`].
pub fn create(path: &Path) -> io::Result<File> {
    options(path)?.create(true).truncate(true).open(path)
}

/// The permissions of something new in a folder: at most these, and only where the folder grants them.
fn permissions(folder: &Path, most: u32) -> io::Result<u32> {
    Ok(fs::metadata(folder)?.permissions().mode() & most | 0o600)
}

fn private() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

/// Where bytes for a path go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// A regular file behind all links, which may not be there yet. It is replaced as a whole.
    File(PathBuf),
    /// Something that is written into.
    Stream(PathBuf),
}

impl Target {
    pub(crate) fn find(path: &Path) -> io::Result<Self> {
        match fs::metadata(path).map(|found| found.file_type()) {
            Ok(kind) if kind.is_dir() => return Err(io::Error::new(ErrorKind::IsADirectory, "it is a folder")),
            Ok(kind) if kind.is_socket() => return Err(io::Error::new(ErrorKind::InvalidInput, "it is a socket")),
            Ok(kind) if !kind.is_file() => return Ok(Target::Stream(path.to_owned())),
            _ => {}
        }
        let mut place = path.to_owned();
        for _ in 0..LINKS {
            match fs::read_link(&place) {
                Ok(_) if is_in_proc(&place)? => return Ok(Target::Stream(place)),
                Ok(next) => place = parent(&place).join(next),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => {
                    return Ok(Target::File(place));
                }
                Err(error) => return Err(error),
            }
        }
        Err(rustix::io::Errno::LOOP.into())
    }
}

/// Links in `/proc` lead to open files, not to paths.
fn is_in_proc(link: &Path) -> io::Result<bool> {
    Ok(rustix::fs::statfs(parent(link))?.f_type == rustix::fs::PROC_SUPER_MAGIC)
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn no_name() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "it does not end with a name")
}

/// Opens something to write into. A pipe needs a reader, which may come a moment later.
pub(crate) fn open_stream(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let deadline = Instant::now() + READER;
    loop {
        match OpenOptions::new().append(true).custom_flags(flags.bits().cast_signed()).open(path) {
            Ok(file) => {
                rustix::fs::fcntl_setfl(&file, OFlags::APPEND)?;
                return Ok(file);
            }
            Err(error) if !is_pipe(path) || error.raw_os_error() != Some(rustix::io::Errno::NXIO.raw_os_error()) => {
                return Err(error);
            }
            Err(_) if Instant::now() < deadline => thread::sleep(LOOK),
            Err(_) => return Err(io::Error::new(ErrorKind::BrokenPipe, "no process reads from this pipe")),
        }
    }
}

fn is_pipe(path: &Path) -> bool {
    rustix::fs::stat(path).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Fifo)
}

/// A file that does not have its name yet. Dropping it deletes it.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) file: File,
    place: PathBuf,
    /// Its temporary name, in the same folder.
    hidden: PathBuf,
    /// Whether it has that name. Where the file system allows, it has none, so that a kill leaves nothing behind.
    is_named: bool,
}

impl Draft {
    /// A draft of the file at this place; an existing file's permissions are kept.
    pub(crate) fn new(place: &Path) -> io::Result<Self> {
        let name = place.file_name().ok_or_else(no_name)?.to_string_lossy();
        let id: String = fresh_id().map_err(io::Error::other)?.iter().map(|byte| format!("{byte:02x}")).collect();
        let (folder, hidden) = (parent(place), place.with_file_name(format!(".{name}.{id}")));
        if !folder.exists() {
            let problem = format!("there is no folder {}", folder.display());
            return Err(io::Error::new(ErrorKind::NotFound, problem));
        }
        let (flags, mode) = (OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, permissions(folder, 0o666)?);
        let (file, is_named) = match rustix::fs::open(folder, flags, Mode::from_raw_mode(mode)) {
            Ok(file) => (File::from(file), false),
            Err(_) => (options(&hidden)?.read(true).create_new(true).open(&hidden)?, true),
        };
        let draft = Self { file, place: place.to_owned(), hidden, is_named };
        if let Ok(there) = fs::metadata(place) {
            draft.file.set_permissions(there.permissions())?;
        }
        Ok(draft)
    }

    /// Gives it its name.
    pub(crate) fn publish(mut self) -> io::Result<File> {
        if !self.is_named {
            let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            rustix::fs::linkat(CWD, own, CWD, &self.hidden, AtFlags::SYMLINK_FOLLOW)?;
            self.is_named = true;
        }
        fs::rename(&self.hidden, &self.place)?;
        self.is_named = false;
        self.file.try_clone()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.is_named {
            let _ = fs::remove_file(&self.hidden);
        }
    }
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
