//! The ranks of a host while they run: who they are, how they end, and what they are doing.

use std::{
    collections::HashMap,
    io,
    os::unix::net::UnixStream,
    sync::{Arc, mpsc::Sender},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitStatus, kill_process_group};
use sirtaki_engine::telemetry::recorder::Recorder;

use super::{
    EventSender, Happening,
    children::{self, Child, Source},
    doing,
    memory_kills::MemoryKills,
    pmi::Pmi,
    relays::Relay,
};
use crate::{
    child::OpenFiles,
    ended::Ended,
    environment,
    protocol::{Event, HostStart, RankStart},
    pulse::Pulse,
    tree,
};

/// How long output may come after a rank has ended. What it left behind may keep its streams open for ever.
const LATE_OUTPUT: Duration = Duration::from_millis(300);
/// How often the launcher is told how far ranks are.
const PULSE: Duration = Duration::from_millis(500);

/// One rank.
struct Rank {
    rank: usize,
    /// How many processes were started before its own.
    number: u64,
    /// Its process, until that has ended.
    pid: Option<Pid>,
    /// Its flight record. The memory is the agent's, so it outlives the rank.
    recorder: Option<Recorder>,
    /// The code with which it asked to be ended.
    aborted: Option<i32>,
    /// What holds Open MPI's relay of this rank.
    relay: Option<UnixStream>,
    sources: [Arc<Source>; 2],
    open_streams: usize,
    ended: Option<Instant>,
    closed: bool,
}

/// Who is told what happens to ranks: the launcher, and the agent itself.
type Reporting<'a> = (&'a EventSender, &'a Sender<Happening>);

/// All ranks of this host.
#[derive(Default)]
pub(super) struct Ranks {
    ranks: Vec<Rank>,
    /// How many processes were started.
    started: u64,
    /// Whether a thread waits for processes to end.
    pub(super) reaping: bool,
    memory_kills: MemoryKills,
    /// When the launcher is next told how far ranks are, if it wants to know.
    next_pulse: Option<Instant>,
    /// What it was told last.
    told: Vec<Pulse>,
}

impl Ranks {
    pub(super) fn start(&mut self, start: &HostStart, relays: Vec<Relay>, files: &OpenFiles, says: Reporting<'_>) {
        self.memory_kills = MemoryKills::watch();
        self.next_pulse = start.pulse.then(|| Instant::now() + PULSE);
        let mut relays: HashMap<usize, Relay> = relays.into_iter().map(|relay| (relay.rank, relay)).collect();
        let pmi = Pmi::new(start.pmi.clone(), start.ranks.len(), says.1.clone());
        let mut failed: Option<usize> = None;
        for wanted in &start.ranks {
            let rank = wanted.rank;
            let how = match failed {
                None => match self.start_one(start, wanted.clone(), (relays.remove(&rank), Some(&pmi)), files, says) {
                    Ok(()) => continue,
                    Err(how) => how,
                },
                Some(first) => {
                    let reason = format!("rank {first} could not be started either");
                    Ended::NotStarted { reason, hint: String::new() }
                }
            };
            failed.get_or_insert(rank);
            not_there(rank, how, says);
        }
        for wanted in &start.others {
            if let Err(how) = self.start_one(start, wanted.clone(), (None, None), files, says) {
                not_there(wanted.rank, how, says);
            }
        }
    }

    /// Starts more ranks, each in the place of one that has ended, if there was one.
    pub(super) fn add(&mut self, start: &HostStart, files: &OpenFiles, says: Reporting<'_>) {
        self.next_pulse = start.pulse.then(|| Instant::now() + PULSE);
        for wanted in &start.ranks {
            let rank = wanted.rank;
            self.ranks.retain(|known| known.rank != rank);
            if let Err(how) = self.start_one(start, wanted.clone(), (None, None), files, says) {
                not_there(rank, how, says);
            }
        }
    }

    fn start_one(
        &mut self,
        start: &HostStart,
        mut wanted: RankStart,
        (relay, pmi): (Option<Relay>, Option<&Arc<Pmi>>),
        files: &OpenFiles,
        (events, sender): Reporting<'_>,
    ) -> Result<(), Ended> {
        let rank = wanted.rank;
        let recorder = Recorder::create().ok();
        wanted.environment.extend(recorder.as_ref().map(|recorder| environment::record(recorder.address())));
        let relay = relay.map(|relay| {
            wanted.environment.extend(relay.variables);
            relay.stream
        });
        let inherited = pmi.and_then(|pmi| pmi.serve(rank).ok()).map(|(descriptor, variables)| {
            wanted.environment.extend(variables);
            descriptor
        });
        let (to, ends) = (events.clone(), sender.clone());
        let wrote = move |stream, bytes: &[u8]| to.pass_on(rank, stream, bytes);
        let number = self.started;
        self.started += 1;
        let stream_ended = move || drop(ends.send(Happening::StreamEnded(number)));
        let started = children::start((start, &wanted), files, wrote, stream_ended);
        drop(inherited);
        let Child { pid, sources } = started.map_err(|error| not_started(start.program.name(), &error))?;
        events.send(Event::Started { rank, pid: pid.as_raw_nonzero().get() as u32 });
        self.ranks.push(Rank {
            rank,
            number,
            pid: Some(pid),
            recorder,
            aborted: None,
            relay,
            sources,
            open_streams: 2,
            ended: None,
            closed: false,
        });
        Ok(())
    }

    fn of(&mut self, rank: usize) -> Option<&mut Rank> {
        self.ranks.iter_mut().find(|known| known.rank == rank)
    }

    pub(super) fn all_ended(&self) -> bool {
        self.ranks.iter().all(|rank| rank.ended.is_some())
    }

