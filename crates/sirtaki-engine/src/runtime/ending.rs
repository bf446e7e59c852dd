//! How a process of this host ended, from what the kernel tells processes other than its parent.
//!
//! Until its parent has collected it, a dead process shows its exit code in `/proc`; afterwards a descriptor opened
//! while the process lived does (Linux 6.15 and later). On older kernels, and for other users' processes, it stays
//! unknown.

use std::{fs, os::fd::OwnedFd};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    ioctl::{self, Updater, opcode},
    process::{Pid, PidfdFlags, pidfd_open},
};

use sirtaki_comm::{Group, Member};

use crate::decide::blame::Ending;

/// The kernel's `struct pidfd_info` in its first form.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
struct Info {
    mask: u64,
    cgroup: u64,
    ids: [u32; 11],
    exit_code: i32,
}

/// Asks for and confirms `exit_code`.
const EXIT: u64 = 1 << 3;
const GET_INFO: ioctl::Opcode = opcode::read_write::<Info>(0xff, 11);

/// A process of this host that is watched.
#[derive(Debug)]
pub(crate) struct Watched {
    pid: u32,
    process: OwnedFd,
}

/// The processes of all other ranks of `group` on this host, by rank.
pub(crate) fn watch(group: &Group) -> Vec<Option<Watched>> {
    let here = &group.members()[group.rank()].host_id;
    let watch = |member: &Member| Watched::new(member.pid).filter(|_| member.host_id == *here);
    group.members().iter().map(watch).collect()
}

impl Watched {
    /// A process that is alive now; not this one.
    pub(crate) fn new(pid: u32) -> Option<Self> {
        let id = i32::try_from(pid).ok().filter(|_| pid != std::process::id()).and_then(Pid::from_raw)?;
        Some(Self { pid, process: pidfd_open(id, PidfdFlags::empty()).ok()? })
    }

    /// How it ended.
    pub(crate) fn ending(&self) -> Ending {
        let mut polled = [PollFd::new(&self.process, PollFlags::IN)];
        match poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(0) => Ending::NotYet,
            _ => self.status().map_or(Ending::Unknown, |status| Ending::Known(describe(status))),
        }
    }

    /// The exit code as `wait` gives it.
    fn status(&self) -> Option<i32> {
        let mut info = Info { mask: EXIT, ..Info::default() };
        // SAFETY: the request reads and writes at most `size_of::<Info>()` bytes, a size encoded in its number.
        let asked = unsafe { ioctl::ioctl(&self.process, Updater::<GET_INFO, Info>::new(&mut info)) };
        match asked {
            Ok(()) if info.mask & EXIT != 0 => Some(info.exit_code),
            _ => exit_code(&fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?),
        }
    }
}

/// The last field of a dead process's `stat` line.
fn exit_code(stat: &str) -> Option<i32> {
    let mut fields = stat.rsplit(')').next()?.split_whitespace();
    matches!(fields.next(), Some("Z" | "X")).then(|| fields.next_back()?.parse().ok()).flatten()
}

/// An exit code as `wait` gives it, in words that follow "it".
fn describe(status: i32) -> String {
    match status & 0x7f {
        0 => format!("ended with exit code {}", (status >> 8) & 0xff),
        signal => format!("was killed by {}", name(signal)),
    }
}

/// The name of a signal.
fn name(signal: i32) -> String {
    const NAMES: [(i32, &str); 14] = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (5, "SIGTRAP"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
        (13, "SIGPIPE"),
        (15, "SIGTERM"),
        (24, "SIGXCPU"),
        (31, "SIGSYS"),
    ];
    let known = NAMES.iter().find(|(number, _)| *number == signal);
    known.map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).into())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn endings_are_known_before_and_after_the_parent_takes_notice() {
        for (script, words) in [("kill -9 $$", "was killed by SIGKILL"), ("exit 7", "ended with exit code 7")] {
            let script = format!("read line; {script}");
            let child = Command::new("sh").args(["-c", &script]).stdin(std::process::Stdio::piped()).spawn();
            let mut child = child.unwrap();
            let watched = Watched::new(child.id()).expect("it is alive");
            assert_eq!(watched.ending(), Ending::NotYet);
            drop(child.stdin.take());
            let ended = || {
                (0..1000).any(|_| {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                    watched.ending() != Ending::NotYet
                })
            };
            assert!(ended(), "it never ended");
            assert_eq!(watched.ending(), Ending::Known(words.into()));
            child.wait().unwrap();
            // Older kernels forget it now.
            let after = watched.ending();
            assert!(after == Ending::Known(words.into()) || after == Ending::Unknown, "{after:?}");
        }
    }

    #[test]
    fn codes_become_words() {
        assert_eq!(exit_code("12 (a) b) Z 1 2 3 9"), Some(9));
        assert_eq!(exit_code("12 (a) S 1 2 3 9"), None);
        assert_eq!(exit_code(""), None);
        assert_eq!(describe(9 | 0x80), "was killed by SIGKILL");
        assert_eq!(describe(101 << 8), "ended with exit code 101");
        assert_eq!(describe(40), "was killed by signal 40");
    }

    #[test]
    fn this_process_is_not_watched() {
        assert!(Watched::new(std::process::id()).is_none());
    }
}
