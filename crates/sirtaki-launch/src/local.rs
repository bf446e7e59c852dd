//! Copies of this program on this machine that work for it, such as a benchmark's, and send it lines of text.
//!
//! Users' programs run under agents instead, which also end what those programs start. These copies start nothing, so
//! it is enough to tie them to this process: they end with it, however it ends, and dropping the job ends them all.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open},
};

use super::{Advice, advice::Explain, child, cores};

type Result<T> = std::result::Result<T, Advice>;

/// How long the last lines of a process may take after its end. Something else may have its output open, and keep it.
const LATE: Duration = Duration::from_millis(500);

/// Something that happened to a process of the job.
#[derive(Debug)]
pub enum WorkerEvent {
    /// It wrote a line to standard output.
    Output {
        /// Which process.
        rank: usize,
        /// The line without its end.
        line: String,
    },
    /// It wrote a line to standard error.
    Message {
        /// Which process.
        rank: usize,
        /// The line without its end.
        line: String,
    },
    /// It ended, and its lines have been delivered.
    Ended {
        /// Which process.
        rank: usize,
        /// How.
        status: ExitStatus,
    },
}

enum Line {
    Output(String),
    Message(String),
    Closed,
    Exited,
}

#[derive(Debug)]
struct Worker {
    child: Child,
    /// How many of its two outputs are still open.
    open: usize,
    /// When it ended, if that is known and has not been told yet.
    exited: Option<Instant>,
    ended: bool,
}

impl Worker {
    /// When its end can be told, if it has ended.
    fn due(&self) -> Option<Instant> {
        self.exited.map(|exited| if self.open == 0 { exited } else { exited + LATE })
    }
}

/// The processes of one job. Dropping it ends all of them.
#[derive(Debug)]
pub struct LocalJob {
    workers: Vec<Worker>,
    lines: Receiver<(usize, Line)>,
    sender: Sender<(usize, Line)>,
}

impl LocalJob {
    /// Starts `size` processes; `command` says what rank `r` runs. Their standard input is empty, and if they divide the
    /// cores, each keeps to its share of them.
    ///
    /// Must be called on a thread that lives as long as the job: the kernel counts that thread as the parent.
    pub fn start(size: usize, divide_cores: bool, command: impl Fn(usize) -> Command) -> Result<Self> {
        let (sender, lines) = channel();
        let mut job = Self { workers: Vec::new(), lines, sender };
        let usable = if divide_cores { cores::usable() } else { Vec::new() };
        for rank in 0..size {
            let share = cores::share(&usable, rank, size);
            job.spawn(rank, command(rank), &share).explain(format!("cannot start rank {rank}"))?;
        }
        Ok(job)
    }

    fn spawn(&mut self, rank: usize, mut command: Command, cores: &[usize]) -> Result<()> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        child::tie(&mut command, cores);
        let mut child = command.spawn()?;
        let (output, messages) = (child.stdout.take(), child.stderr.take());
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        self.workers.push(Worker { child, open: 2, exited: None, ended: false });
        let (process, to) = (process?, self.sender.clone());
        thread::spawn(move || {
            // Interrupted waits are repeated.
            while poll(&mut [PollFd::new(&process, PollFlags::IN)], None).is_err() {}
            let _ = to.send((rank, Line::Exited));
        });
        forward(rank, output, Line::Output, self.sender.clone());
        forward(rank, messages, Line::Message, self.sender.clone());
        Ok(())
    }

    /// Process id of a rank.
    pub fn pid(&self, rank: usize) -> u32 {
        self.workers[rank].child.id()
    }

    /// Whether every process has ended.
    pub fn is_over(&self) -> bool {
        self.workers.iter().all(|worker| worker.ended)
    }

    /// What happens next, or `None` when nothing does for `limit`.
    pub fn next(&mut self, limit: Duration) -> Result<Option<WorkerEvent>> {
        let deadline = Instant::now() + limit;
        loop {
            let now = Instant::now();
            let due = |worker: &Worker| worker.due().filter(|_| !worker.ended);
            if let Some(rank) = self.workers.iter().position(|worker| due(worker).is_some_and(|due| due <= now)) {
                let worker = &mut self.workers[rank];
                worker.ended = true;
                return Ok(Some(WorkerEvent::Ended { rank, status: worker.child.wait()? }));
            }
            let next = self.workers.iter().filter_map(due).fold(deadline, Instant::min);
            match self.lines.recv_timeout(next.saturating_duration_since(now)) {
                Ok((rank, Line::Output(line))) => return Ok(Some(WorkerEvent::Output { rank, line })),
                Ok((rank, Line::Message(line))) => return Ok(Some(WorkerEvent::Message { rank, line })),
                Ok((rank, Line::Closed)) => self.workers[rank].open -= 1,
                Ok((rank, Line::Exited)) => self.workers[rank].exited = Some(Instant::now()),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) if now >= deadline => return Ok(None),
                Err(_) => {}
            }
        }
    }

    /// Kills everything that is still running and waits until it is gone.
    pub fn end(&mut self) {
        for worker in self.workers.iter_mut().filter(|worker| !worker.ended) {
            // A child that has not been waited for keeps its id, so this cannot hit another process.
            if let Some(group) = Pid::from_raw(worker.child.id() as i32) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = worker.child.kill();
        }
        for worker in &mut self.workers {
            let _ = worker.child.wait();
            worker.ended = true;
        }
    }
}

