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

/// Where control groups are: what their lines begin with behind the number, their folder, and the files with limit and use.
const GROUPS: [(&str, &str, [&str; 2]); 2] = [
    (":", "/sys/fs/cgroup", ["memory.max", "memory.current"]),
    ("memory:", "/sys/fs/cgroup/memory", ["memory.limit_in_bytes", "memory.usage_in_bytes"]),
];

/// What is left to the control group of this process.
fn group_limit() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    GROUPS.iter().filter_map(|(kind, root, files)| left_in(group_of(&own, kind)?, Path::new(root), *files)).min()
}

/// The group that a process is in, among those of one kind.
fn group_of<'a>(lines: &'a str, kind: &str) -> Option<&'a str> {
    let behind_number = |line: &'a str| line.split_once(':').map(|(_, rest)| rest);
    lines.lines().filter_map(behind_number).find_map(|line| line.strip_prefix(kind)).map(str::trim)
}

/// What is left to a group and all groups above: a limit may be that of any of them. Files that the kernel keeps in memory
/// count as use, but it gives them up when somebody needs the memory.
fn left_in(group: &str, root: &Path, [limit, used]: [&str; 2]) -> Option<u64> {
    let number = |group: &Path, name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    let left = |group: &Path| {
        let most = number(group, limit)?;
        let kept = kept_files(&fs::read_to_string(group.join("memory.stat")).unwrap_or_default());
        Some(most.saturating_sub(number(group, used).unwrap_or(0).saturating_sub(kept)))
    };
    let own = root.join(group.trim_start_matches('/'));
    own.ancestors().take_while(|group| group.starts_with(root)).filter_map(left).min()
}

/// Bytes of files that the kernel keeps.
fn kept_files(statistics: &str) -> u64 {
    let number = |name: &str| {
        let line = statistics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    number("active_file") + number("inactive_file")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_both_versions_are_found() {
        let lines = "9:name=systemd:/\n4:memory:/jobs/7\n0::/user\n";
        assert_eq!(group_of(lines, ":"), Some("/user"));
        assert_eq!(group_of(lines, "memory:"), Some("/jobs/7"));
        assert_eq!(group_of("1:cpu:/\n", "memory:"), None);
    }

    #[test]
    fn a_limit_of_any_group_above_counts_and_kept_files_do_not() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("jobs/7");
        fs::create_dir_all(&group).unwrap();
        let write = |folder: &Path, name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        write(&group, "memory.max", "max\n");
        write(&root.path().join("jobs"), "memory.max", "1000\n");
        write(&root.path().join("jobs"), "memory.current", "900\n");
        write(&root.path().join("jobs"), "memory.stat", "anon 1\nactive_file 300\ninactive_file 200\n");
        let files = ["memory.max", "memory.current"];
        assert_eq!(left_in("/jobs/7", root.path(), files), Some(600));
        assert_eq!(left_in("/", root.path(), files), None);
    }
}
