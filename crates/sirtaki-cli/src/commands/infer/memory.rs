//! How much memory there is for workers: what the machine has, or what the group of processes may use.

use std::{fs, path::Path};

use sirtaki_engine::machine;

/// What is used of the memory that there is.
const SHARE: f64 = 0.7;

/// Bytes that each of so many workers of this machine may use.
pub(super) fn for_each(workers: usize) -> u64 {
    let free = machine::memory("MemAvailable");
    let free = group_limit().map_or(free, |limit| limit.min(free));
    (free as f64 * SHARE) as u64 / workers.max(1) as u64
}

/// The most memory that this process has had, in bytes.
pub(super) fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) << 10
}

/// What is left to the control group of this process.
fn group_limit() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?.trim().trim_start_matches('/').to_owned();
    let root = Path::new("/sys/fs/cgroup");
    // A limit may be that of any group above.
    let groups = root
        .join(&path)
        .ancestors()
        .take_while(|group| group.starts_with(root))
        .map(Path::to_owned)
        .collect::<Vec<_>>();
    let number = |group: &Path, name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    let left = |group: &std::path::PathBuf| {
        Some(number(group, "memory.max")?.saturating_sub(number(group, "memory.current").unwrap_or(0)))
    };
    groups.iter().filter_map(left).min()
}
