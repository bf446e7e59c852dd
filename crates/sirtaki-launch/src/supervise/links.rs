//! The launcher's connections to the agents of all hosts.
//!
//! Nothing here waits for an agent: threads read events and write orders. Every agent, including the one on this
//! machine, is greeted and has to answer; one that does not is ended, because a process may also have been stopped.

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

use rustix::process::{Pid, Signal, kill_process_group};

use crate::{
    Advice, Controller,
    advice::Explain,
    child::OpenFiles,
    ended::Ended,
    hosts::HostSlots,
    protocol::{self, Event, GREETING, Order, SILENCE},
    tree,
};

/// Lines of an agent's standard error that are kept to explain its end.
const KEPT: usize = 10;

/// What reaches the launcher.
#[derive(Debug)]
pub(crate) enum Heard {
    /// An agent sent an event.
    Event { host: usize, event: Event },
    /// An agent, or what started it, printed an unexpected line.
    Message { host: usize, line: String },
    /// An agent is gone, and why.
    Gone { host: usize, how: String },
    /// The hosts that were discovered are others than before, or cannot be found out.
    Hosts(Result<Vec<HostSlots>, Advice>),
    /// Somebody wants the job to get a signal.
    Signal(i32),
    /// Output was written, or cannot be written any more.
    Written,
}

#[derive(Debug)]
struct Link {
    name: String,
    child: Arc<Mutex<Child>>,
    /// Orders for the agent; closed when there are no more.
    orders: Option<Sender<Order>>,
    remote: bool,
    heard: Instant,
    /// Why it was given up on.
    given_up: Option<String>,
    gone: bool,
}

/// All agents.
#[derive(Debug)]
pub(super) struct Links {
    links: Vec<Link>,
    sender: Sender<Heard>,
    inbox: Receiver<Heard>,
    greeted: Instant,
    controller: Controller,
    files: OpenFiles,
    /// An agent was gone before it was dismissed.
    lost: bool,
}

impl Links {
    /// No agents yet.
    pub(super) fn new() -> Self {
        let (sender, inbox) = channel();
        let controller = Controller::new(sender.clone());
        // Every agent takes three pipes.
        let files = OpenFiles::raise();
        Self { links: Vec::new(), sender, inbox, greeted: Instant::now(), controller, files, lost: false }
    }

    /// What others may do to the job.
    pub(super) fn controller(&self) -> &Controller {
        &self.controller
    }

    /// Starts the agent of the next host by this command.
    pub(super) fn start(&mut self, name: &str, words: &[String], remote: bool) -> Result<(), Advice> {
        let (program, arguments) = words.split_first().explain("there is no command for the agent")?;
        let mut command = Command::new(program);
        command.args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The terminal's signals are for the launcher, which passes them on.
        command.process_group(0);
        self.files.restore_in(&mut command);
        let mut child = command.spawn().map_err(|error| cannot_start(program, &error))?;
        let who = if remote { program.clone() } else { "the agent".into() };
        let (input, output, messages) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let host = self.links.len();
        let child = Arc::new(Mutex::new(child));
        let orders = input.map(write_orders);
        let (name, heard) = (name.to_owned(), Instant::now());
        self.links.push(Link { name, child: child.clone(), orders, remote, heard, given_up: None, gone: false });
        let last: Arc<Mutex<VecDeque<String>>> = Arc::default();
        let (to, kept) = (self.sender.clone(), last.clone());
        let said = thread::spawn(move || read_messages(host, messages, &kept, &to));
        let to = self.sender.clone();
        thread::spawn(move || {
            let mut problem = read_events(host, output, &to);
            let _ = said.join();
            problem.extend(last.lock().unwrap_or_else(PoisonError::into_inner).drain(..));
            let how = format!("{who} {}{}", ending(&child), with_reason(&problem));
            let _ = to.send(Heard::Gone { host, how });
        });
        self.note_hosts();
        // From the first regular greeting on, the agent expects more of them. On this machine it needs none: there the
        // end of its input tells everything, and a launcher that is stopped may go on.
        self.order(host, Order::Greeting { regular: remote });
        Ok(())
    }

    /// Who gets what is said to the launcher.
    pub(super) fn sender(&self) -> Sender<Heard> {
        self.sender.clone()
    }

    /// Gives an order to one agent. One that is gone gets nothing; that it is gone is reported separately.
    pub(super) fn order(&mut self, host: usize, order: Order) {
        if let Some(orders) = &self.links[host].orders {
            let _ = orders.send(order);
        }
    }

