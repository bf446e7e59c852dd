//! A command from its start to its end: how long it takes, when its processes get to work, what it leaves behind.
//!
//! What a command prints goes to files and not through pipes: nothing has to read it meanwhile, and a process that is
//! left behind and keeps its output open does not delay the end.

use std::{
    fs::File,
    io::{Read, Seek},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, WaitOptions, pidfd_open, wait},
    time::{ClockId, clock_gettime},
};
use sirtaki_launch::tree;

use crate::BenchError;

/// What precedes the time in the line of a process that got to work.
const STAMP: &str = "done at ";
/// How long killing what is left behind may take.
const CLEANING: Duration = Duration::from_secs(5);

/// What was observed of a command.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// Microseconds until the last process had got to work, if they report it.
    pub first: Option<f64>,
    /// Microseconds until the command had ended.
    pub whole: f64,
    /// How many processes were still there then.
    pub left: usize,
}

/// Nanoseconds of the clock that all processes of this machine share.
fn now() -> i128 {
    let time = clock_gettime(ClockId::Monotonic);
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

/// What a process prints as soon as it has got to work.
pub fn stamp() -> String {
    format!("{STAMP}{}", now())
}

/// The latest time in what processes printed, whatever precedes it.
fn latest(text: &str) -> Option<i128> {
    text.lines().filter_map(|line| line.rsplit_once(STAMP)?.1.trim().parse().ok()).max()
}

/// Starts these commands together and waits for all of them; `None` for commands that take longer than `limit`, which
/// are killed. This process has to adopt orphans.
pub fn watch(commands: &mut [Command], limit: Duration) -> Result<Option<Seen>, BenchError> {
    let file = || tempfile::tempfile().map_err(BenchError::io("cannot make a file for what a command prints"));
    let copy = |file: &File| file.try_clone().map_err(BenchError::io("cannot share a file"));
    let (mut out, mut err) = (file()?, file()?);
    for command in &mut *commands {
        command.stdin(Stdio::null()).stdout(copy(&out)?).stderr(copy(&err)?);
    }
    let mut children: Vec<(Child, String)> = Vec::new();
    let (start, deadline) = (now(), Instant::now() + limit);
    for command in &mut *commands {
        let name = command.get_program().display().to_string();
        let child = command.spawn().map_err(BenchError::io(format!("cannot start {name}")))?;
        children.push((child, name));
    }
    for (child, name) in &mut children {
        if !ends(child, deadline)? {
            clean();
            return Ok(None);
        }
        let status = child.wait().map_err(BenchError::io(format!("cannot wait for {name}")))?;
        if !status.success() {
            clean();
            return Err(BenchError::Protocol(format!("{name}: {status}\n{}", text(&mut err)?)));
        }
    }
    let micros = |time: i128| (time - start) as f64 / 1e3;
    let whole = micros(now());
    Ok(Some(Seen { first: latest(&text(&mut out)?).map(micros), whole, left: clean() }))
}

/// Waits without polling, which would cost precision or time.
fn ends(child: &Child, deadline: Instant) -> Result<bool, BenchError> {
    let failed = |error: rustix::io::Errno| BenchError::io("cannot wait for a process")(error.into());
    let Some(pid) = Pid::from_raw(child.id() as i32) else { return Ok(true) };
    let process = pidfd_open(pid, PidfdFlags::empty()).map_err(failed)?;
    let left = deadline.saturating_duration_since(Instant::now());
    let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    Ok(poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)).map_err(failed)? > 0)
}

fn text(file: &mut File) -> Result<String, BenchError> {
    let mut bytes = Vec::new();
    let read = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
    read.map_err(BenchError::io("cannot read what a command printed"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Ends the processes that a command has left behind; returns how many there were.
pub fn clean() -> usize {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    let left = tree::descendants().len();
    if left > 0 {
        tree::kill_all(CLEANING);
    }
    left
}

/// Processor time of a process, all its threads together, so far.
pub fn processor_time(process: u32) -> Result<Duration, BenchError> {
    thread_time(process, &|_| true)
}

/// Processor time of those of its threads whose names are `wanted`.
pub fn thread_time(process: u32, wanted: &dyn Fn(&str) -> bool) -> Result<Duration, BenchError> {
    let folder = format!("/proc/{process}/task");
    let failed = || BenchError::io(format!("cannot read {folder}"));
    let mut nanos = 0;
    for task in std::fs::read_dir(&folder).map_err(failed())? {
        let folder = task.map_err(failed())?.path();
        // A thread that has just ended has no files any more.
        let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap_or_default();
        if !wanted(read("comm").trim()) {
            continue;
        }
        let text = read("schedstat");
        nanos += text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_process_counts_whatever_stands_before_its_time() {
        assert_eq!(latest("[0] done at 5\nnoise\n[1] done at 7\ndone at x\n"), Some(7));
        assert_eq!(latest("nothing\n"), None);
        assert!(latest(&stamp()).is_some_and(|time| time <= now()));
    }

    #[test]
    fn the_end_is_awaited_but_not_for_ever() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(!ends(&child, Instant::now()).unwrap());
        child.kill().unwrap();
        assert!(ends(&child, Instant::now() + CLEANING).unwrap());
        child.wait().unwrap();
    }
}
