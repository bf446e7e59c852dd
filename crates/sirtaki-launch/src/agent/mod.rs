//! The agent: one process per host that starts the host's ranks and makes sure that all of them end.
//!
//! It listens to its standard input and speaks on its standard output, so it works the same as a plain child, through
//! ssh and through srun. When its input ends, the launcher is gone, for whatever reason, and the job ends. A
//! watchdog takes over when the agent itself is killed or stopped.

mod children;
mod doing;
mod event_sender;
mod meeting;
mod memory_kills;
mod pmi;
mod ranks;
mod relays;
mod watchdog;

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, WaitOptions, WaitStatus, wait},
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2},
    iterator::Signals,
};

pub use self::relays::relay;
use self::{event_sender::EventSender, meeting::StoreHost, ranks::Ranks, relays::Relay, watchdog::Watchdog};
use super::{
    child::OpenFiles,
    cores, gpus,
    protocol::{self, Checked, Event, Hello, HostStart, Order, SILENCE, VERSION},
    tree,
};
use crate::{Advice, advice::Explain};

type Result<T> = std::result::Result<T, Advice>;

/// How long what ranks leave behind may take to end by itself.
const LEFTOVERS: Duration = Duration::from_secs(2);
/// How long the agent's last events may take.
const FLUSH: Duration = Duration::from_secs(1);
/// Beyond the grace time, how long an agent without a launcher may take before it exits at once.
const LAST_RESORT: Duration = Duration::from_secs(10);

/// What reaches the agent.
enum Happening {
    Order(Order),
    /// The launcher is gone, or has nothing more to say.
    NoLauncher,
    Exited(Pid, WaitStatus),
    /// No process is left below this one.
    Nobody,
    /// A stream of the process with this number, counted from the agent's start, has ended.
    StreamEnded(u64),
    /// A rank asks to be ended, with this code.
    Aborted(usize, i32),
    /// Whether the job can run here, with sockets that keep ports free.
    Checked(Result<(Checked, Vec<OwnedFd>)>),
    /// Open MPI's launcher has handed over all ranks of this host, or not.
    Connected(Result<Vec<Relay>>),
    Signal(i32),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Works for a launcher until it has nothing more to say. `itself` is the path of the program that this is.
pub fn work(itself: &Path) -> Result<()> {
    // Before anything else starts a thread.
    let watchdog = Watchdog::start().explain("cannot start the agent's watchdog")?;
    let files = OpenFiles::raise();
    tree::adopt_orphans().explain("cannot adopt orphans")?;
    let (sender, happenings) = channel();
    let events = EventSender::open(std::io::stdout())?;
    listen_to_signals(sender.clone())?;
    events.send(Event::Hello(hello()));
    let grace = Arc::new(Mutex::new(Duration::ZERO));
    let (orders, limit) = (sender.clone(), grace.clone());
    thread::spawn(move || listen_to_launcher(&orders, &limit));
    let (meeting, _kept, ranks, connecting, end) = (None, Vec::new(), Ranks::default(), None, End::NotYet);
    let itself = itself.to_owned();
    let mut agent = Agent { itself, events, sender, meeting, _kept, ranks, connecting, watchdog, files, grace, end };
    agent.run(&happenings);
    agent.events.flush(FLUSH);
    Ok(())
}

fn hello() -> Hello {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    Hello { version: VERSION.into(), host, cores: cores::usable(), gpus: gpus::usable(visible.as_deref()) }
}

fn listen_to_signals(sender: Sender<Happening>) -> Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2]).explain("cannot listen to signals")?;
    thread::spawn(move || {
        for signal in signals.forever() {
            let _ = sender.send(Happening::Signal(signal));
        }
    });
    Ok(())
}

/// Passes orders on. Exits at once if the agent does not manage to end in good order, for instance because it waits for
/// a launcher that does not read its events.
fn listen_to_launcher(sender: &Sender<Happening>, grace: &Mutex<Duration>) {
    let mut input = std::io::stdin();
    // Whether the launcher should have sent something by now.
    let mut regular = false;
    while !regular || has_input(SILENCE) {
        match protocol::read(&mut input) {
            Ok(Some(order)) => {
                match order {
                    Order::Greeting { regular: says } => regular = says,
                    Order::Pause => regular = false,
                    _ => {}
                }
                let _ = sender.send(Happening::Order(order));
            }
            _ => break,
        }
    }
    let _ = sender.send(Happening::NoLauncher);
    let grace = *lock(grace);
    thread::sleep(grace + LEFTOVERS + LAST_RESORT);
    tree::signal_all(Signal::KILL, None);
    std::process::exit(1);
}

