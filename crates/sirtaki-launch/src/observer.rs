//! Whoever wants to know what happens to a job, and whoever wants to end it.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, mpsc::Sender},
    time::{Duration, Instant},
};

use crate::{ended::Ended, protocol::Stream, pulse::Pulse, supervise::Heard, words::duration_in_words};

/// Hears what happens to a job, in the thread that runs it. Everything may be ignored.
pub trait Observer {
    /// Something that people should know, in a sentence.
    fn note(&mut self, _sentence: &str) {}

    /// Which network a host uses and why, in a sentence.
    fn network(&mut self, _sentence: &str) {}

    /// Every host is ready, and the ranks are about to start.
    fn begins(&mut self, _now: Instant) {}

    /// A rank runs as this process of its host.
    fn started(&mut self, _rank: usize, _host: &str, _pid: u32) {}

    /// A rank wrote something.
    fn wrote(&mut self, _now: Instant, _rank: usize, _stream: Stream, _bytes: &[u8]) {}

    /// A rank will write no more.
    fn closed(&mut self, _rank: usize) {}

    /// How far ranks are.
    fn pulses(&mut self, _pulses: &[Pulse], _now: Instant) {}

    /// A rank has ended.
    fn ended(&mut self, _rank: usize, _how: &Ended) {}

    /// The workers of an elastic job have met for another round.
    fn round(&mut self, _report: &RoundReport) {}

    /// So much output waits to be read that ranks should pause writing. [`Controller::wake`] says that this has changed.
    fn is_full(&self) -> bool {
        false
    }

    /// Nobody reads the output any more, so that the job can end.
    fn is_abandoned(&self) -> bool {
        false
    }

    /// When [`Observer::tick`] has something to do, unless something happens before.
    fn next_tick(&self) -> Option<Instant> {
        None
    }

    /// Time has passed, or something has happened.
    fn tick(&mut self, _now: Instant) {}

    /// All ranks stand still, as the terminal's user wanted; they go on when this returns.
    fn paused(&mut self) {}
}

/// What has changed from one round of an elastic job to the next. Workers are named by their seats.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoundReport {
    /// The number of the round, from one.
    pub number: u64,
    /// How many workers it has.
    pub size: usize,
    /// Workers that were lost, with their hosts, and how.
    pub lost: Vec<(usize, String, Ended)>,
    /// Workers that have left in good order, with their hosts.
    pub left: Vec<(usize, String)>,
    /// Workers that have come, with their hosts.
    pub came: Vec<(usize, String)>,
    /// How long it took from the first of these to the meeting.
    pub took: Duration,
}

/// `round 3: worker 2 on b lost (was killed by SIGKILL), 310 ms, 7 workers go on`.
impl fmt::Display for RoundReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let workers = if self.size == 1 { "1 worker".to_owned() } else { format!("{} workers", self.size) };
        if self.number == 1 {
            return write!(f, "round 1: {workers}");
        }
        let named = |some: &[(usize, String)], what: &str| -> Vec<String> {
            some.iter().map(|(worker, host)| format!("worker {worker} on {host} {what}")).collect()
        };
        let mut parts: Vec<String> =
            self.lost.iter().map(|(worker, host, how)| format!("worker {worker} on {host} lost ({how})")).collect();
        parts.extend(named(&self.left, "has left"));
        parts.extend(named(&self.came, "has come"));
        if parts.is_empty() {
            parts.push("the workers have met again".into());
        }
        let go = if self.size == 1 { "goes" } else { "go" };
        write!(f, "round {}: {}, {}, {workers} {go} on", self.number, parts.join(", "), duration_in_words(self.took))
    }
}

/// Ignores everything.
impl Observer for () {}

/// What others may do to a job that runs, from any thread.
#[derive(Debug, Clone)]
pub struct Controller {
    to: Sender<Heard>,
    /// Other hosts whose agent has not ended.
    hosts: Arc<Mutex<Vec<String>>>,
}

impl Controller {
    pub(crate) fn new(to: Sender<Heard>) -> Self {
        Self { to, hosts: Arc::default() }
    }

    /// The job gets this signal, as if its launcher had received it: one that ends programs ends the job in good order,
    /// and at once if it comes twice; `SIGTSTP` pauses it; others are passed on.
    pub fn signal(&self, signal: i32) {
        let _ = self.to.send(Heard::Signal(signal));
    }

    /// The observer has to be asked again whether it is full or abandoned.
    pub fn wake(&self) {
        let _ = self.to.send(Heard::Written);
    }

    /// Other hosts on which something of the job may still run.
    pub fn other_hosts(&self) -> Vec<String> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_hosts(&self, hosts: Vec<String>) {
        *self.hosts.lock().unwrap_or_else(PoisonError::into_inner) = hosts;
    }
}