    /// Whether some rank's output is still expected although it has ended.
    pub(super) fn any_closing(&self) -> bool {
        self.ranks.iter().any(|rank| rank.ended.is_some() && !rank.closed)
    }

    /// A process ended: a rank, or one that was left behind.
    pub(super) fn exited(&mut self, pid: Pid, status: WaitStatus, events: &EventSender) {
        let Some(at) = self.ranks.iter().position(|rank| rank.pid == Some(pid)) else { return };
        // How far it came is told before its end.
        self.next_pulse = self.next_pulse.map(|_| Instant::now());
        self.pulse(events);
        let how = match (status.terminating_signal(), status.exit_status()) {
            (Some(number), _) => {
                Ended::Signal { number, out_of_memory: number == 9 && self.memory_kills.explain_one() }
            }
            (None, code) => Ended::Code(code.unwrap_or(0)),
        };
        let how = self.ranks[at].aborted.map_or(how, Ended::Code);
        let rank = &mut self.ranks[at];
        (rank.ended, rank.pid, rank.relay) = (Some(Instant::now()), None, None);
        rank.sources.iter().for_each(|source| source.orphan());
        let culprit = rank.recorder.as_ref().and_then(Recorder::culprit);
        let engine = rank.recorder.as_ref().is_none_or(|record| record.last_beat() > 0 || !record.counts().is_empty());
        events.send(Event::Ended { rank: rank.rank, how, culprit, engine });
        rank.close_if_done(events);
    }

    /// Ends a rank that asked for it, with everything it started.
    pub(super) fn aborted(&mut self, rank: usize, code: i32) {
        if let Some(rank) = self.of(rank) {
            rank.aborted = Some(code);
        }
        self.kill(rank);
    }

    /// Ends a rank, with everything it started.
    pub(super) fn kill(&mut self, rank: usize) {
        if let Some(pid) = self.of(rank).and_then(|rank| rank.pid) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    pub(super) fn stream_ended(&mut self, number: u64, events: &EventSender) {
        if let Some(rank) = self.ranks.iter_mut().find(|known| known.number == number) {
            rank.open_streams = rank.open_streams.saturating_sub(1);
            rank.close_if_done(events);
        }
    }

    pub(super) fn close_late_streams(&mut self, events: &EventSender) {
        for rank in &mut self.ranks {
            let late = rank.ended.is_some_and(|time| time.elapsed() > LATE_OUTPUT);
            if late && !rank.closed && rank.sources.iter().all(|source| source.is_quiet()) {
                rank.open_streams = 0;
                rank.close_if_done(events);
            }
        }
    }

    /// Sends a signal to every rank and its process group; a stopped one is continued so that it notices.
    pub(super) fn signal(&self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else { return };
        for pid in self.ranks.iter().filter_map(|rank| rank.pid) {
            // The rank has not been waited for yet or is not listed any more, so its id cannot belong to another
            // process.
            let _ = kill_process_group(pid, signal);
            let _ = kill_process_group(pid, Signal::CONT);
        }
    }

    /// How long it is until [`Ranks::pulse`] has something to do.
    pub(super) fn until_pulse(&self) -> Option<Duration> {
        Some(self.next_pulse?.saturating_duration_since(Instant::now()))
    }

    /// Tells how far ranks are, if that is due and there is news. All of them together, so that they can be compared.
    pub(super) fn pulse(&mut self, events: &EventSender) {
        let now = Instant::now();
        if self.next_pulse.is_none_or(|due| now < due) {
            return;
        }
        self.next_pulse = (!self.all_ended()).then_some(now + PULSE);
        let time = monotonic().as_nanos() as u64;
        let counts = |rank: &Rank| Some((rank.rank, rank.recorder.as_ref()?.counts()));
        let pulses: Vec<Pulse> =
            self.ranks.iter().filter_map(counts).filter_map(|(rank, counts)| Pulse::of(rank, time, &counts)).collect();
        let same = |(one, other): (&Pulse, &Pulse)| one.says_the_same(other);
        if pulses.len() != self.told.len() || !pulses.iter().zip(&self.told).all(same) {
            events.send(Event::Pulse(pulses.clone()));
            self.told = pulses;
        }
    }

    /// Tells what every rank is doing.
    pub(super) fn look(&self, events: &EventSender) {
        let now = monotonic();
        for rank in &self.ranks {
            let records = rank.recorder.as_ref().map(Recorder::read).unwrap_or_default();
            let counts = rank.recorder.as_ref().map(Recorder::counts).filter(|counts| !counts.is_empty());
            let meeting = rank.pid.is_some() && rank.recorder.as_ref().is_some_and(Recorder::is_meeting);
            let what = match meeting {
                true => Some("waiting for all ranks to join".into()),
                false => doing::describe(&records, now),
            };
            let stopped = rank.pid.is_some_and(tree::is_stopped);
            events.send(Event::Doing { rank: rank.rank, what, counts, meeting, stopped });
        }
        events.send(Event::Looked);
    }
}

impl Rank {
    fn close_if_done(&mut self, events: &EventSender) {
        if self.ended.is_some() && self.open_streams == 0 && !self.closed {
            self.closed = true;
            events.send(Event::Closed { rank: self.rank });
        }
    }
}

/// Tells the launcher that a process could not be started.
fn not_there(rank: usize, how: Ended, (events, _): Reporting<'_>) {
    events.send(Event::Ended { rank, how, culprit: None, engine: true });
    events.send(Event::Closed { rank });
}

fn not_started(name: &str, error: &io::Error) -> Ended {
    let full = matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
    let hint = if full { OpenFiles::hint() } else { String::new() };
    Ended::NotStarted { reason: format!("cannot start {name}: {error}"), hint }
}

/// The host's clock, which ranks use in their records.
fn monotonic() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
