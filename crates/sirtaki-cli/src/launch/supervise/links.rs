//! The launcher's connections to the agents of all hosts.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2},
    iterator::Signals,
};

use crate::{
    launch::{
        ended::Ended,
        protocol::{self, Event, GREETING, Order, SILENCE},
    },
    printer::Advice,
};

/// Lines of an agent's standard error that are kept to explain its end.
const KEPT: usize = 10;

/// What reaches the launcher.
#[derive(Debug)]
pub(super) enum Heard {
    /// An agent said something.
    Event { host: usize, event: Event },
    /// An agent, or what started it, printed a line that nobody expects.
    Message { host: usize, line: String },
    /// An agent is gone, and why.
    Gone { host: usize, how: String },
    /// Somebody sent the launcher a signal.
    Signal(i32),
}

struct Link {
    child: Arc<Mutex<Child>>,
    /// Closed when there is nothing more to say.
    input: Option<ChildStdin>,
    remote: bool,
    heard: Instant,
    gone: bool,
}

/// All agents.
pub(super) struct Links {
    links: Vec<Link>,
    sender: Sender<Heard>,
    inbox: Receiver<Heard>,
    greeted: Instant,
}

impl Links {
    /// Nobody yet; signals are heard from now on.
    pub(super) fn new() -> Result<Self> {
        let (sender, inbox) = channel();
        let mut signals =
            Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2]).context("cannot listen to signals")?;
        let to = sender.clone();
        thread::spawn(move || {
            for signal in signals.forever() {
                let _ = to.send(Heard::Signal(signal));
            }
        });
        Ok(Self { links: Vec::new(), sender, inbox, greeted: Instant::now() })
    }

    /// Starts the agent of the next host by this command.
    pub(super) fn start(&mut self, words: &[String], remote: bool) -> Result<()> {
        let (name, arguments) = words.split_first().context("there is no command for the agent")?;
        let mut command = Command::new(name);
        command.args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The terminal's signals are for the launcher, which passes them on.
        command.process_group(0);
        let mut child = command.spawn().map_err(|error| cannot_start(name, &error))?;
        let name = if remote { name.clone() } else { "the agent".into() };
        let (input, output, messages) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let host = self.links.len();
        let child = Arc::new(Mutex::new(child));
        self.links.push(Link { child: child.clone(), input, remote, heard: Instant::now(), gone: false });
        let last: Arc<Mutex<VecDeque<String>>> = Arc::default();
        let (to, kept) = (self.sender.clone(), last.clone());
        let said = thread::spawn(move || read_messages(host, messages, &kept, &to));
        let to = self.sender.clone();
        thread::spawn(move || {
            let mut problem = read_events(host, output, &to);
            let _ = said.join();
            problem.extend(last.lock().unwrap_or_else(PoisonError::into_inner).drain(..));
            let how = format!("{name} {}{}", ending(&child), with_reason(&problem));
            let _ = to.send(Heard::Gone { host, how });
        });
        if remote {
            // From the first greeting on, the agent expects more of them.
            self.order(host, &Order::Greeting);
        }
        Ok(())
    }

    /// Gives an order to one agent. One that is gone cannot hear; its absence is reported by itself.
    pub(super) fn order(&mut self, host: usize, order: &Order) {
        if let Some(input) = &mut self.links[host].input
            && protocol::write(input, order).is_err()
        {
            self.links[host].input = None;
        }
    }

    pub(super) fn order_all(&mut self, order: &Order) {
        (0..self.links.len()).for_each(|host| self.order(host, order));
    }

    /// Says that there will be no more orders.
    pub(super) fn dismiss(&mut self) {
        self.links.iter_mut().for_each(|link| link.input = None);
    }

    pub(super) fn all_gone(&self) -> bool {
        self.links.iter().all(|link| link.gone)
    }

    /// What is heard next, or nothing until `deadline`. Agents of other hosts are greeted meanwhile, and given up when
    /// they do not answer.
    pub(super) fn hear(&mut self, deadline: Instant) -> Option<Heard> {
        loop {
            self.greet();
            let left = deadline.saturating_duration_since(Instant::now());
            match self.inbox.recv_timeout(left.min(GREETING)) {
                Ok(heard) => {
                    match &heard {
                        Heard::Event { host, .. } => self.links[*host].heard = Instant::now(),
                        Heard::Gone { host, .. } => {
                            (self.links[*host].gone, self.links[*host].input) = (true, None);
                        }
                        _ => {}
                    }
                    if !matches!(heard, Heard::Event { event: Event::Greeting, .. }) {
                        return Some(heard);
                    }
                }
                Err(RecvTimeoutError::Timeout) if left > GREETING => {}
                Err(_) => return None,
            }
        }
    }

    fn greet(&mut self) {
        if self.greeted.elapsed() < GREETING {
            return;
        }
        self.greeted = Instant::now();
        for host in 0..self.links.len() {
            if self.links[host].remote && !self.links[host].gone {
                self.order(host, &Order::Greeting);
                if self.links[host].heard.elapsed() > SILENCE {
                    self.give_up(host);
                }
            }
        }
    }

    /// Ends what connects us to an agent. The agent notices and ends by itself.
    fn give_up(&mut self, host: usize) {
        let _ = self.links[host].child.lock().unwrap_or_else(PoisonError::into_inner).kill();
    }
}

