//! Starting the ranks of a host.
//!
//! Their output goes through pipes, or through two pseudo-terminals where the launcher's own output is a terminal: then
//! programs show progress bars and colours as they would without us.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, OwnedFd},
    process::{Command, Stdio},
    thread,
};

use rustix::{
    pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{OptionalActions, OutputModes, Winsize, tcgetattr, tcsetattr, tcsetwinsize},
};

use crate::launch::{
    child, environment,
    output::Stream,
    protocol::{Program, RankStart},
};

/// Bytes read from a rank at a time.
const PIECE: usize = 64 << 10;

/// Both ends of a way for output: what the rank writes to and what we read.
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

/// Starts one rank on this thread, which must live as long as the agent. `wrote` gets what it writes, piece by piece,
/// and nothing at the end of each stream.
pub(super) fn start(
    program: &Program,
    rank: &RankStart,
    terminal: Option<(u16, u16)>,
    wrote: impl Fn(Stream, &[u8]) + Clone + Send + 'static,
) -> io::Result<u32> {
    let (out, from_out) = channel(terminal)?;
    let (err, from_err) = channel(terminal)?;
    let mut command = Command::new(program.name());
    command.args(program.command.iter().skip(1)).stdin(Stdio::null()).stdout(out).stderr(err);
    for name in environment::OWN.iter().chain(environment::OF_MPI) {
        command.env_remove(name);
    }
    command.envs(program.environment.iter().map(|(name, value)| (name, value)));
    command.envs(rank.environment.iter().map(|(name, value)| (name, value)));
    command.current_dir(&program.folder);
    child::tie(&mut command, &rank.cores);
    let pid = command.spawn()?.id();
    for (stream, from) in [(Stream::Out, from_out), (Stream::Err, from_err)] {
        let wrote = wrote.clone();
        thread::spawn(move || forward(File::from(from), |bytes| wrote(stream, bytes)));
    }
    Ok(pid)
}

/// Passes on everything that comes, and nothing when it ends. A pseudo-terminal whose other end is closed gives an
/// error, which is its way of ending.
fn forward(mut from: File, wrote: impl Fn(&[u8])) {
    let mut piece = vec![0; PIECE];
    loop {
        match from.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => wrote(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    wrote(&[]);
}
