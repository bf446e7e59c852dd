//! What the launcher knows about its surroundings: variables and files, passed in so that tests need neither.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::env::Lookup;

/// Most bytes of a file with hosts or options.
const LIMIT: u64 = 1 << 20;
/// How long the writer of a pipe may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where variables and files come from.
#[derive(Clone, Copy)]
pub struct Outside<'a> {
    /// The value of a variable.
    pub get: Lookup<'a>,
    /// The text of a file.
    pub read: &'a dyn Fn(&Path) -> io::Result<String>,
}

impl std::fmt::Debug for Outside<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Outside")
    }
}

impl Outside<'static> {
    /// The process's own environment and file system.
    pub fn real() -> Self {
        Self { get: &variable, read: &read }
    }
}

impl Outside<'_> {
    /// A variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<String> {
        (self.get)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// The text of a file. It may be a pipe, as a shell makes for `<(command)`, but neither a pipe without a writer nor an
/// endless device.
fn read(path: &Path) -> io::Result<String> {
    let mut file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let deadline = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    let mut piece = [0; 16 << 10];
    loop {
        match file.read(&mut piece) {
            Ok(0) if bytes.is_empty() && !file.metadata()?.is_file() => {
                return Err(io::Error::other("nobody writes to it"));
            }
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait(&file, deadline)?,
            Err(error) => return Err(error),
        }
        if bytes.len() as u64 > LIMIT {
            return Err(io::Error::other(format!("it has more than {} KiB, or never ends", LIMIT >> 10)));
        }
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not text (UTF-8)"))
}

fn wait(file: &File, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
    match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&limit)) {
        Ok(0) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("nothing was written to it for {} s", PATIENCE.as_secs()),
        )),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