/// Passes on what an agent says; at the end, what was in the way of understanding it.
fn read_events(host: usize, output: Option<impl Read>, to: &Sender<Heard>) -> Vec<String> {
    let Some(output) = output else { return Vec::new() };
    let mut output = BufReader::with_capacity(256 << 10, output);
    if let Err(noise) = protocol::find_mark(&mut output) {
        return noise.lines().map(str::to_owned).collect();
    }
    loop {
        match protocol::read(&mut output) {
            Ok(Some(event)) => drop(to.send(Heard::Event { host, event })),
            Ok(None) => return Vec::new(),
            Err(error) => return vec![error.to_string()],
        }
    }
}

fn read_messages(host: usize, messages: Option<impl Read>, kept: &Mutex<VecDeque<String>>, to: &Sender<Heard>) {
    let Some(messages) = messages else { return };
    let mut reader = BufReader::new(messages);
    let mut bytes = Vec::new();
    while matches!(reader.read_until(b'\n', &mut bytes), Ok(count) if count > 0) {
        let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
        bytes.clear();
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(line.clone());
        if kept.len() > KEPT {
            kept.pop_front();
        }
        drop(kept);
        let _ = to.send(Heard::Message { host, line });
    }
}

/// How a process whose output has ended ends itself. It may have closed its output and go on, so it is not waited for
/// without end.
fn ending(child: &Mutex<Child>) -> String {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let status = child.lock().unwrap_or_else(PoisonError::into_inner).try_wait();
        match status {
            Ok(Some(status)) => return Ended::from(status).to_string(),
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(2)),
            Ok(None) => return "closed its output".into(),
            Err(_) => return "ended".into(),
        }
    }
}

/// Why the command that starts an agent does not start itself.
fn cannot_start(name: &str, error: &std::io::Error) -> Advice {
    let hint = match name {
        "srun" => {
            "this is a Slurm job, but srun is not in PATH: load Slurm's module or extend PATH; --via local runs on \
                   this machine alone, and -H a:4,b:4 --via ssh on others"
        }
        "pbs_tmrsh" | "blaunch" => "extend PATH by the scheduler's programs, or use --via local or --via ssh",
        _ => "install it, or extend PATH; --via local runs on this machine alone",
    };
    Advice::new(format!("cannot start {name}: {error}"), hint)
}

fn with_reason(lines: &[String]) -> String {
    let lines: Vec<&str> = lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() { String::new() } else { format!(": {}", lines.join("; ")) }
}
