//! The flight recorder: the last things a rank did, in shared memory, so that others can read them after its end.
//!
//! One process writes, one thread at a time; any number of readers in any process. The memory has no name: others open it through
//! the process id and descriptor of [`Recorder::address`] while the process lives, and it exists as long as anybody has
//! it open. Records are words that are stored one by one; a reader drops those that may have been overwritten while it
//! looked. Behind them are counters: see [`crate::telemetry::counts`].

#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};

#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use serde::{Deserialize, Serialize};
use sirtaki_comm::{Alarm, CommError, Rank, shm::Segment};

use crate::telemetry::counts::Counts;

/// Records kept. Models are small.
const RECORDS: u64 = if cfg!(loom) { 2 } else { 4096 };
/// Words of a record: stage and sequence, time, bytes, name.
const WORDS: usize = if cfg!(loom) { 4 } else { 8 };
/// Most bytes of a name that are kept.
const NAME: usize = (WORDS - 3) * 8;
/// Words behind the last record.
const COUNTS: usize = crate::telemetry::counts::WORDS;
/// Words before the first record: magic, records begun, records finished, time of the last beat, culprit, meeting.
const HEAD: usize = 8;
const MAGIC: u64 = u64::from_le_bytes(*b"sirtaki3");

/// What a rank did with a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// It was handed in.
    Submitted = 1,
    /// The rank waits for the others to come as far, in an adopted order.
    Met = 2,
    /// Its collective began.
    Running = 3,
    /// It is done.
    Done = 4,
    /// It will not be done.
    Failed = 5,
    /// A message was handed in; in place of a sequence number, this and the following have the rank at the other end.
    Sending = 6,
    /// A message is waited for.
    Receiving = 7,
    /// A message was sent.
    Sent = 8,
    /// A message has come.
    Received = 9,
}

impl Stage {
    fn from_code(code: u64) -> Option<Stage> {
        use Stage::{Done, Failed, Met, Received, Receiving, Running, Sending, Sent, Submitted};
        let all = [Submitted, Met, Running, Done, Failed, Sending, Receiving, Sent, Received];
        all.into_iter().find(|stage| *stage as u64 == code)
    }

    /// Whether it is about a message, and not about a collective.
    pub fn is_message(self) -> bool {
        matches!(self, Stage::Sending | Stage::Receiving | Stage::Sent | Stage::Received)
    }
}

/// One thing a rank did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlightEntry {
    /// The collective's number on this rank; the next one's for a tensor that is not running yet.
    pub sequence: u64,
    /// What happened.
    pub stage: Stage,
    /// When, in nanoseconds of the host's monotonic clock.
    pub time: u64,
    /// Bytes of the tensor.
    pub bytes: u64,
    /// The tensor's name, cut to its first 40 bytes.
    pub name: String,
}

/// The rank that another one waited for in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Culprit {
    /// Which one.
    pub rank: Rank,
    /// Whether it ended or left; otherwise it was silent.
    pub gone: bool,
}

impl Culprit {
    /// The rank that this reason for an engine's end names.
    pub fn of(reason: &Alarm) -> Option<Culprit> {
        match reason {
            Alarm::PeerLost { rank, .. } => Some(Culprit { rank: *rank, gone: true }),
            Alarm::Timeout { rank, .. } => Some(Culprit { rank: *rank, gone: false }),
            Alarm::Mismatch { .. } | Alarm::Stopped { .. } => None,
        }
    }
}

/// A rank's record, to write or to read.
#[derive(Debug)]
pub struct Recorder {
    segment: Segment,
    /// Nothing is recorded.
    silent: bool,
    /// Held while an entry is written.
    writing: Mutex<()>,
    /// In place of those in the segment.
    #[cfg(loom)]
    words: Vec<AtomicU64>,
}

impl Recorder {
    /// Bytes of its memory.
    pub const SIZE: usize = (HEAD + RECORDS as usize * WORDS + COUNTS) * 8;

