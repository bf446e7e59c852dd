//! Cores, memory and the limits set on them.

use std::{fs::read_to_string, path::Path};

use rustix::process::{Resource, getrlimit};
use sirtaki_comm::shm::Segment;
use sirtaki_engine::machine;

use super::finding::Finding;
use crate::commands::bench::sizes::show;

/// Descriptors that a job with a few hundred ranks needs in one process.
const FILES_WANTED: u64 = 4096;
/// Below this, other tools that work through `/dev/shm` (MPI, data loaders) run out of it.
const SHM_WANTED: u64 = 1 << 30;

/// The machine itself.
pub(super) fn examine() -> Vec<Finding> {
    vec![system(), cores(), memory(), shared_memory(), shm_folder(), huge_pages(), open_files()]
}

fn system() -> Finding {
    let uname = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    let name = read_to_string("/etc/os-release")
        .unwrap_or_default()
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME=").map(|name| name.trim_matches('"').to_owned()))
        .unwrap_or_else(|| text(uname.sysname()));
    Finding::ok("system", format!("{name}, kernel {}, {}", text(uname.release()), text(uname.machine())))
}

fn cores() -> Finding {
    let there = machine::cores();
    let model = machine::processor().unwrap_or("unknown model".into());
    let allowed = rustix::thread::sched_getaffinity(None).map_or(there, |set| set.count() as usize);
    // The standard library knows about quotas of control groups, and rounds them down.
    let usable = std::thread::available_parallelism().map_or(allowed, |number| number.get());
    let value = format!("{usable} usable of {there} ({model})");
    if usable >= allowed.min(there) {
        return Finding::ok("cores", value);
    }
    let hint = format!("a control group allows {usable} of them; more ranks than that take turns");
    Finding::warning("cores", value, hint)
}

fn memory() -> Finding {
    let (total, free) = (machine::memory("MemTotal"), machine::memory("MemAvailable"));
    let value = format!("{} free of {}", show(free), show(total));
    match group_limit(Path::new("/sys/fs/cgroup")) {
        Some(limit) if limit < total => Finding::ok("memory", format!("{value}, control group limit {}", show(limit))),
        _ => Finding::ok("memory", value),
    }
}

/// The memory limit of this control group, version 2 or 1.
fn group_limit(root: &Path) -> Option<u64> {
    let files = ["memory.max", "memory/memory.limit_in_bytes"];
    files.iter().find_map(|file| read_to_string(root.join(file)).ok()?.trim().parse().ok())
}

fn shared_memory() -> Finding {
    let probe = Segment::create(4096).and_then(|segment| {
        let (pid, fd) = segment.address();
        Segment::open(pid, fd, segment.len())
    });
    match probe {
        Ok(_) => Finding::ok("shared memory", "works (memory files, opened through /proc)"),
        Err(error) => {
            let hint =
                "ranks of this host will talk over loopback; allow memfd_create and /proc/PID/fd in this container";
            Finding::warning("shared memory", error.to_string(), hint)
        }
    }
}

fn shm_folder() -> Finding {
    let Ok(space) = rustix::fs::statvfs("/dev/shm") else {
        return Finding::missing("/dev/shm", "not mounted", "sirtaki does not need it; MPI and data loaders do");
    };
    let (total, free) = (space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize);
    let value = format!("{} free of {}", show(free), show(total));
    if free >= SHM_WANTED {
        return Finding::ok("/dev/shm", value);
    }
    let hint =
        "sirtaki does not use it, but MPI and data loaders do; for a container, pass --shm-size=2g or --ipc=host";
    Finding::warning("/dev/shm", value, hint)
}

fn huge_pages() -> Finding {
    let chosen = |file: &str| {
        let text = read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{file}")).ok()?;
        text.split_once('[')?.1.split_once(']').map(|(word, _)| word.to_owned())
    };
    match (chosen("enabled"), chosen("shmem_enabled")) {
        (Some(private), Some(shared)) => {
            Finding::ok("huge pages", format!("{private} for private memory, {shared} for shared memory"))
        }
        (Some(private), None) => Finding::ok("huge pages", format!("{private} for private memory")),
        _ => Finding::absent("huge pages", "not offered by this kernel"),
    }
}

fn open_files() -> Finding {
    let limit = getrlimit(Resource::Nofile);
    let word = |limit: Option<u64>| limit.map_or("unlimited".into(), |limit| limit.to_string());
    let value = format!("{} (up to {})", word(limit.current), word(limit.maximum));
    match limit.current {
        Some(current) if current < FILES_WANTED => {
            let hint = format!("enough for small jobs; before large ones, run `ulimit -n {FILES_WANTED}`");
            Finding::warning("open files", value, hint)
        }
        _ => Finding::ok("open files", value),
    }
}
