//! Really running out of memory: a memory cgroup with a small limit, in which the kernel kills.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

/// Bytes that processes may use in it: more than a small job needs.
const LIMIT: u64 = 256 << 20;

/// A memory cgroup; removed on drop, when its processes have ended.
pub struct Cramped {
    folder: PathBuf,
}

impl Cramped {
    /// A new cgroup, where this machine allows it.
    pub fn new() -> Option<Cramped> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("sirtaki-test-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let root = Path::new("/sys/fs/cgroup");
        let first = (root.join("memory").join(&name), "memory.limit_in_bytes");
        let second = (root.join(&name), "memory.max");
        let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
        [first, second].into_iter().find_map(|(folder, limit)| {
            fs::create_dir(&folder).ok()?;
            let cramped = Cramped { folder };
            // Without swap, memory really runs out.
            let _ = fs::write(cramped.folder.join("memory.swap.max"), "0");
            fs::write(cramped.folder.join(limit), LIMIT.to_string()).ok()?;
            Some(cramped)
        })
    }

    /// Where a process writes its id to get in.
    pub fn door(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// The same command, with everything it starts, in the cgroup, as in a scheduler's job or a container.
    pub fn with(&self, command: &Command) -> Command {
        let mut inside = Command::new("sh");
        inside.args(["-c", "echo 0 >\"$0\" && exec \"$@\""]).arg(self.door());
        inside.arg(command.get_program()).args(command.get_args());
        inside.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        inside.env("TEST_CRAMPED", self.door());
        inside
    }
}

impl Drop for Cramped {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}
