//! What happened on a rank, one record each: the same in memory, between ranks and for every consumer. Times are
//! nanoseconds of the host's monotonic clock.

use serde::{Deserialize, Serialize};
use sirtaki_comm::collective::Algorithm;

use super::counts::{CollectiveKind, Phase};

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Record {
    /// Tensors went through a collective.
    Batch(FinishedBatch),
    /// The rank waited until all had come as far, in an adopted order.
    Vote(u64, u64),
    /// A front end went through a part of a training step.
    Phase(Phase, u64, u64),
    /// A tensor, handed in at the first time, failed at the second.
    Failed(String, u64, u64),
    /// A message was sent or has come.
    Message(TracedMessage),
    /// This many bytes were in memory at this time.
    Memory(u64, u64),
    /// A device worked on a batch.
    Device(DeviceSpan),
    /// So much of the device was in use at this time.
    Gpu(u64, GpuSample),
    /// A front end did something: where to show it, what it is called, begin and end.
    Span(String, String, u64, u64),
}

/// A batch on a device, by the device's own clock, as times of the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceSpan {
    /// The number of the batch on this rank.
    pub(crate) number: u64,
    pub(crate) kind: CollectiveKind,
    pub(crate) bytes: u64,
    pub(crate) tensors: u64,
    pub(crate) began: u64,
    pub(crate) ended: u64,
    /// Nanoseconds in which the caller's stream had nothing else to do.
    pub(crate) exposed: u64,
}

impl DeviceSpan {
    /// Nanoseconds from the beginning to the end.
    pub(crate) fn lasted(&self) -> u64 {
        self.ended.saturating_sub(self.began)
    }
}

/// How much of a device is in use, by all processes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuSample {
    /// Bytes of its memory.
    pub memory: u64,
    /// Of how many.
    pub total: u64,
    /// Percent of the last moments in which it did anything.
    pub busy: Option<u32>,
}

/// A finished collective.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FinishedBatch {
    /// Its number on this rank.
    pub(crate) number: u64,
    pub(crate) kind: CollectiveKind,
    pub(crate) algorithm: Option<Algorithm>,
    /// Bytes that went through the communicator.
    pub(crate) bytes: u64,
    pub(crate) times: Times,
    pub(crate) tensors: Vec<Traced>,
}

/// The times of a collective.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Times {
    /// Work on it began.
    pub(crate) began: u64,
    /// The communicator was called for the first time.
    pub(crate) entered: u64,
    /// It was left for the last time.
    pub(crate) left: u64,
    /// Work on it ended.
    pub(crate) ended: u64,
}

/// One tensor of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Traced {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// It was handed in.
    pub(crate) submitted: u64,
    /// All ranks had it.
    pub(crate) agreed: u64,
    /// When each rank's request reached rank 0, by its clock; only on rank 0, where known.
    pub(crate) arrived: Vec<u64>,
}

/// A message, as one of its two ranks saw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TracedMessage {
    pub(crate) label: String,
    /// Whether this rank sent it.
    pub(crate) sends: bool,
    /// The other rank.
    pub(crate) peer: usize,
    pub(crate) bytes: u64,
    pub(crate) tag: u64,
    /// Handed in; its bytes began to move; done.
    pub(crate) times: (u64, u64, u64),
}

impl Record {
    /// How much it counts: a collective and each of its tensors, a vote, a phase.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Record::Batch(batch) => 1 + batch.tensors.len(),
            _ => 1,
        }
    }
}
