//! What all processes of a job have in common, whoever starts them: they do not outlive us, keep to their processors, and
//! hear nothing from our terminal.

use std::{io, os::unix::process::CommandExt, process::Command};

use rustix::{
    process::{Signal, getpid, getppid, set_parent_process_death_signal, setsid},
    thread::sched_setaffinity,
};

use super::cores;

/// Ties what `command` will start to the calling thread: when that ends, however it ends, the kernel kills the process.
/// The process leads a session of its own, so the terminal's Ctrl-C reaches us alone, and keeps to `cores`, where any are
/// given.
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
