//! Runs of the launcher, and what they leave behind: nothing.
//!
//! Every run has a variable of its own in its environment, which all its processes inherit. So anything left of it is
//! found, wherever it went.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// How long anything may take on the slowest machine.
pub const PATIENCE: Duration = Duration::from_secs(300);

static RUNS: AtomicU32 = AtomicU32::new(0);

/// A run of the launcher in progress.
pub struct Launch {
    child: Child,
    mark: String,
    out: Arc<Mutex<Vec<String>>>,
    err: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
    /// Standard output that nobody reads.
    unread: Option<ChildStdout>,
}

/// A run that has ended.
#[derive(Debug)]
pub struct Finished {
    /// Its exit code; signals count from 128.
    pub code: i32,
    /// Lines of its standard output.
    pub out: Vec<String>,
    /// Lines of its standard error.
    pub err: Vec<String>,
}

impl Finished {
    /// Everything it said about the job.
    pub fn message(&self) -> String {
        self.err.join("\n")
    }
}

/// Whether this process's variables contain the mark.
fn is_marked(pid: &str, mark: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
}

/// Whether this is an agent, and not its watchdog or what started it.
pub fn is_agent(pid: Pid) -> bool {
    let text = |what: &str| fs::read_to_string(format!("/proc/{pid}/{what}")).unwrap_or_default();
    let program = text("cmdline").split('\0').next().unwrap_or_default().to_owned();
    program.ends_with("sirtaki-under-test") && text("comm").trim() != "sirtaki-watch"
}

/// The state of a process as the kernel shows it, such as `T` for one that is stopped.
pub fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// Bytes that a process has written.
pub fn written(pid: Pid) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let number = text.lines().find_map(|line| line.strip_prefix("wchar: ")?.parse().ok());
    number.unwrap_or(0)
}

/// Bytes of memory that a process uses.
pub fn memory(pid: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) << 10
}

impl Launch {
    /// Starts `command`, which is the launcher or something that becomes it.
    pub fn start(command: Command) -> Launch {
        let mut launch = Launch::start_unread(command);
        launch.readers.extend(launch.unread.take().map(|stdout| collect(stdout, &launch.out)));
        launch
    }

    /// The same, but nobody reads its standard output.
    pub fn start_unread(mut command: Command) -> Launch {
        let number = RUNS.fetch_add(1, Ordering::Relaxed);
        let value = format!("{}-{number}", std::process::id());
        command.env("TEST_RUN", &value).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the launcher starts");
        let (out, err) = (Arc::default(), Arc::default());
        let unread = child.stdout.take();
        let stderr = child.stderr.take().expect("standard error is piped");
        let readers = vec![collect(stderr, &err)];
        Launch { child, mark: format!("TEST_RUN={value}"), out, err, readers, unread }
    }

    /// Closes the reading end of the standard output of [`Launch::start_unread`].
    pub fn close_output(&mut self) {
        self.unread = None;
    }

    /// The launcher's process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends the launcher a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the launcher is there");
    }

    /// Whether the launcher has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours").is_some()
    }

    /// Waits until `count` lines of standard output contain `text`; returns them.
    pub fn prints(&self, text: &str, count: usize) -> Vec<String> {
        self.await_lines(&self.out, text, count)
    }

    /// Waits until a line of standard error contains `text`; returns it.
    pub fn says(&self, text: &str) -> String {
        self.await_lines(&self.err, text, 1).swap_remove(0)
    }

    /// Everything on standard error so far.
    pub fn said(&self) -> Vec<String> {
        lock(&self.err).clone()
    }

    fn await_lines(&self, stream: &Mutex<Vec<String>>, text: &str, count: usize) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let lines: Vec<String> = lock(stream).iter().filter(|line| line.contains(text)).cloned().collect();
            if lines.len() >= count {
                return lines;
            }
            let seen = (lock(&self.out).join("\n"), lock(&self.err).join("\n"));
            assert!(Instant::now() < deadline, "`{text}` did not come {count} times: {seen:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The processes of this run, the launcher included: their ids and their command lines.
    pub fn processes(&self) -> Vec<(Pid, String)> {
        let entries = fs::read_dir("/proc").expect("/proc is there").flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let marked = names.filter(|name| is_marked(name, &self.mark));
        marked
            .filter_map(|name| {
                let line = fs::read(format!("/proc/{name}/cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line).replace('\0', " ");
                Some((Pid::from_raw(name.parse().ok()?)?, line.trim().to_owned()))
            })
            .filter(|(_, line)| !line.is_empty())
            .collect()
    }

    /// The process of a rank, as seen from here.
    pub fn rank(&self, rank: usize) -> Pid {
        let variable = format!("SIRTAKI_RANK={rank}");
        let all = self.processes().into_iter();
        let rank = all.map(|(pid, _)| pid).find(|pid| is_marked(&pid.to_string(), &variable));
        rank.expect("the rank is running")
    }

    /// The agents' own processes, without their watchdogs and what connects us to them.
    pub fn agents(&self) -> Vec<Pid> {
        let all = self.processes().into_iter().filter(|(pid, line)| line.ends_with(" agent") && is_agent(*pid));
        all.map(|(pid, _)| pid).collect()
    }

    /// Waits until nothing of this run is left; if that takes too long, kills what is and reports it.
    pub fn vanishes(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            if Instant::now() > deadline {
                kill(&left);
                panic!("still running: {left:?}");
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the end of the launcher, by which time nothing else of the run may be left either.
    pub fn ends(self) -> Finished {
        self.finish(true)
    }

    /// Waits for the end of the launcher and then for the rest, on hosts that it could no longer reach.
    pub fn ends_eventually(self) -> Finished {
        self.finish(false)
    }

    fn finish(mut self, at_once: bool) -> Finished {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match self.child.try_wait().expect("a child of ours") {
                Some(status) => break status,
                None => assert!(Instant::now() < deadline, "the launcher does not end: {:?}", lock(&self.err)),
            }
            thread::sleep(Duration::from_millis(5));
        };
        if !at_once {
            self.vanishes();
        }
        let left = self.processes();
        assert!(left.is_empty(), "the launcher left something behind: {left:?}");
        self.readers.drain(..).for_each(|reader| reader.join().expect("a reader"));
        use std::os::unix::process::ExitStatusExt;
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        Finished { code, out: std::mem::take(&mut lock(&self.out)), err: std::mem::take(&mut lock(&self.err)) }
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        kill(&self.processes());
    }
}

fn kill(processes: &[(Pid, String)]) {
    for (pid, _) in processes {
        let _ = kill_process(*pid, Signal::KILL);
    }
}

fn lock(lines: &Mutex<Vec<String>>) -> std::sync::MutexGuard<'_, Vec<String>> {
    lines.lock().expect("nobody panics with it")
}

fn collect(stream: impl Read + Send + 'static, lines: &Arc<Mutex<Vec<String>>>) -> JoinHandle<()> {
    let lines = lines.clone();
    thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        while matches!(reader.read_until(b'\n', &mut line), Ok(count) if count > 0) {
            lock(&lines).push(String::from_utf8_lossy(&line).trim_end().to_owned());
            line.clear();
        }
    })
}