    fn over(segment: Segment) -> Self {
        Self {
            segment,
            silent: false,
            writing: Mutex::default(),
            #[cfg(loom)]
            words: (0..HEAD + RECORDS as usize * WORDS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// An empty record.
    pub fn create() -> Result<Self, CommError> {
        let recorder = Self::over(Segment::create(Self::SIZE)?);
        recorder.word(0).store(MAGIC, Ordering::Release);
        Ok(recorder)
    }

    /// The same, but whatever is added is dropped at once.
    pub(crate) fn silenced(self) -> Self {
        Self { silent: true, ..self }
    }

    /// Where others find it: process id and descriptor.
    pub fn address(&self) -> (u32, i32) {
        self.segment.address()
    }

    /// The record of another process on this host, which has to be alive for opening but not for reading.
    pub fn open(pid: u32, descriptor: i32) -> Result<Self, CommError> {
        let recorder = Self::over(Segment::open(pid, descriptor, Self::SIZE)?);
        if recorder.word(0).load(Ordering::Acquire) != MAGIC {
            let problem = format!("descriptor {descriptor} of process {pid} is not a flight record");
            return Err(CommError::Invalid { problem });
        }
        Ok(recorder)
    }

    /// As [`Recorder::open`], to write into: what was there is discarded. The memory belongs to a process that wants to
    /// read it after our end, and only one process may write.
    pub fn adopt(pid: u32, descriptor: i32) -> Result<Self, CommError> {
        let recorder = Self::open(pid, descriptor)?;
        (1..HEAD).for_each(|index| recorder.word(index).store(0, Ordering::Release));
        (0..COUNTS).filter_map(|index| recorder.count(index)).for_each(|count| count.store(0, Ordering::Release));
        Ok(recorder)
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        #[cfg(loom)]
        return &self.words[index];
        #[cfg(not(loom))]
        self.shared_word(index)
    }

    fn shared_word(&self, index: usize) -> &std::sync::atomic::AtomicU64 {
        debug_assert!(index < HEAD + RECORDS as usize * WORDS + COUNTS);
        // SAFETY: the segment has SIZE bytes, starts at a page and consists of words that are only used atomically.
        unsafe { &*self.segment.start().cast::<std::sync::atomic::AtomicU64>().add(index) }
    }

    fn place(number: u64) -> usize {
        HEAD + (number % RECORDS) as usize * WORDS
    }

    /// Adds an entry.
    pub fn note(&self, stage: Stage, sequence: u64, time: u64, bytes: u64, name: &str) {
        if self.silent {
            return;
        }
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.word(1).load(Ordering::Relaxed);
        let at = Self::place(number);
        let mut text = [0; NAME];
        let length = name.len().min(NAME);
        text[..length].copy_from_slice(&name.as_bytes()[..length]);
        // Announced first: a reader that sees new words sees that this record is being replaced.
        self.word(1).store(number + 1, Ordering::Release);
        fence(Ordering::Release);
        self.word(at).store((stage as u64) << 56 | (sequence & (u64::MAX >> 8)), Ordering::Relaxed);
        self.word(at + 1).store(time, Ordering::Relaxed);
        self.word(at + 2).store(bytes, Ordering::Relaxed);
        for (index, word) in text.chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(std::array::from_fn(|byte| word[byte]));
            self.word(at + 3 + index).store(word, Ordering::Relaxed);
        }
        self.word(2).store(number + 1, Ordering::Release);
    }

    /// One of the counters; `None` where nothing is recorded.
    pub(crate) fn count(&self, index: usize) -> Option<&std::sync::atomic::AtomicU64> {
        (!self.silent && index < COUNTS).then(|| self.shared_word(HEAD + RECORDS as usize * WORDS + index))
    }

    /// The counters, as they are now.
    pub fn counts(&self) -> Counts {
        Counts((0..COUNTS).map(|at| self.count(at).map_or(0, |word| word.load(Ordering::Relaxed))).collect())
    }

    /// Shows that the process was alive at this time.
    pub fn beat(&self, time: u64) {
        self.word(3).store(time, Ordering::Release);
    }

    /// When the process last showed that it was alive.
    pub fn last_beat(&self) -> u64 {
        self.word(3).load(Ordering::Acquire)
    }

    /// Records which rank this one waited for in vain. The first one counts.
    pub fn accuse(&self, culprit: Culprit) {
        let word = (culprit.rank as u64 + 1) << 1 | u64::from(culprit.gone);
        let _ = self.word(4).compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The rank that this one waited for in vain.
    pub fn culprit(&self) -> Option<Culprit> {
        let word = self.word(4).load(Ordering::Acquire);
        let rank = Rank::try_from((word >> 1).checked_sub(1)?).ok()?;
        Some(Culprit { rank, gone: word & 1 == 1 })
    }

    /// Records that this rank waits until all ranks of the job are there.
    pub fn set_meeting(&self) {
        self.word(5).store(1, Ordering::Release);
    }

    /// Whether this rank waits until all ranks of the job are there.
    pub fn is_meeting(&self) -> bool {
        self.word(5).load(Ordering::Acquire) == 1
    }

    /// What was done last, oldest first.
    pub fn read(&self) -> Vec<FlightEntry> {
        let finished = self.word(2).load(Ordering::Acquire);
        let first = finished.saturating_sub(RECORDS - 1);
        let records: Vec<(u64, Option<FlightEntry>)> =
            (first..finished).map(|number| (number, self.record(number))).collect();
        fence(Ordering::Acquire);
        let begun = self.word(1).load(Ordering::Relaxed);
        let kept = |number: u64| number + RECORDS > begun;
        records.into_iter().filter_map(|(number, record)| record.filter(|_| kept(number))).collect()
    }

    fn record(&self, number: u64) -> Option<FlightEntry> {
        let at = Self::place(number);
        let load = |index: usize| self.word(at + index).load(Ordering::Relaxed);
        let text: Vec<u8> =
            (3..WORDS).flat_map(|index| load(index).to_le_bytes()).take_while(|&byte| byte != 0).collect();
        Some(FlightEntry {
            sequence: load(0) & (u64::MAX >> 8),
            stage: Stage::from_code(load(0) >> 56)?,
            time: load(1),
            bytes: load(2),
            name: String::from_utf8_lossy(&text).into_owned(),
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_records_are_read_by_others() {
        let recorder = Recorder::create().unwrap();
        let (pid, descriptor) = recorder.address();
        let reader = Recorder::open(pid, descriptor).unwrap();
        assert!(reader.read().is_empty());
        for number in 0..10_000_u64 {
            recorder.note(
                Stage::Done,
                number,
                number * 3,
                4,
                &format!("tensor {number} with a name that is too long to keep"),
            );
        }
        let long_gone = recorder;
        drop(long_gone);
        let records = reader.read();
        assert_eq!(records.len() as u64, RECORDS - 1);
        assert_eq!(records.last().unwrap().sequence, 9999);
        assert!(records.windows(2).all(|pair| pair[1].sequence == pair[0].sequence + 1));
        assert_eq!(records.last().unwrap().name, "tensor 9999 with a name that is too long");
        assert_eq!((records[0].stage, records[0].bytes), (Stage::Done, 4));
    }

    #[test]
    fn a_silenced_record_stays_empty() {
        let recorder = Recorder::create().unwrap().silenced();
        recorder.note(Stage::Done, 1, 1, 4, "tensor");
        assert!(recorder.read().is_empty());
    }

    #[test]
    fn memory_of_another_process_is_written_anew() {
        let keeper = Recorder::create().unwrap();
        keeper.note(Stage::Done, 7, 1, 4, "from before");
        let (pid, descriptor) = keeper.address();
        let writer = Recorder::adopt(pid, descriptor).unwrap();
        assert!(keeper.read().is_empty());
        writer.note(Stage::Running, 1, 2, 8, "new");
        assert_ne!(writer.address(), keeper.address(), "others find the writer's through the writer");
        drop(writer);
        let records = keeper.read();
        assert_eq!((records.len(), records[0].name.as_str()), (1, "new"));
    }

    #[test]
    fn the_first_culprit_counts_until_the_memory_is_adopted() {
        let keeper = Recorder::create().unwrap();
        assert_eq!((keeper.culprit(), keeper.is_meeting()), (None, false));
        let gone = Culprit { rank: 0, gone: true };
        keeper.accuse(gone);
        keeper.accuse(Culprit { rank: 7, gone: false });
        keeper.set_meeting();
        assert_eq!((keeper.culprit(), keeper.is_meeting()), (Some(gone), true));
        let (pid, descriptor) = keeper.address();
        Recorder::adopt(pid, descriptor).unwrap();
        assert_eq!((keeper.culprit(), keeper.is_meeting()), (None, false));
        let silent =
            Alarm::Timeout { rank: 3, who: String::new(), operation: String::new(), waited: Default::default() };
        assert_eq!(Culprit::of(&silent), Some(Culprit { rank: 3, gone: false }));
        assert_eq!(Culprit::of(&Alarm::Stopped { reason: String::new() }), None);
    }

    #[test]
    fn other_memory_is_refused() {
        let other = Segment::create(Recorder::SIZE).unwrap();
        let (pid, descriptor) = other.address();
        assert!(Recorder::open(pid, descriptor).is_err());
    }
}

#[cfg(all(test, loom))]
mod model {
    use std::sync::Arc;

    use loom::thread;

    use super::*;

    /// The writer goes round the memory while the reader looks. What the reader keeps must be whole.
    #[test]
    fn a_record_that_is_read_was_written_at_once() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let recorder = Arc::new(Recorder::create().expect("a few bytes of shared memory"));
            let writer = {
                let recorder = recorder.clone();
                thread::spawn(move || {
                    (1..=3).for_each(|number| recorder.note(Stage::Done, number, number, number, &number.to_string()));
                })
            };
            for record in recorder.read() {
                let number = record.sequence;
                assert!((1..=3).contains(&number), "{record:?}");
                assert_eq!((record.time, record.bytes, record.name), (number, number, number.to_string()));
            }
            writer.join().expect("the writer does not panic");
        });
    }
}
