//! Copies of this program on this machine that work for one command, such as a benchmark, and send it lines of text.
//!
//! Users' programs run under agents instead, which also end what those programs start. These copies start nothing, so
//! it is enough to tie them to this process: they end with it, however it ends, and dropping the job ends them all.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};

use super::{Advice, advice::Explain, child, cores};

type Result<T> = std::result::Result<T, Advice>;

/// How often to check whether a process has ended once its output has.
const LOOK: Duration = Duration::from_millis(5);

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
    /// It ended, and all its lines have been delivered.
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
}

struct Worker {
    child: Child,
    /// How many of its two outputs are still open.
    open: usize,
    ended: bool,
}

/// The processes of one job. Dropping it ends all of them.
pub struct LocalJob {
    workers: Vec<Worker>,
    lines: Receiver<(usize, Line)>,
    sender: Sender<(usize, Line)>,
}

impl LocalJob {
    /// Starts `size` processes; `command` says what rank `r` runs. Each keeps to its share of the processors, and their
    /// standard input is empty.
    ///
    /// Must be called on a thread that lives as long as the job: the kernel counts that thread as the parent.
    pub fn start(size: usize, command: impl Fn(usize) -> Command) -> Result<Self> {
        let (sender, lines) = channel();
        let mut job = Self { workers: Vec::new(), lines, sender };
        let usable = cores::usable();
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
        self.workers.push(Worker { child, open: 2, ended: false });
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
            if let Some(event) = self.look_for_end()? {
                return Ok(Some(event));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let closing = self.workers.iter().any(|worker| worker.open == 0 && !worker.ended);
            let nap = if closing { LOOK.min(left) } else { left };
            match self.lines.recv_timeout(nap) {
                Ok((rank, Line::Output(line))) => return Ok(Some(WorkerEvent::Output { rank, line })),
                Ok((rank, Line::Message(line))) => return Ok(Some(WorkerEvent::Message { rank, line })),
                Ok((rank, Line::Closed)) => self.workers[rank].open -= 1,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) if left.is_zero() => return Ok(None),
                Err(_) => {}
            }
        }
    }

    fn look_for_end(&mut self) -> Result<Option<WorkerEvent>> {
        for (rank, worker) in self.workers.iter_mut().enumerate() {
            if worker.open == 0
                && !worker.ended
                && let Some(status) = worker.child.try_wait()?
            {
                worker.ended = true;
                return Ok(Some(WorkerEvent::Ended { rank, status }));
            }
        }
        Ok(None)
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
    std::thread::spawn(move || {
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
        let mut job = LocalJob::start(2, |rank| shell(&format!("echo a{rank}; echo b >&2; exit {rank}"))).unwrap();
        let expected =
            ["0 ended with exit code 0", "0 err b", "0 out a0", "1 ended with exit code 1", "1 err b", "1 out a1"];
        assert_eq!(drain(&mut job), expected);
    }

    #[test]
    fn a_killed_rank_is_told_from_a_failed_one() {
        let mut job = LocalJob::start(1, |_| shell("kill -9 $$")).unwrap();
        assert_eq!(drain(&mut job), ["0 was killed by SIGKILL"]);
    }

    #[test]
    fn dropping_the_job_leaves_nobody_behind() {
        // The grandchild would outlive a plain kill of the shell.
        let mut job = LocalJob::start(2, |_| shell("sleep 1000 & echo $!; wait")).unwrap();
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
            std::thread::sleep(LOOK);
        }
    }

    /// Whether a process exists and is not merely waiting to be collected.
    fn runs(pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
    }
}
