//! What all processes of a job have in common, whatever starts them: they do not outlive their parent, keep to their
//! processors, and get no signals from its terminal.

use std::{io, os::unix::process::CommandExt, process::Command};

use rustix::{
    process::{
        Resource, Rlimit, Signal, getpid, getppid, getrlimit, set_parent_process_death_signal, setrlimit, setsid,
    },
    thread::sched_setaffinity,
};

use super::cores;

/// Ties what `command` will start to the calling thread: when that ends, however it ends, the kernel kills the process.
/// The process leads its own session, so the terminal's Ctrl-C reaches only the parent, and keeps to `cores`, if any
/// are given.
pub fn tie(command: &mut Command, cores: &[usize]) {
    let (parent, cores) = (getpid(), cores::set(cores));
    // SAFETY: the closure runs between fork and exec and makes a few system calls; it allocates and locks nothing.
    unsafe {
        command.pre_exec(move || {
            setsid()?;
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if let Some(cores) = &cores {
                // Where this is forbidden, processes run wherever there is room.
                let _ = sched_setaffinity(None, cores);
            }
            // The parent may have died before the call above.
            if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::NotConnected.into()) }
        });
    }
}

/// How many files this process may have open, and what the limit was before it was changed.
///
/// Many ranks need many pipes, and the usual limit of 1024 is only a default that any process may raise. The programs
/// that are started get the original limit: some cannot handle descriptors beyond it.
#[derive(Debug)]
pub struct OpenFiles {
    before: Rlimit,
}

impl OpenFiles {
    /// Raises the limit of this process as far as it may.
    pub fn raise() -> Self {
        let before = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: before.maximum, ..before });
        Self { before }
    }

    /// What to do if even that does not suffice.
    pub fn hint() -> String {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let number = |limit: Option<u64>| limit.map_or("unlimited".into(), |limit| limit.to_string());
        let (current, maximum) = (number(current), number(maximum));
        format!(
            "at most {current} files may be open (`ulimit -n`; hard limit {maximum}): raise the hard limit on this host \
             (/etc/security/limits.conf, LimitNOFILE= of systemd), or start fewer ranks here"
        )
    }

    /// Gives what `command` will start the original limit.
    pub fn restore_in(&self, command: &mut Command) {
        let before = self.before;
        // SAFETY: the closure runs between fork and exec and makes one system call; it allocates and locks nothing.
        unsafe {
            command.pre_exec(move || {
                let _ = setrlimit(Resource::Nofile, before);
                Ok(())
            });
        }
    }
}