    pub(super) fn order_all(&mut self, order: &Order) {
        (0..self.links.len()).for_each(|host| self.order(host, order.clone()));
    }

    /// Tells agents that there will be no more orders.
    pub(super) fn dismiss(&mut self) {
        self.links.iter_mut().for_each(|link| link.orders = None);
    }

    pub(super) fn all_gone(&self) -> bool {
        self.links.iter().all(|link| link.gone)
    }

    /// Whether all agents are gone, none of them before it was dismissed.
    pub(super) fn ended_in_order(&self) -> bool {
        self.all_gone() && !self.lost
    }

    pub(super) fn is_gone(&self, host: usize) -> bool {
        self.links[host].gone
    }

    /// What arrives next, or `None` at `deadline`. Agents are greeted meanwhile, and given up on if they do not answer.
    pub(super) fn hear(&mut self, deadline: Instant) -> Option<Heard> {
        loop {
            self.greet();
            let left = deadline.saturating_duration_since(Instant::now());
            match self.inbox.recv_timeout(left.min(GREETING)) {
                Ok(mut heard) => {
                    self.take_note(&mut heard);
                    if !matches!(heard, Heard::Event { event: Event::Greeting, .. }) {
                        return Some(heard);
                    }
                }
                Err(RecvTimeoutError::Timeout) if left > GREETING => {}
                Err(_) => return None,
            }
        }
    }

    fn take_note(&mut self, heard: &mut Heard) {
        match heard {
            Heard::Event { host, .. } => self.links[*host].heard = Instant::now(),
            Heard::Gone { host, how } => {
                let link = &mut self.links[*host];
                self.lost |= link.orders.is_some();
                (link.gone, link.orders) = (true, None);
                if let Some(why) = link.given_up.take() {
                    *how = why;
                }
                self.note_hosts();
            }
            _ => {}
        }
    }

    fn note_hosts(&self) {
        let there = self.links.iter().filter(|link| link.remote && !link.gone);
        self.controller.set_hosts(there.map(|link| link.name.clone()).collect());
    }

    fn greet(&mut self) {
        let pause = self.greeted.elapsed();
        if pause < GREETING {
            return;
        }
        self.greeted = Instant::now();
        if pause > SILENCE / 2 {
            self.forgive();
        }
        for host in 0..self.links.len() {
            if !self.links[host].gone {
                let regular = self.links[host].remote;
                self.order(host, Order::Greeting { regular });
                if self.links[host].heard.elapsed() > SILENCE {
                    self.give_up(host);
                }
            }
        }
    }

    /// Silent agents may have been silent because the launcher was stopped.
    pub(super) fn forgive(&mut self) {
        let now = Instant::now();
        self.links.iter_mut().for_each(|link| link.heard = now);
    }

    /// Gives up on every agent that is still there.
    pub(super) fn give_up_all(&mut self) {
        (0..self.links.len()).filter(|&host| !self.links[host].gone).collect::<Vec<_>>().into_iter().for_each(|host| {
            self.give_up(host);
        });
    }

    /// Ends the connection to an agent: on this machine the agent itself, elsewhere the program that leads to it. An
    /// agent that loses its launcher ends by itself, and one that is stopped has a watchdog.
    fn give_up(&mut self, host: usize) {
        let link = &mut self.links[host];
        let mut child = link.child.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = Pid::from_child(&child);
        let silent = format!("its agent did not answer for {} s", SILENCE.as_secs());
        let why = match (link.remote, tree::is_stopped(pid)) {
            (false, true) => format!("{silent}: process {pid} was stopped"),
            (false, false) => silent,
            (true, _) => format!("{silent}: the host is down, the network is cut, or the agent was stopped"),
        };
        link.given_up.get_or_insert(why);
        if matches!(child.try_wait(), Ok(None)) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

/// Writes orders in a separate thread: an agent that is stopped does not read them.
fn write_orders(mut to: ChildStdin) -> Sender<Order> {
    let (sender, orders) = channel();
    thread::spawn(move || {
        for order in orders {
            if protocol::write(&mut to, &order).is_err() {
                return;
            }
        }
    });
    sender
}

/// Passes on an agent's events; returns why they could not be read, if so.
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

/// How a process whose output has ended ends itself. It may have closed its output and go on, so the wait is limited.
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

/// Why the command that starts an agent could not be started.
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
