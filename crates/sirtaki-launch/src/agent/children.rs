//! Starting the ranks of a host.
//!
//! Their output goes through pipes, or through two pseudo-terminals where the launcher's own output is a terminal: then
//! programs show progress bars and colours as they would without the launcher.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, OwnedFd},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Pid,
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{OptionalActions, OutputModes, Winsize, tcgetattr, tcsetattr, tcsetwinsize},
};

use crate::{
    child::{self, OpenFiles},
    environment,
    protocol::{HostStart, RankStart, Stream},
};

/// Bytes read from a rank at a time.
const PIECE: usize = 64 << 10;
/// Bytes that are passed on after a rank has ended: more than a pipe holds.
const LATE: usize = 256 << 10;

/// Both ends of a channel for output: the end that the rank writes to and the end that the agent reads.
fn channel(terminal: Option<(u16, u16)>) -> io::Result<(OwnedFd, OwnedFd)> {
    let Some((columns, rows)) = terminal else {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        return Ok((write, read));
    };
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let theirs = ioctl_tiocgptpeer(&ours, flags)?;
    let mut modes = tcgetattr(theirs.as_fd())?;
    // Lines end as the program ended them.
    modes.output_modes.remove(OutputModes::OPOST);
    tcsetattr(theirs.as_fd(), OptionalActions::Now, &modes)?;
    tcsetwinsize(theirs.as_fd(), Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 })?;
    Ok((theirs, ours))
}

/// The reading end of a rank's output, which a dedicated thread passes on.
#[derive(Debug)]
pub(super) struct Source {
    file: File,
    /// Locked while something has been read but not passed on yet.
    passing: Mutex<()>,
    /// Whether the rank has ended, so that any further output comes from processes that it left behind.
    orphaned: AtomicBool,
}

impl Source {
    /// Whether everything that was written is passed on.
    pub(super) fn is_quiet(&self) -> bool {
        self.passing.try_lock().is_ok_and(|_passing| !self.is_readable(Some(Timespec::default())))
    }

    /// The rank has ended: what is already in the pipe is passed on, but no more than a pipe holds.
    pub(super) fn orphan(&self) {
        self.orphaned.store(true, Ordering::Release);
    }

    fn is_readable(&self, limit: Option<Timespec>) -> bool {
        let mut polled = [PollFd::new(&self.file, PollFlags::IN)];
        // An interrupted wait is followed by another one.
        poll(&mut polled, limit.as_ref()).is_ok_and(|ready| ready > 0)
    }

    /// Passes on everything that comes. A pseudo-terminal whose other end is closed gives an error, which is how it
    /// signals the end.
    fn forward(&self, wrote: impl Fn(&[u8])) {
        let mut piece = vec![0; PIECE];
        let mut late = 0;
        while late <= LATE {
            if !self.is_readable(None) {
                continue;
            }
            let _passing = self.passing.lock().unwrap_or_else(PoisonError::into_inner);
            match (&self.file).read(&mut piece) {
                Ok(0) => break,
                Ok(count) => {
                    wrote(&piece[..count]);
                    late += if self.orphaned.load(Ordering::Acquire) { count } else { 0 };
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
    }
}

/// A running rank.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) pid: Pid,
    pub(super) sources: [Arc<Source>; 2],
}

/// Starts one rank on this thread, which must live as long as the agent. `wrote` gets what it writes, piece by piece,
/// and `ended` is called at the end of each stream.
pub(super) fn start(
    (start, rank): (&HostStart, &RankStart),
    files: &OpenFiles,
    wrote: impl Fn(Stream, &[u8]) + Clone + Send + 'static,
    ended: impl Fn() + Clone + Send + 'static,
) -> io::Result<Child> {
    let program = &start.program;
    let (out, from_out) = channel(start.terminal)?;
    let (err, from_err) = channel(start.terminal)?;
    let mut command = Command::new(program.name());
    command.args(program.command.iter().skip(1)).stdin(Stdio::null()).stdout(out).stderr(err);
    for name in environment::OWN.iter().chain(environment::OF_MPI) {
        command.env_remove(name);
    }
    command.envs(program.environment.iter().map(|(name, value)| (name, value)));
    command.envs(rank.environment.iter().map(|(name, value)| (name, value)));
    command.current_dir(&program.folder);
    files.restore_in(&mut command);
    child::tie(&mut command, &rank.cores);
    let pid = Pid::from_child(&command.spawn()?);
    let sources = [(Stream::Out, from_out), (Stream::Err, from_err)].map(|(stream, from)| {
        let (passing, orphaned) = (Mutex::default(), AtomicBool::default());
        let source = Arc::new(Source { file: from.into(), passing, orphaned });
        let (reader, wrote, ended) = (source.clone(), wrote.clone(), ended.clone());
        thread::spawn(move || {
            reader.forward(|bytes| wrote(stream, bytes));
            ended();
        });
        source
    });
    Ok(Child { pid, sources })
}
