//! What a job shows of itself: one stream of records out of the engine, and its consumers.
//!
//! ```text
//! owner, callers → Stream → counts, lateness ───────→ profile, straggler, page
//!                         ├ ring → transfer → (rank 0) timeline_writer → trace_events → trace_file
//! the program ────────────┴ progress ──→ (rank 0) listeners: run_folder, event_file
//! ```
//!
//! Counting is always on, because it costs next to nothing and failures come unannounced. Records are kept only while a
//! timeline is wanted. The thread that runs collectives only puts a record into memory: the watcher carries it to rank
//! 0, and there a thread of its own writes it down.

pub(crate) mod clock;
pub mod counts;
mod event_file;
#[doc(hidden)]
pub mod fuzzing;
mod horovod_events;
mod instrument;
pub mod lateness;
mod listeners;
pub mod profile;
mod profile_device;
mod profile_page;
mod progress;
pub(crate) mod record;
pub mod recorder;
mod ring;
mod run_folder;
mod run_info;
pub mod staleness;
pub mod straggler;
mod text;
mod timeline_writer;
mod trace_events;
mod trace_file;
mod transfer;

use std::{
    fs,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, ThreadId},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use sirtaki_comm::Rank;

use self::{
    counts::{Counted, Phase, Whole},
    instrument::Instruments,
    lateness::{Common, Spent},
    record::{FinishedBatch, Record, TracedMessage},
    ring::Ring,
};
pub(crate) use self::{
    instrument::Instrument,
    transfer::{Carrier, Said, Telemetry},
};
pub use self::{profile_page::Short, progress::Progress, record::GpuSample};
use crate::{runtime::shared::now, telemetry::recorder::Recorder};

/// Nanoseconds between measurements of the network.
const LOOKS: u64 = 500_000_000;

/// Whether a collective runs and how many callers wait, to know how much of the collective is hidden by other work.
#[derive(Debug, Default)]
struct Overlap {
    since: u64,
    running: bool,
    waiting: u32,
    /// What callers are doing, the latest last.
    doing: Vec<Doing>,
}

/// A caller is in a phase.
#[derive(Debug)]
struct Doing {
    phase: Phase,
    began: u64,
    thread: ThreadId,
    waits: bool,
}

/// Takes what happens in this process, for all consumers.
#[derive(Debug)]
pub(crate) struct Stream {
    recorder: Arc<Recorder>,
    ring: Ring,
    overlap: Mutex<Overlap>,
    /// When the network was last measured.
    looked: AtomicU64,
    /// Time and processor time at the start.
    start: (u64, u64),
    /// Whether a profile or a recording of the run is wanted.
    counted: bool,
    instruments: Instruments,
}

impl Stream {
    pub(crate) fn new(recorder: Arc<Recorder>, counted: bool) -> Self {
        Self {
            recorder,
            ring: Ring::default(),
            overlap: Mutex::default(),
            looked: AtomicU64::new(0),
            start: (nanos(), processor_time()),
            counted,
            instruments: Instruments::default(),
        }
    }

    /// Whether whole records are wanted, and not only numbers.
    pub(crate) fn is_traced(&self) -> bool {
        self.ring.is_open()
    }

    /// A collective is done. `counted` goes to the numbers; `batch` is only called if it is wanted.
    pub(crate) fn collective(&self, counted: &Counted, batch: impl FnOnce() -> FinishedBatch) {
        self.recorder.collective(counted);
        self.ring.push(|| Record::Batch(batch()));
    }

    /// One tensor of a collective that is done.
    pub(crate) fn tensor(&self, kind: counts::CollectiveKind, bytes: u64) {
        self.recorder.tensor(kind, bytes);
    }

    /// All ranks have voted.
    pub(crate) fn vote(&self, began: u64, ended: u64, bytes: u64) {
        let inside = ended.saturating_sub(began);
        self.recorder.collective(&Counted { kind: counts::CollectiveKind::Vote, bytes, inside, copying: 0 });
        self.ring.push(|| Record::Vote(began, ended));
    }

    /// A message was sent or has come: handed in, began to move, done.
    pub(crate) fn message(
        &self,
        (_, began, ended): (u64, u64, u64),
        bytes: u64,
        sends: bool,
        message: impl FnOnce() -> TracedMessage,
    ) {
        let kind = if sends { counts::CollectiveKind::Send } else { counts::CollectiveKind::Receive };
        self.recorder.tensor(kind, bytes);
        self.recorder.collective(&Counted { kind, bytes, inside: ended.saturating_sub(began), copying: 0 });
        self.ring.push(|| Record::Message(message()));
    }

    /// A tensor will not be done.
    pub(crate) fn failed(&self, name: &str, submitted: u64, time: u64) {
        self.ring.push(|| Record::Failed(name.into(), submitted, time));
    }

    /// A collective begins or ends.
    pub(crate) fn running(&self, runs: bool) {
        self.change(|overlap| overlap.running = runs);
    }

    /// A caller begins to wait, or has waited.
    pub(crate) fn waiting(&self, waits: bool) {
        let thread = thread::current().id();
        self.change(|overlap| {
            overlap.waiting = if waits { overlap.waiting + 1 } else { overlap.waiting.saturating_sub(1) };
            overlap.doing.iter_mut().filter(|doing| doing.thread == thread).for_each(|doing| doing.waits = waits);
        });
    }

    /// What callers spent that has not been compared with other ranks yet.
    pub(crate) fn unsettled(&self) -> Spent {
        self.change(|_| ());
        self.recorder.unsettled()
    }