impl Drop for LocalJob {
    fn drop(&mut self) {
        self.end();
    }
}

/// Passes on every line of `stream`; invalid text is shown as well as possible.
fn forward(
    rank: usize,
    stream: Option<impl Read + Send + 'static>,
    line: fn(String) -> Line,
    to: Sender<(usize, Line)>,
) {
    let Some(stream) = stream else { return };
    thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut bytes = Vec::new();
        while matches!(reader.read_until(b'\n', &mut bytes), Ok(count) if count > 0) {
            let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            bytes.clear();
            if to.send((rank, line(text))).is_err() {
                return;
            }
        }
        let _ = to.send((rank, Line::Closed));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ended::Ended;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn drain(job: &mut LocalJob) -> Vec<String> {
        let mut seen = Vec::new();
        while !job.is_over() {
            let event = job.next(Duration::from_secs(30)).unwrap().expect("the job goes on");
            seen.push(match event {
                WorkerEvent::Output { rank, line } => format!("{rank} out {line}"),
                WorkerEvent::Message { rank, line } => format!("{rank} err {line}"),
                WorkerEvent::Ended { rank, status } => format!("{rank} {}", Ended::from(status)),
            });
        }
        seen.sort();
        seen
    }

    #[test]
    fn lines_and_ends_of_all_ranks_arrive() {
        let mut job =
            LocalJob::start(2, true, |rank| shell(&format!("echo a{rank}; echo b >&2; exit {rank}"))).unwrap();
        let expected =
            ["0 ended with exit code 0", "0 err b", "0 out a0", "1 ended with exit code 1", "1 err b", "1 out a1"];
        assert_eq!(drain(&mut job), expected);
    }

    #[test]
    fn a_killed_rank_is_told_from_a_failed_one() {
        let mut job = LocalJob::start(1, true, |_| shell("kill -9 $$")).unwrap();
        assert_eq!(drain(&mut job), ["0 was killed by SIGKILL"]);
    }

    #[test]
    fn an_end_is_told_although_somebody_else_keeps_the_output() {
        let mut job = LocalJob::start(1, false, |_| shell("sleep 1000 & echo $!")).unwrap();
        let seen = drain(&mut job);
        assert_eq!(seen[0], "0 ended with exit code 0");
        let sleeper: i32 = seen[1].strip_prefix("0 out ").unwrap().parse().unwrap();
        rustix::process::kill_process(Pid::from_raw(sleeper).unwrap(), Signal::KILL).unwrap();
    }

    #[test]
    fn dropping_the_job_leaves_nobody_behind() {
        // The grandchild would outlive a plain kill of the shell.
        let mut job = LocalJob::start(2, true, |_| shell("sleep 1000 & echo $!; wait")).unwrap();
        let mut pids: Vec<u32> = (0..2).map(|rank| job.pid(rank)).collect();
        while pids.len() < 4 {
            if let Some(WorkerEvent::Output { line, .. }) = job.next(Duration::from_secs(30)).unwrap() {
                pids.push(line.parse().unwrap());
            }
        }
        drop(job);
        let deadline = Instant::now() + Duration::from_secs(30);
        while pids.iter().any(|&pid| runs(pid)) {
            assert!(Instant::now() < deadline, "still running: {pids:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether a process exists and is not merely waiting to be collected.
    fn runs(pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
    }
}
