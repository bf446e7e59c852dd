//! What another process of this host is doing, from what the kernel shows.

use std::{fs, thread, time::Duration};

/// Looks at a process before it counts as computing: a thread that wakes up for a moment does not make it busy.
const LOOKS: usize = 5;
const PAUSE: Duration = Duration::from_millis(2);

/// What process `pid` is doing, in words.
pub(crate) fn state(pid: u32) -> String {
    let mut running = 0;
    let mut states = Vec::new();
    for _ in 0..LOOKS {
        states = threads(pid);
        running += usize::from(states.contains(&'R'));
        thread::sleep(PAUSE);
    }
    let any = |letters: &[char]| states.iter().any(|state| letters.contains(state));
    let wait = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    match () {
        () if states.iter().all(|state| matches!(state, 'Z' | 'X')) => "dead".into(),
        () if any(&['T', 't']) => "stopped".into(),
        () if running > LOOKS / 2 => "alive and computing".into(),
        () if any(&['D']) => "alive and waiting for a device".into(),
        () if wait.is_empty() || wait == "0" => "alive and sleeping".into(),
        () => format!("alive and sleeping in the kernel ({wait})"),
    }
}

/// The states of a process's threads except the calling one; none when the process is gone.
fn threads(pid: u32) -> Vec<char> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mine = rustix::thread::gettid().as_raw_nonzero().to_string();
    let others = tasks.filter_map(Result::ok).filter(|task| task.file_name().to_str() != Some(&mine));
    let stats = others.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    stats.filter_map(|stat| state_letter(&stat)).collect()
}

/// The third field of a `stat` line, which follows the name in parentheses.
fn state_letter(stat: &str) -> Option<char> {
    stat.rsplit(')').next()?.trim_start().chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read() {
        assert_eq!(state_letter("12 (a name) with) S 1 2"), Some('S'));
        assert_eq!(threads(std::process::id()).len() + 1, fs::read_dir("/proc/self/task").unwrap().count());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let eventually = |wanted: &str| {
            let found = (0..500).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                state(child.id()).contains(wanted)
            });
            assert!(found, "never {wanted}: {}", state(child.id()));
        };
        eventually("sleeping");
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::STOP).unwrap();
        eventually("stopped");
        let pid = child.id();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(state(pid), "dead");
    }
}
