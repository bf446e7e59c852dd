//! How records and numbers get to rank 0: over the control links, by the watcher, now and then.

use std::{
    io,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use sirtaki_comm::Rank;

use super::{
    Stream,
    clock::Offset,
    counts::Counts,
    listeners::Listeners,
    profile::{Profile, no_profile, tell},
    timeline_writer::{Chunk, TimelineWriter, Work},
};
use crate::{
    Profiling, Settings,
    decide::blame::Sign,
    files,
    runtime::shared::{Shared, now},
};

/// How often numbers that the system keeps are updated.
const REFRESH: Duration = Duration::from_secs(1);
/// How often the folder of a run gets a new profile.
const KEEP: Duration = Duration::from_secs(10);
/// How many exchanges with rank 0's clock come first, and the pauses between exchanges, then and later.
const ROUNDS: u32 = 16;
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// Events in one message, so that other words do not wait long behind it.
const MESSAGE: usize = 1000;
/// How long others may take to hand in their numbers when rank 0 ends.
const LAST: Duration = Duration::from_secs(5);

/// What ranks say to each other here.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Said {
    /// From rank 0: this timeline begins.
    Start(u32),
    /// From rank 0: it ends.
    Stop,
    /// To rank 0: records for this timeline.
    Chunk(u32, Chunk),
    /// To rank 0: there are no more.
    Last(u32),
    /// To rank 0: the numbers so far, and whether they are the last.
    Counts(Counts, bool),
}

/// What rank 0 knows of another rank.
#[derive(Debug, Default, Clone)]
struct Known {
    counts: Option<Counts>,
    last: bool,
}