fn has_input(limit: Duration) -> bool {
    let stdin = std::io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: 0 };
    // An interrupted wait is followed by another one.
    poll(&mut fds, Some(&limit)).map_or(true, |ready| ready > 0)
}

/// How far the end has come.
#[derive(Clone, Copy)]
enum End {
    NotYet,
    /// What is left is asked to end, and killed at this time.
    Asked(Instant),
    /// All ranks have ended; what they left is asked to end at this time.
    Leftovers(Instant),
    Killing,
}

struct Agent {
    /// The path of `sirtaki` on this host.
    itself: PathBuf,
    events: EventSender,
    sender: Sender<Happening>,
    meeting: Option<StoreHost>,
    /// They keep the ports free that ranks were told.
    _kept: Vec<OwnedFd>,
    ranks: Ranks,
    /// What starts as soon as Open MPI has handed over its ranks, and the process of its launcher, if that is here.
    connecting: Option<(Box<HostStart>, Option<Pid>)>,
    watchdog: Watchdog,
    files: OpenFiles,
    grace: Arc<Mutex<Duration>>,
    end: End,
}

impl Agent {
    fn run(&mut self, happenings: &Receiver<Happening>) {
        let mut launcher = true;
        while launcher || self.ranks.reaping {
            match happenings.recv_timeout(self.patience()) {
                Ok(Happening::Order(order)) => self.follow(order),
                Ok(Happening::NoLauncher) => {
                    launcher = false;
                    // Without a launcher, output need not be held back any more.
                    self.events.widen(usize::MAX);
                    self.begin_to_end();
                }
                Ok(Happening::Exited(pid, status)) => {
                    self.heed_launcher(pid, status);
                    self.ranks.exited(pid, status, &self.events);
                }
                Ok(Happening::Checked(Ok((checked, kept)))) => {
                    self._kept = kept;
                    self.events.send(Event::Checked(checked));
                }
                Ok(Happening::Checked(Err(error))) => self.events.send(problem(error)),
                Ok(Happening::Connected(relays)) => self.connected(relays),
                Ok(Happening::Aborted(rank, code)) => self.ranks.aborted(rank, code),
                Ok(Happening::Nobody) => self.ranks.reaping = false,
                Ok(Happening::StreamEnded(process)) => self.ranks.stream_ended(process, &self.events),
                Ok(Happening::Signal(signal)) => self.events.send(Event::Signalled(signal)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.ranks.close_late_streams(&self.events);
            self.ranks.pulse(&self.events);
            self.go_on_ending();
        }
    }

    fn patience(&self) -> Duration {
        match self.end {
            End::NotYet if !self.ranks.any_closing() => self.ranks.until_pulse().unwrap_or(Duration::from_secs(3600)),
            _ => tree::LOOK,
        }
    }

    fn follow(&mut self, order: Order) {
        match order {
            Order::Serve { secret, tls, open, interface } => match StoreHost::serve(&secret, tls, open, interface) {
                Ok(meeting) => {
                    let (stores, master_port) = (meeting.stores(), meeting.master_port);
                    let events = self.events.clone();
                    meeting.listen(move |said| events.send(Event::Said(said.to_vec())));
                    self.meeting = Some(meeting);
                    self.events.send(Event::Serving { stores, master_port });
                }
                Err(error) => self.events.send(problem(error)),
            },
            Order::Check(mut check) => {
                check.program = check.program.on_this_host(&self.itself);
                let sender = self.sender.clone();
                thread::spawn(move || drop(sender.send(Happening::Checked(meeting::check(&check)))));
            }
            Order::Start(mut start) => {
                start.program = start.program.on_this_host(&self.itself);
                *lock(&self.grace) = start.grace;
                self.meeting.iter_mut().for_each(|meeting| meeting.keep(start.pmi.store.ip()));
                self.watchdog.guard(&start.job);
                self.events.widen(start.window);
                self.start(start);
            }
            Order::Add(mut start) => {
                start.program = start.program.on_this_host(&self.itself);
                self.ranks.add(&start, &self.files, (&self.events, &self.sender));
            }
            Order::End { rank } => self.ranks.kill(rank),
            Order::Publish { key, value } => self.meeting.iter().for_each(|meeting| meeting.publish(&key, &value)),
            Order::Forget(prefix) => self.meeting.iter().for_each(|meeting| meeting.forget(&prefix)),
            Order::Signal(signal) => self.ranks.signal(signal),
            Order::Kill => self.end = End::Killing,
            Order::Look => self.ranks.look(&self.events),
            Order::Note { rank, how } => self.meeting.iter().for_each(|meeting| meeting.note(rank, &how)),
            Order::Shown(bytes) => self.events.widen(bytes),
            Order::Pause => {
                tree::signal_all(Signal::STOP, Some(self.watchdog.pid()));
                self.events.send(Event::Paused);
            }
            Order::Continue => tree::signal_all(Signal::CONT, None),
            Order::Greeting { .. } => self.events.send(Event::Greeting),
        }
    }

    /// Starts the ranks, at once or when Open MPI has handed them over.
    fn start(&mut self, start: Box<HostStart>) {
        let Some(connect) = &start.connect else {
            self.ranks.start(&start, Vec::new(), &self.files, (&self.events, &self.sender));
            return self.reap();
        };
        match relays::begin(&start, connect, self.sender.clone()) {
            Ok(launcher) => {
                self.connecting = Some((start, launcher));
                if launcher.is_some() {
                    self.reap();
                }
            }
            Err(error) => self.events.send(problem(error)),
        }
    }

    fn connected(&mut self, relays: Result<Vec<Relay>>) {
        let Some((start, launcher)) = self.connecting.take() else { return };
        match relays {
            Ok(relays) => {
                self.ranks.start(&start, relays, &self.files, (&self.events, &self.sender));
                if launcher.is_none() {
                    self.reap();
                }
            }
            Err(error) => self.events.send(problem(error)),
        }
    }

    /// Open MPI's launcher ended before it had handed over its ranks.
    fn heed_launcher(&mut self, pid: Pid, status: WaitStatus) {
        if self.connecting.as_ref().is_some_and(|(_, launcher)| *launcher == Some(pid)) {
            self.connecting = None;
            let code = status.exit_status().map_or("was killed".into(), |code| format!("ended with exit code {code}"));
            let message = format!("Open MPI's mpirun {code} before it had started the ranks");
            let hint = "what it said is above; try it alone: mpirun -n 2 hostname".into();
            self.events.send(Event::Problem { message, hint });
        }
    }

    /// Collects every process that ends from now on, including orphans adopted by this process.
    fn reap(&mut self) {
        self.ranks.reaping = true;
        let sender = self.sender.clone();
        thread::spawn(move || {
            loop {
                match wait(WaitOptions::empty()) {
                    Ok(Some((pid, status))) => drop(sender.send(Happening::Exited(pid, status))),
                    Ok(None) | Err(rustix::io::Errno::INTR) => {}
                    Err(_) => break,
                }
            }
            let _ = sender.send(Happening::Nobody);
        });
    }

    fn begin_to_end(&mut self) {
        if matches!(self.end, End::Killing) {
            return;
        }
        self.end = if self.ranks.all_ended() {
            End::Leftovers(Instant::now() + LEFTOVERS)
        } else {
            self.ranks.signal(SIGTERM);
            End::Asked(Instant::now() + *lock(&self.grace))
        };
    }

    fn go_on_ending(&mut self) {
        let now = Instant::now();
        match self.end {
            End::Leftovers(time) if now >= time => {
                tree::signal_all(Signal::TERM, Some(self.watchdog.pid()));
                self.end = End::Asked(now + *lock(&self.grace));
            }
            End::Asked(time) if now >= time => self.end = End::Killing,
            End::Killing => tree::signal_all(Signal::KILL, self.watchdog.guarding()),
            _ => {}
        }
        // It ends before the agent does, but after everything that it would have to end in the agent's place.
        let ending = !matches!(self.end, End::NotYet) && self.ranks.all_ended();
        if ending && self.watchdog.guarding().is_some_and(|watchdog| tree::descendants() == [watchdog]) {
            self.watchdog.dismiss();
        }
    }
}

fn problem(error: Advice) -> Event {
    Event::Problem { message: error.message, hint: error.hint }
}