    /// Ranks have compared what they spent; `mine` is this rank's.
    pub(crate) fn settle(&self, mine: &Spent, common: &Common) {
        self.recorder.settle(mine, common, nanos().saturating_sub(self.start.0));
    }

    /// Measures the network now and then.
    pub(crate) fn network(&self, time: u64, round_trips: impl FnOnce() -> Vec<(Rank, Duration)>) {
        if time.saturating_sub(self.looked.load(Ordering::Relaxed)) >= LOOKS {
            self.looked.store(time, Ordering::Relaxed);
            self.recorder.round_trips(&round_trips());
        }
    }

    fn change(&self, change: impl FnOnce(&mut Overlap)) {
        let mut overlap: MutexGuard<'_, Overlap> = self.overlap.lock().unwrap_or_else(PoisonError::into_inner);
        let now = nanos();
        let span = now.saturating_sub(overlap.since);
        if overlap.running {
            let what = if overlap.waiting > 0 { Whole::Exposed } else { Whole::Hidden };
            self.recorder.add_whole(what, span);
        }
        if overlap.waiting > 0 {
            self.recorder.add_whole(Whole::Waited, span);
        }
        // Of nested phases, and of those in several threads, the one that began last counts.
        if let Some(doing) = overlap.doing.iter().rev().find(|doing| !doing.waits) {
            self.recorder.worked(doing.phase, span);
        }
        overlap.since = now;
        change(&mut overlap);
    }

    /// Updates numbers that the system keeps.
    pub(crate) fn refresh(&self) {
        self.change(|_| ());
        self.recorder.set_whole(Whole::Elapsed, nanos().saturating_sub(self.start.0));
        self.recorder.set_whole(Whole::Cpu, processor_time().saturating_sub(self.start.1));
        self.recorder.set_whole(Whole::Memory, largest_memory());
        self.note_memory();
        self.collect();
        self.note_usage();
    }

    /// Records how much memory is used now.
    fn note_memory(&self) {
        self.ring.push(|| Record::Memory(nanos(), memory("VmRSS:")));
    }
}

/// A part of a training step, from [`crate::Engine::phase`] until it is dropped.
#[derive(Debug)]
#[must_use = "the phase lasts until this is dropped"]
pub struct InPhase {
    stream: Arc<Stream>,
    phase: Phase,
    began: u64,
}

impl InPhase {
    pub(crate) fn begin(stream: Arc<Stream>, phase: Phase) -> Self {
        let began = nanos();
        let thread = thread::current().id();
        stream.change(|overlap| overlap.doing.push(Doing { phase, began, thread, waits: false }));
        Self { stream, phase, began }
    }
}

impl Drop for InPhase {
    fn drop(&mut self) {
        let (phase, began, ended) = (self.phase, self.began, nanos());
        self.stream.change(|overlap| {
            let mine = |doing: &Doing| doing.phase == phase && doing.began == began;
            if let Some(index) = overlap.doing.iter().rposition(mine) {
                overlap.doing.remove(index);
            }
        });
        self.stream.recorder.phase(phase, ended.saturating_sub(began));
        self.stream.ring.push(|| Record::Phase(phase, began, ended));
    }
}

/// Something that a front end does, from [`crate::Engine::span`] until it is dropped.
#[derive(Debug)]
#[must_use = "it lasts until this is dropped"]
pub struct InSpan {
    stream: Arc<Stream>,
    lane: &'static str,
    name: String,
    began: u64,
}

impl InSpan {
    pub(crate) fn begin(stream: Arc<Stream>, lane: &'static str, name: String) -> Self {
        Self { stream, lane, name, began: nanos() }
    }
}

impl Drop for InSpan {
    fn drop(&mut self) {
        let (lane, name) = (self.lane.to_owned(), std::mem::take(&mut self.name));
        self.stream.ring.push(|| Record::Span(lane, name, self.began, nanos()));
    }
}

/// The time, as records have it.
pub(crate) fn nanos() -> u64 {
    now().as_nanos() as u64
}

/// Nanoseconds of processor time, of all threads, in user and system mode together.
fn processor_time() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The most bytes that this process has had in memory.
pub fn largest_memory() -> u64 {
    memory("VmHWM:")
}

/// What the kernel reports under this name about the memory of this process, in bytes.
fn memory(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use std::{thread::sleep, time::Duration};

    use super::*;

    #[test]
    fn this_process_has_some_memory() {
        assert!(largest_memory() > 1 << 20);
    }

    #[test]
    fn what_runs_while_nobody_waits_is_hidden() {
        let recorder = Arc::new(Recorder::create().unwrap());
        let stream = Stream::new(recorder.clone(), false);
        let pause = Duration::from_millis(5);
        stream.running(true);
        sleep(pause);
        stream.waiting(true);
        sleep(pause);
        stream.running(false);
        sleep(pause);
        stream.waiting(false);
        sleep(pause);
        stream.refresh();
        let counts = recorder.counts();
        let [hidden, exposed, waited, elapsed, memory] =
            [Whole::Hidden, Whole::Exposed, Whole::Waited, Whole::Elapsed, Whole::Memory]
                .map(|what| counts.whole(what));
        let pause = pause.as_nanos() as u64;
        assert!(hidden >= pause && exposed >= pause && waited >= exposed + pause, "{hidden} {exposed} {waited}");
        assert!(elapsed >= hidden + waited + pause && memory > 1 << 20, "{elapsed} {memory}");
    }
}
