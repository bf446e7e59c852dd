//! Running out of memory for real: a memory cgroup with a small limit, in which the kernel kills.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// Bytes a process may use in it.
const LIMIT: u64 = 64 << 20;

/// A memory cgroup; removed on drop, when its processes have ended.
pub struct Cramped {
    folder: PathBuf,
}

impl Cramped {
    /// A new one, where this machine allows it.
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
            // Without swap there is nowhere to go.
            let _ = fs::write(cramped.folder.join("memory.swap.max"), "0");
            fs::write(cramped.folder.join(limit), LIMIT.to_string()).ok()?;
            Some(cramped)
        })
    }

    /// Where a process writes its id to get in.
    pub fn door(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
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
