//! What a rank has done, in numbers: a table of fixed size, for a profile at the end or after a failure.
//!
//! The numbers are words in the memory of the flight record, so other processes of the host, and the launcher, can read
//! them however the rank ended. They are added up where something happens and put into words elsewhere.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::{lateness, record::DeviceSpan};
use crate::{decide::request::Operation, telemetry::recorder::Recorder};

/// What is counted separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum CollectiveKind {
    /// All-reduces.
    AllReduce,
    /// Adaptive sums.
    Adasum,
    /// Gathers to all ranks.
    AllGather,
    /// Broadcasts.
    Broadcast,
    /// Exchanges of rows.
    AllToAll,
    /// Reductions of which every rank gets a share.
    ReduceScatter,
    /// Barriers, joins and the making of process sets.
    Barrier,
    /// The small reductions by which ranks that repeat an order find out how far all of them have come.
    Vote,
    /// Messages to another rank.
    Send,
    /// Messages from another rank.
    Receive,
}

impl CollectiveKind {
    /// All of them, in the order of the table.
    pub const ALL: [CollectiveKind; 10] = [
        CollectiveKind::AllReduce,
        CollectiveKind::Adasum,
        CollectiveKind::AllGather,
        CollectiveKind::Broadcast,
        CollectiveKind::AllToAll,
        CollectiveKind::ReduceScatter,
        CollectiveKind::Barrier,
        CollectiveKind::Vote,
        CollectiveKind::Send,
        CollectiveKind::Receive,
    ];

    /// What an operation counts as.
    pub fn of(operation: &Operation) -> CollectiveKind {
        match operation {
            Operation::AllReduce(_) => CollectiveKind::AllReduce,
            Operation::Adasum => CollectiveKind::Adasum,
            Operation::AllGather => CollectiveKind::AllGather,
            Operation::Broadcast { .. } => CollectiveKind::Broadcast,
            Operation::AllToAll { .. } => CollectiveKind::AllToAll,
            Operation::ReduceScatter(_) => CollectiveKind::ReduceScatter,
            Operation::Barrier | Operation::Join | Operation::ProcessSet { .. } => CollectiveKind::Barrier,
        }
    }

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            CollectiveKind::AllReduce => "all_reduce",
            CollectiveKind::Adasum => "adasum",
            CollectiveKind::AllGather => "all_gather",
            CollectiveKind::Broadcast => "broadcast",
            CollectiveKind::AllToAll => "all_to_all",
            CollectiveKind::ReduceScatter => "reduce_scatter",
            CollectiveKind::Barrier => "barrier",
            CollectiveKind::Vote => "vote",
            CollectiveKind::Send => "send",
            CollectiveKind::Receive => "receive",
        }
    }
}

/// A part of a training step that a front end knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Phase {
    /// Getting the next batch of samples.
    Input,
    /// From samples to a loss.
    Forward,
    /// From a loss to gradients.
    Backward,
    /// From gradients to new parameters.
    Optimizer,
}

impl Phase {
    /// All of them, in the order of a step.
    pub const ALL: [Phase; 4] = [Phase::Input, Phase::Forward, Phase::Backward, Phase::Optimizer];

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Input => "input",
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::Optimizer => "optimizer",
        }
    }
}

/// Size classes: nothing, then from each power of four up to the next, and everything above the last.
pub const SIZES: usize = 18;

/// The size class of this many bytes.
pub(crate) fn size_class(bytes: u64) -> usize {
    bytes.checked_ilog(4).map_or(0, |power| (power as usize + 1).min(SIZES - 1))
}

/// Numbers of a kind before its sizes.
const SINGLE: usize = 9;
/// Words of a kind: those numbers; tensors, collectives and nanoseconds by size.
const OF_KIND: usize = SINGLE + 3 * SIZES;
/// Where the numbers of the whole rank begin.
const WHOLE: usize = CollectiveKind::ALL.len() * OF_KIND;
/// Where the phases begin: how often and how many nanoseconds for each.
const PHASES: usize = WHOLE + Whole::ALL;
/// Where lateness begins.
const LATE: usize = PHASES + 2 * Phase::ALL.len();
/// The largest number that is believed: 52 days in nanoseconds, 4.5 PB.
const LARGEST: u64 = u64::MAX >> 12;
/// Where the words begin that the program reports about itself.
pub(super) const PROGRESS: usize = LATE + lateness::WORDS;
/// Words of the table.
pub(crate) const WORDS: usize = PROGRESS + super::progress::WORDS + super::staleness::WORDS;

