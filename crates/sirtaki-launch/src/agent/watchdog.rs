//! A second process beside the agent, in case the agent is killed, or stopped for good.
//!
//! The kernel then kills the ranks, but not what they have started themselves, and on another host there is no launcher
//! among whose descendants it would be found. The watchdog finds it by the job's id, which everything a rank starts
//! inherits in its environment. It is forked before the agent has threads, so it costs next to nothing, and it listens
//! to a pipe from the agent: the job's id at first, [`DONE`] in the end. A pipe that ends without that means that the
//! agent is gone.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::AsRawFd,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    pipe::{PipeFlags, pipe_with},
    process::{Pid, Signal, getpid, kill_process, setsid},
    thread::set_name,
};

use crate::{env, protocol::SILENCE, tree};

/// How often it checks whether the agent is stopped.
const LOOK: Duration = Duration::from_secs(1);
/// How long killing may take.
const LIMIT: Duration = Duration::from_secs(10);
/// The agent has ended everything by itself.
const DONE: u8 = 0;

/// The agent's side.
#[derive(Debug)]
pub(super) struct Watchdog {
    pid: Pid,
    /// Closed when it has nothing more to do.
    to: Option<File>,
}

impl Watchdog {
    /// Starts it. The process must not have other threads yet.
    pub(super) fn start() -> io::Result<Self> {
        let (from, to) = pipe_with(PipeFlags::CLOEXEC)?;
        let agent = getpid();
        // SAFETY: there is no other thread that could hold a lock, so the child may do anything that this process may.
        match unsafe { libc::fork() } {
            0 => {
                drop(to);
                prepare();
                watch(from.into(), agent);
                // SAFETY: ends this process without running the agent's exit handlers.
                unsafe { libc::_exit(0) }
            }
            pid => {
                let pid = Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(io::Error::last_os_error)?;
                Ok(Self { pid, to: Some(to.into()) })
            }
        }
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Its process, as long as it is needed.
    pub(super) fn guarding(&self) -> Option<Pid> {
        self.to.is_some().then_some(self.pid)
    }

    /// From now on it looks after this job.
    pub(super) fn guard(&mut self, job: &str) {
        if let Some(to) = &mut self.to {
            let _ = to.write_all(job.as_bytes());
        }
    }

    /// It is not needed any more.
    pub(super) fn dismiss(&mut self) {
        if let Some(mut to) = self.to.take() {
            let _ = to.write_all(&[DONE]);
        }
    }
}

/// Lets go of what the agent shares with the launcher, of its session, and of the signals meant for it.
fn prepare() {
    let _ = setsid();
    // What process lists show instead of the agent's name.
    let _ = set_name(c"sirtaki-watch");
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        for standard in 0..3 {
            // SAFETY: both are descriptors of this process; what was open there before is closed.
            unsafe { libc::dup2(null.as_raw_fd(), standard) };
        }
    }
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: ignoring a signal runs no code of this program.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Waits for the agent's end, and cleans up unless that was done.
fn watch(mut from: File, agent: Pid) {
    let mut job = Vec::new();
    let mut stopped: Option<Instant> = None;
    loop {
        if !has_input(&from) {
            stopped = tree::is_stopped(agent).then(|| stopped.unwrap_or_else(Instant::now));
            if stopped.is_some_and(|since| since.elapsed() > SILENCE) {
                // The launcher has given up on the agent by now, and what the agent can no longer end has to end.
                let _ = kill_process(agent, Signal::KILL);
            }
            continue;
        }
        let mut piece = [0; 64];
        match from.read(&mut piece) {
            Ok(count) if count > 0 && piece[..count].contains(&DONE) => return,
            Ok(count) if count > 0 => job.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => break,
        }
    }
    if !job.is_empty() {
        tree::kill_marked(&format!("{}={}", env::JOB, String::from_utf8_lossy(&job)), LIMIT);
    }
}

fn has_input(from: &File) -> bool {
    let limit = Timespec { tv_sec: LOOK.as_secs() as i64, tv_nsec: 0 };
    poll(&mut [PollFd::new(from, PollFlags::IN)], Some(&limit)).is_ok_and(|ready| ready > 0)
}