/// A process's part in the telemetry of the job.
#[derive(Debug)]
pub(crate) struct Telemetry {
    pub(crate) stream: Arc<Stream>,
    /// False for the engine of a process set, which leaves carrying to the engine it came from.
    pub(crate) carries: bool,
    /// The timeline that records are for.
    timeline: AtomicU32,
    /// Rank 0 has ended it, and waits for the last records of this rank.
    is_ending: AtomicBool,
    /// On rank 0, while there is a timeline.
    writer: Mutex<Option<TimelineWriter>>,
    /// On rank 0, those that write down what the program reports.
    pub(super) listeners: Mutex<Listeners>,
    /// On rank 0, by rank.
    known: Mutex<Vec<Known>>,
    /// Held while what others say is taken in, so that all of it is there when the next thread looks.
    hearing: Mutex<()>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Telemetry {
    pub(crate) fn new(stream: Arc<Stream>, carries: bool, ranks: usize) -> Self {
        let known = Mutex::new(vec![Known::default(); ranks]);
        Self {
            stream,
            carries,
            timeline: AtomicU32::new(0),
            is_ending: AtomicBool::new(false),
            writer: Mutex::default(),
            listeners: Mutex::default(),
            known,
            hearing: Mutex::default(),
        }
    }

    fn give(&self, work: Work) {
        if let Some(writer) = lock(&self.writer).as_mut() {
            writer.give(work);
        }
    }

    fn begin(&self, timeline: u32) {
        self.timeline.store(timeline, Ordering::Relaxed);
        self.stream.ring.take(usize::MAX);
        self.stream.ring.set_open(true);
        self.stream.note_memory();
    }
}

impl Shared {
    /// Starts the timeline that the settings ask for, on all ranks at once.
    pub(crate) fn start_first_timeline(&self) -> io::Result<()> {
        match &self.settings.timeline {
            Some(path) if self.group.rank() == 0 => self.start_timeline(path),
            Some(_) => {
                self.telemetry.begin(1);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Starts a timeline for all ranks; only rank 0 does anything.
    pub(crate) fn start_timeline(&self, path: &Path) -> io::Result<()> {
        if self.group.rank() != 0 || !self.telemetry.carries {
            return Ok(());
        }
        self.stop_timeline(true);
        let Settings { timeline_form, timeline_limit, warn, .. } = &self.settings;
        let timeline = self.telemetry.timeline.load(Ordering::Relaxed) + 1;
        match TimelineWriter::start(path, *timeline_form, *timeline_limit, &self.group, warn.clone()) {
            Ok(writer) => *lock(&self.telemetry.writer) = Some(writer),
            Err(error) => {
                self.telemetry.timeline.store(timeline, Ordering::Relaxed);
                // Others may have begun already.
                self.star().see(&Said::Stop);
                return Err(error);
            }
        }
        self.telemetry.begin(timeline);
        self.star().see(&Said::Start(timeline));
        Ok(())
    }

    /// Ends it, with the last records of ranks that are still there if those are wanted.
    pub(crate) fn stop_timeline(&self, with_others: bool) {
        if self.group.rank() != 0 || lock(&self.telemetry.writer).is_none() {
            return;
        }
        self.telemetry.stream.collect();
        self.telemetry.stream.ring.set_open(false);
        let awaited = {
            let mut star = self.star();
            star.see(&Said::Stop);
            let there = |rank: &Rank| with_others && matches!(star.sign(*rank), Sign::Quiet(_));
            (1..self.group.size()).filter(there).collect()
        };
        self.deliver(usize::MAX);
        // What was said by ranks that are gone by now.
        self.take_in();
        // The last records of others come through the watcher, which must find the writer meanwhile.
        let end = lock(&self.telemetry.writer).as_mut().and_then(TimelineWriter::end);
        if let Some(end) = end {
            end.wait(awaited);
            *lock(&self.telemetry.writer) = None;
        }
    }

    /// Hands on records, in messages of limited size and at most this many; says whether there are more.
    fn deliver(&self, messages: usize) -> bool {
        let Telemetry { stream, timeline, .. } = &self.telemetry;
        for _ in 0..messages {
            if self.group.rank() == 0 {
                let (records, dropped) = stream.ring.take(usize::MAX);
                if !records.is_empty() || dropped > 0 {
                    self.telemetry.give(Work::Chunk(0, Chunk { offset: Offset::default(), records, dropped }));
                }
                return false;
            }
            let mut star = self.star();
            let offset = if self.is_here(0) { Some(Offset::default()) } else { star.offset(0, now()) };
            let Some(offset) = offset.filter(|_| messages == usize::MAX || star.flush()) else { return false };
            let (records, dropped) = stream.ring.take(MESSAGE);
            if records.is_empty() && dropped == 0 {
                return false;
            }
            star.see(&Said::Chunk(timeline.load(Ordering::Relaxed), Chunk { offset, records, dropped }));
        }
        true
    }

    /// Whether rank 0 is about to start the first timeline. Others may have begun to record for it.
    fn is_starting_timeline(&self) -> bool {
        let none_yet = self.telemetry.timeline.load(Ordering::Relaxed) == 0;
        none_yet && self.group.rank() == 0 && self.settings.timeline.is_some()
    }

    /// Takes in what others have said.
    fn take_in(&self) {
        let _hearing = lock(&self.telemetry.hearing);
        let heard = if self.is_starting_timeline() { Vec::new() } else { self.star().take_seen() };
        heard.into_iter().for_each(|(rank, said)| self.hear(rank, said));
        // Rank 0 may have finished a batch that this rank still has to write down.
        let is_running = self.activity.running_since.load(Ordering::Acquire) != 0;
        if !is_running && self.telemetry.is_ending.swap(false, Ordering::Relaxed) {
            self.hand_in_last_records();
        }
    }

    fn hear(&self, rank: Rank, said: Said) {
        let telemetry = &self.telemetry;
        let current = telemetry.timeline.load(Ordering::Relaxed);
        match said {
            Said::Start(timeline) if rank == 0 && timeline != current => telemetry.begin(timeline),
            Said::Stop if rank == 0 => telemetry.is_ending.store(true, Ordering::Relaxed),
            Said::Chunk(timeline, chunk) if timeline == current => telemetry.give(Work::Chunk(rank, chunk)),
            Said::Last(timeline) if timeline == current => telemetry.give(Work::Last(rank)),
            Said::Counts(counts, last) => {
                if let Some(known) = lock(&telemetry.known).get_mut(rank) {
                    *known = Known { counts: Some(counts), last };
                }
            }
            _ => {}
        }
    }

    fn hand_in_last_records(&self) {
        self.telemetry.stream.collect();
        self.telemetry.stream.ring.set_open(false);
        self.deliver(usize::MAX);
        self.star().see(&Said::Last(self.telemetry.timeline.load(Ordering::Relaxed)));
    }

    /// This rank leaves in good order: hands in what it has.
    pub(crate) fn hand_in(&self) {
        if self.group.rank() == 0 || !self.telemetry.carries {
            return;
        }
        self.telemetry.is_ending.store(false, Ordering::Relaxed);
        if self.telemetry.stream.is_traced() {
            self.hand_in_last_records();
        }
        if self.settings.wants_counts() {
            self.telemetry.stream.refresh();
            self.star().see(&Said::Counts(self.recorder.counts(), true));
        }
    }

    /// The engine has ended: rank 0 closes the timeline and reports what was counted.
    pub(crate) fn end_telemetry(&self, failed: Option<String>) {
        if self.group.rank() != 0 || !self.telemetry.carries {
            return;
        }
        self.stop_timeline(failed.is_none());
        self.telemetry.stream.refresh();
        lock(&self.telemetry.listeners).end_events();
        if !self.settings.wants_counts() {
            return;
        }
        self.await_counts(now() + if failed.is_some() { Duration::ZERO } else { LAST });
        let profile = self.profile().beside_copies();
        if let Some(wanted) = &self.settings.profile {
            tell(&profile, wanted, &self.settings.warn);
        }
        lock(&self.telemetry.listeners).end_run(profile, failed);
    }

    /// Takes in the last numbers of ranks that are still there.
    fn await_counts(&self, deadline: Duration) {
        let there = |rank: &Rank| matches!(self.star().sign(*rank), Sign::Quiet(_));
        let missing = |rank: &Rank| !lock(&self.telemetry.known)[*rank].last && there(rank);
        while now() < deadline && (1..self.group.size()).any(|rank| missing(&rank)) {
            thread::sleep(Duration::from_millis(5));
            self.star().fill();
            self.take_in();
        }
    }

    /// Rank 0 warns at the start if the profile could not be written at the end.
    pub(crate) fn check_profile(&self) {
        let Settings { profile: Some(Profiling::File(path)), warn, .. } = &self.settings else { return };
        if let (0, Err(error)) = (self.group.rank(), files::check(path)) {
            warn(&no_profile(path, &error));
        }
    }

    /// What is known of all ranks.
    pub(crate) fn profile(&self) -> Profile {
        let known = lock(&self.telemetry.known).clone();
        let counts = |rank: Rank| match (&self.records[rank], rank == self.group.rank()) {
            (_, true) => Some(self.recorder.counts()),
            (Some(record), _) => Some(record.counts()),
            (None, _) => known[rank].counts.clone(),
        };
        let hosts = self.group.members().iter().map(|member| member.host.clone()).collect();
        let profile = Profile::new(hosts, (0..self.group.size()).map(counts).collect());
        Profile { device: self.device.get().cloned(), ..profile }
    }
}

/// The watcher's part.
#[derive(Debug, Default)]
pub(crate) struct Carrier {
    refreshed: Duration,
    kept: Duration,
    asked: Duration,
    rounds: u32,
    timeline: u32,
}

impl Carrier {
    /// Does what is due; says whether it should be called again soon.
    pub(crate) fn carry(&mut self, shared: &Shared) -> bool {
        let (telemetry, time) = (&shared.telemetry, now());
        if !telemetry.carries {
            return false;
        }
        if time.saturating_sub(self.refreshed) >= REFRESH {
            self.refreshed = time;
            telemetry.stream.refresh();
            if shared.settings.wants_counts() && shared.group.rank() != 0 && !shared.is_here(0) {
                shared.star().see(&Said::Counts(shared.recorder.counts(), false));
            }
        }
        if time.saturating_sub(self.kept) >= KEEP {
            self.kept = time;
            lock(&telemetry.listeners).profile(|| shared.profile());
        }
        telemetry.stream.collect();
        shared.take_in();
        if !telemetry.stream.is_traced() {
            return false;
        }
        let asks = shared.group.rank() != 0 && !shared.is_here(0) && self.ask(shared, time);
        shared.deliver(1) || asks || telemetry.is_ending.load(Ordering::Relaxed)
    }

    /// Asks for rank 0's time when that is due; says whether it soon will be again.
    fn ask(&mut self, shared: &Shared, time: Duration) -> bool {
        let timeline = shared.telemetry.timeline.load(Ordering::Relaxed);
        if timeline != self.timeline {
            (self.timeline, self.rounds) = (timeline, 0);
        }
        let pause = if self.rounds < ROUNDS { PAUSES.0 } else { PAUSES.1 };
        if time.saturating_sub(self.asked) >= pause {
            (self.asked, self.rounds) = (time, self.rounds.saturating_add(1));
            shared.star().ask_time();
        }
        self.rounds < ROUNDS
    }
}