/// A number of the whole rank. Times are nanoseconds.
#[derive(Debug, Clone, Copy)]
#[repr(usize)]
pub(crate) enum Whole {
    /// Since the start.
    Elapsed,
    /// Processor time since the start.
    Cpu,
    /// The most bytes of memory used.
    Memory,
    /// Time in which a collective ran and nobody waited.
    Hidden,
    /// Time in which a collective ran and somebody waited.
    Exposed,
    /// Time in which somebody waited.
    Waited,
    /// Time in which a device worked on collectives and the caller's stream had other work.
    DeviceHidden,
    /// Time in which a device worked on collectives and the caller's stream waited for them.
    DeviceExposed,
    /// The most bytes of the device's memory in use, by all processes.
    GpuMemory,
    /// All bytes of the device's memory.
    GpuTotal,
    /// The sum of all samples of how busy the device was, in percent.
    GpuBusy,
    /// How many samples there are.
    GpuSamples,
    /// Bytes of the device's memory in use by the last sample.
    GpuMemoryNow,
    /// One more than the percentage of the last sample of how busy it was; 0 if it did not say.
    GpuBusyNow,
}

impl Whole {
    const ALL: usize = 14;
}

/// How much of a rank's GPU was in use, by all processes together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GpuUse {
    /// The most bytes of its memory.
    pub memory: u64,
    /// Of how many.
    pub total: u64,
    /// Percent of the time in which it did anything, on average.
    pub busy: Option<f64>,
}

/// A finished collective, as it is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    pub(crate) kind: CollectiveKind,
    /// Bytes that went through the communicator.
    pub(crate) bytes: u64,
    /// Nanoseconds there.
    pub(crate) inside: u64,
    /// Nanoseconds around it.
    pub(crate) copying: u64,
}

impl Recorder {
    pub(crate) fn add(&self, index: usize, value: u64) {
        if let Some(word) = self.count(index) {
            word.fetch_add(value, Ordering::Relaxed);
        }
    }

    /// A tensor is done.
    pub(crate) fn tensor(&self, kind: CollectiveKind, bytes: u64) {
        let base = kind as usize * OF_KIND;
        self.add(base, 1);
        self.add(base + 1, bytes);
        self.add(base + SINGLE + size_class(bytes), 1);
    }

    /// A collective is done.
    pub(crate) fn collective(&self, counted: &Counted) {
        let base = counted.kind as usize * OF_KIND;
        let sizes = base + SINGLE;
        self.add(base + 2, 1);
        self.add(base + 3, counted.bytes);
        self.add(base + 4, counted.inside);
        self.add(base + 5, counted.copying);
        self.add(sizes + SIZES + size_class(counted.bytes), 1);
        self.add(sizes + 2 * SIZES + size_class(counted.bytes), counted.inside);
    }

    /// A device has worked on a collective.
    pub(crate) fn device(&self, span: &DeviceSpan) {
        let base = span.kind as usize * OF_KIND;
        self.add(base + 6, 1);
        self.add(base + 7, span.bytes);
        self.add(base + 8, span.lasted());
        self.add_whole(Whole::DeviceExposed, span.exposed.min(span.lasted()));
        self.add_whole(Whole::DeviceHidden, span.lasted().saturating_sub(span.exposed));
    }

    /// A phase of a training step has taken this long.
    pub(crate) fn phase(&self, phase: Phase, nanos: u64) {
        self.add(PHASES + 2 * phase as usize, 1);
        self.add(PHASES + 2 * phase as usize + 1, nanos);
    }

    pub(crate) fn add_whole(&self, what: Whole, value: u64) {
        self.add(WHOLE + what as usize, value);
    }

