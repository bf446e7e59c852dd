//! Whether the kernel killed a rank for lack of memory.
//!
//! To the parent of a process, this kill looks like any other SIGKILL, but the kernel counts such kills by cgroup, and
//! ranks run in their agent's. Rejected: the count of the whole machine in `/proc/vmstat`, which would blame a lack of
//! memory for a rank that was killed by hand while another job ran out of memory. If the cgroup cannot be read, nothing
//! is claimed.

use std::{fs, path::PathBuf};

/// Where cgroups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// The kernel's count for this cgroup, and how many of these kills are explained.
#[derive(Debug, Default)]
pub(super) struct MemoryKills {
    file: Option<PathBuf>,
    explained: u64,
}

impl MemoryKills {
    /// From now on.
    pub(super) fn watch() -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let counted =
            candidates(&own).into_iter().find_map(|file| Some((count(&fs::read_to_string(&file).ok()?)?, file)));
        let (explained, file) = counted.unzip();
        Self { file, explained: explained.unwrap_or(0) }
    }

    /// Whether there is a kill for lack of memory that has not been attributed to a process yet.
    pub(super) fn explain_one(&mut self) -> bool {
        let text = self.file.as_ref().and_then(|file| fs::read_to_string(file).ok());
        let more = text.and_then(|text| count(&text)).is_some_and(|count| count > self.explained);
        self.explained += u64::from(more);
        more
    }
}

/// Files that may have the count, best first, for a process with this `/proc/self/cgroup`. A container often sees its own
/// cgroup as the root, but its path as the host names it.
fn candidates(cgroups: &str) -> Vec<PathBuf> {
    let path_of = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let first = controllers.split(',').any(|controller| controller == "memory");
        (first || controllers.is_empty()).then(|| (first, path.trim_start_matches('/').to_owned()))
    };
    let mut found: Vec<(bool, String)> = cgroups.lines().filter_map(path_of).collect();
    // A memory controller of version 1 covers all memory, even if there is also a hierarchy of version 2.
    found.sort_by_key(|(first, _)| !first);
    found
        .into_iter()
        .flat_map(|(first, path)| {
            let (folder, file) = if first { ("memory", "memory.oom_control") } else { ("", "memory.events") };
            let root = PathBuf::from(CGROUPS).join(folder);
            [root.join(path).join(file), root.join(file)]
        })
        .collect()
}

/// The count in one of these files.
fn count(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_either_version_is_found() {
        let paths = |text| candidates(text).into_iter().map(|file| file.display().to_string()).collect::<Vec<_>>();
        assert_eq!(
            paths("0::/user.slice/a b\n"),
            ["/sys/fs/cgroup/user.slice/a b/memory.events", "/sys/fs/cgroup/memory.events"]
        );
        let both = paths("9:name=systemd:/\n4:hugetlb,memory:/docker/1\n0::/\n");
        assert_eq!(both[0], "/sys/fs/cgroup/memory/docker/1/memory.oom_control");
        assert_eq!(both[1], "/sys/fs/cgroup/memory/memory.oom_control");
        assert_eq!(paths("").len() + paths("nonsense\n1:cpu:/").len(), 0);
    }

    #[test]
    fn the_count_is_found_and_each_kill_explains_one_end() {
        assert_eq!(count("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"), Some(7));
        assert_eq!(count("low 0\noom 3\noom_kill 2\noom_group_kill 1\n"), Some(2));
        assert_eq!(count("oom 3\n"), None);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memory.events");
        let mut kills = MemoryKills { file: Some(file.clone()), explained: 1 };
        for (text, more) in [("oom_kill 1", false), ("oom_kill 3", true), ("oom_kill 3", true), ("oom_kill 3", false)] {
            fs::write(&file, text).unwrap();
            assert_eq!(kills.explain_one(), more, "{text}");
        }
        assert!(!MemoryKills::default().explain_one());
    }
}
