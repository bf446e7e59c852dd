//! Everything that a process has started, directly or not, and ending it.
//!
//! Launcher and agents adopt what their children leave behind (the kernel calls them subreapers), so whatever a job
//! started is found below them, also what detached itself from its parent, its process group or its session.

use std::{
    collections::HashMap,
    fs, io,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

/// How often what does not end is looked for.
pub const LOOK: Duration = Duration::from_millis(20);

/// From now on orphans below this process become its children.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Every process below this one.
pub fn descendants() -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (pid, parent) in processes() {
        children.entry(parent).or_default().push(pid);
    }
    let mut found = Vec::new();
    let mut open = vec![getpid().as_raw_nonzero().get()];
    while let Some(parent) = open.pop() {
        let below = children.remove(&parent).unwrap_or_default();
        found.extend(below.iter().filter_map(|&pid| Pid::from_raw(pid)));
        open.extend(below);
    }
    found
}

/// Every process and its parent.
fn processes() -> Vec<(i32, i32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let parent = |pid: i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may contain anything; state and parent follow it.
        stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
    };
    pids.filter_map(|pid| Some((pid, parent(pid)?))).collect()
}

/// Sends a signal to every process below this one.
pub fn signal_all(signal: Signal) {
    for pid in descendants() {
        let _ = kill_process(pid, signal);
    }
}

/// Kills everything below this process and waits until it is gone. Nobody else may wait for children meanwhile.
pub fn kill_all(limit: Duration) {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        signal_all(Signal::KILL);
        std::thread::sleep(LOOK);
    }
}