    pub(crate) fn whole(&self, what: Whole) -> u64 {
        self.count(WHOLE + what as usize).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// A word of the part about lateness.
    pub(crate) fn late(&self, index: usize) -> Option<&AtomicU64> {
        self.count(LATE + index)
    }

    pub(crate) fn set_whole(&self, what: Whole, value: u64) {
        if let Some(word) = self.count(WHOLE + what as usize) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

/// The table at some moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts(pub(crate) Vec<u64>);

impl Counts {
    /// A word, limited so that sums over thousands of ranks never overflow, whatever a rank reports.
    pub(super) fn get(&self, index: usize) -> u64 {
        let word = self.0.get(index).copied().unwrap_or(0);
        if index < PROGRESS { word.min(LARGEST) } else { word }
    }

    /// Whether anything has been counted.
    pub fn is_empty(&self) -> bool {
        CollectiveKind::ALL.iter().all(|&kind| self.collectives(kind) == 0)
    }

    /// Tensors of a kind.
    pub fn tensors(&self, kind: CollectiveKind) -> u64 {
        self.get(kind as usize * OF_KIND)
    }

    /// Their bytes.
    pub fn tensor_bytes(&self, kind: CollectiveKind) -> u64 {
        self.get(kind as usize * OF_KIND + 1)
    }

    /// Collectives of a kind.
    pub fn collectives(&self, kind: CollectiveKind) -> u64 {
        self.get(kind as usize * OF_KIND + 2)
    }

    /// Their bytes.
    pub fn collective_bytes(&self, kind: CollectiveKind) -> u64 {
        self.get(kind as usize * OF_KIND + 3)
    }

    /// Nanoseconds in them, on this rank.
    pub fn nanos(&self, kind: CollectiveKind) -> u64 {
        self.get(kind as usize * OF_KIND + 4)
    }

    /// Nanoseconds around them, for copies into a buffer and out of it.
    pub fn copying(&self, kind: CollectiveKind) -> u64 {
        self.get(kind as usize * OF_KIND + 5)
    }

    /// Collectives of a kind that a device worked on, their bytes, and nanoseconds of the device.
    pub fn device(&self, kind: CollectiveKind) -> (u64, u64, u64) {
        let at = kind as usize * OF_KIND;
        (self.get(at + 6), self.get(at + 7), self.get(at + 8))
    }

    /// How much of the rank's GPU was in use, if it has one that says so.
    pub fn gpu(&self) -> Option<GpuUse> {
        let [memory, total, busy, samples] =
            [Whole::GpuMemory, Whole::GpuTotal, Whole::GpuBusy, Whole::GpuSamples].map(|what| self.whole(what));
        let busy = (samples > 0).then(|| busy as f64 / samples as f64);
        (total > 0).then_some(GpuUse { memory, total, busy })
    }

    /// Tensors, collectives and nanoseconds of a kind in a size class.
    pub fn of_size(&self, kind: CollectiveKind, class: usize) -> (u64, u64, u64) {
        let at = kind as usize * OF_KIND + SINGLE + class;
        (self.get(at), self.get(at + SIZES), self.get(at + 2 * SIZES))
    }

    /// How often a phase was run, and nanoseconds in it.
    pub fn phase(&self, phase: Phase) -> (u64, u64) {
        let at = PHASES + 2 * phase as usize;
        (self.get(at), self.get(at + 1))
    }

    /// A word of the part about lateness.
    pub(crate) fn late(&self, index: usize) -> u64 {
        self.get(LATE + index)
    }

    /// Nanoseconds since the start, brought up to date every second.
    pub fn elapsed(&self) -> u64 {
        self.whole(Whole::Elapsed)
    }

    /// Nanoseconds in which a caller waited for a result, brought up to date every second.
    pub fn waited(&self) -> u64 {
        self.whole(Whole::Waited)
    }

    /// The most bytes of memory used so far.
    pub fn memory(&self) -> u64 {
        self.whole(Whole::Memory)
    }

    pub(crate) fn whole(&self, what: Whole) -> u64 {
        self.get(WHOLE + what as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_apart_by_powers_of_four() {
        let classes = [0, 1, 3, 4, 15, 16, 1 << 20, u64::MAX].map(size_class);
        assert_eq!(classes, [0, 1, 1, 2, 2, 3, 11, SIZES - 1]);
    }

    #[test]
    fn what_is_counted_is_read_by_others() {
        let recorder = Recorder::create().unwrap();
        let (pid, descriptor) = recorder.address();
        let reader = Recorder::open(pid, descriptor).unwrap();
        assert!(reader.counts().is_empty());
        let counted = Counted { kind: CollectiveKind::AllReduce, bytes: 128, inside: 7, copying: 2 };
        [4, 100, 64].iter().for_each(|&bytes| recorder.tensor(CollectiveKind::AllReduce, bytes));
        recorder.collective(&counted);
        recorder.collective(&Counted { bytes: 64, ..counted });
        recorder.phase(Phase::Backward, 9);
        recorder.set_whole(Whole::Memory, 5);
        let counts = reader.counts();
        assert_eq!(
            (counts.tensors(CollectiveKind::AllReduce), counts.tensor_bytes(CollectiveKind::AllReduce)),
            (3, 168)
        );
        assert_eq!(
            (counts.collectives(CollectiveKind::AllReduce), counts.collective_bytes(CollectiveKind::AllReduce)),
            (2, 192)
        );
        assert_eq!((counts.nanos(CollectiveKind::AllReduce), counts.copying(CollectiveKind::AllReduce)), (14, 4));
        assert_eq!(counts.of_size(CollectiveKind::AllReduce, size_class(100)), (2, 2, 14));
        assert_eq!(counts.of_size(CollectiveKind::AllReduce, size_class(4)), (1, 0, 0));
        assert_eq!((counts.phase(Phase::Backward), counts.whole(Whole::Memory)), ((1, 9), 5));
        assert_eq!(counts.collectives(CollectiveKind::Vote), 0);
        let silent = recorder.silenced();
        silent.collective(&counted);
        assert_eq!(reader.counts(), counts);
    }
}
