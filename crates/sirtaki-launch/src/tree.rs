//! Everything that a process has started, directly or not, and ending it.
//!
//! Launcher and agents adopt what their children leave behind (the kernel calls them subreapers), so whatever a job
//! started is found below them, including processes that detached themselves from their parent, process group or
//! session. Processes that have lost all of them are found by a variable that they inherited.
//!
//! Process ids are reused. So a process is first opened by a descriptor, then checked once more, and signalled through
//! the descriptor.

use std::{
    collections::HashMap,
    fs, io,
    time::{Duration, Instant},
};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, pidfd_open, pidfd_send_signal, set_child_subreaper, wait,
};

/// How often to check for processes that have not ended.
pub const LOOK: Duration = Duration::from_millis(20);

/// From now on orphans below this process become its children.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Every process below this one.
pub fn descendants() -> Vec<Pid> {
    with_parents().into_iter().map(|(pid, _)| pid).collect()
}

/// Every process below this one, and its parent.
fn with_parents() -> Vec<(Pid, i32)> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for pid in processes() {
        if let Some(parent) = parent(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut open = vec![getpid().as_raw_nonzero().get()];
    while let Some(parent) = open.pop() {
        let below = children.remove(&parent).unwrap_or_default();
        found.extend(below.iter().filter_map(|&pid| Some((Pid::from_raw(pid)?, parent))));
        open.extend(below);
    }
    found
}

/// Every process.
fn processes() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The fields of a process's `stat` line that follow its name: its state, its parent and so on.
fn stat(pid: i32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything.
    Some(text.rsplit(')').next()?.split_whitespace().map(str::to_owned).collect())
}

fn parent(pid: i32) -> Option<i32> {
    stat(pid)?.get(1)?.parse().ok()
}

/// Whether this process was stopped by a signal and not by a debugger.
pub fn is_stopped(pid: Pid) -> bool {
    stat(pid.as_raw_nonzero().get()).is_some_and(|fields| fields.first().is_some_and(|state| state == "T"))
}

/// Sends a signal to a process if it is still what `same` expects.
fn signal(pid: Pid, signal: Signal, same: impl Fn() -> bool) {
    if let Ok(held) = pidfd_open(pid, PidfdFlags::empty())
        && same()
    {
        let _ = pidfd_send_signal(held, signal);
    }
}

/// Sends a signal to every process below this one, except for `spared`.
pub fn signal_all(number: Signal, spared: Option<Pid>) {
    for (pid, above) in with_parents().into_iter().filter(|(pid, _)| Some(*pid) != spared) {
        // An orphan has moved to another parent below this process; it is found the next time.
        signal(pid, number, || parent(pid.as_raw_nonzero().get()) == Some(above));
    }
}

/// Kills everything below this process and waits until it is gone. No other thread may wait for children meanwhile.
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
        signal_all(Signal::KILL, None);
        std::thread::sleep(LOOK);
    }
}

/// Kills every process of this user that has `variable` (`NAME=value`) in its environment, until there is none.
pub fn kill_marked(variable: &str, limit: Duration) {
    let deadline = Instant::now() + limit;
    let is_marked = |pid: i32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|entry| entry == variable.as_bytes())
    };
    let own = getpid().as_raw_nonzero().get();
    // What is started during a search is found by the next one.
    let mut empty_looks = 0;
    while empty_looks < 2 && Instant::now() < deadline {
        let found: Vec<i32> = processes().into_iter().filter(|&pid| pid != own && is_marked(pid)).collect();
        empty_looks = if found.is_empty() { empty_looks + 1 } else { 0 };
        for pid in found {
            if let Some(process) = Pid::from_raw(pid) {
                signal(process, Signal::KILL, || is_marked(pid));
            }
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn marked_processes_are_killed_wherever_they_are() {
        let value = format!("tree-test-{}", std::process::id());
        let start = |value: &str| Command::new("sleep").arg("1000").env("TREE_TEST", value).spawn().unwrap();
        let (mut marked, mut other) = (start(&value), start("other"));
        kill_marked(&format!("TREE_TEST={value}"), Duration::from_secs(60));
        assert!(!marked.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none(), "it has another mark");
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn a_stopped_process_is_told_from_a_running_one() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_child(&child);
        assert!(!is_stopped(pid));
        rustix::process::kill_process(pid, Signal::STOP).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_stopped(pid) {
            assert!(Instant::now() < deadline, "it never stopped");
            std::thread::sleep(LOOK);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
