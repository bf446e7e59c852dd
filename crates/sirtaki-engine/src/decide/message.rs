//! What ranks say to the table (rank 0) and what the table says to all of them.
//!
//! Every rank hears the same verdicts in the same order, and whatever ranks do together follows from them; that is why
//! they cannot run different things. An *epoch* numbers the times at which all ranks start announcing afresh: words of
//! an older epoch are void.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sirtaki_comm::{Alarm, Rank};

use crate::decide::{request::Request, waits::MessageState};

/// A tensor's number once it is known.
pub type Id = u32;

/// One tensor of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number.
    pub id: Id,
    /// What it is, where that is new or has changed: the request of the first rank that has one.
    pub define: Option<Box<Request>>,
    /// Rows by rank for an all_gather, by sender and then receiver for an all_to_all; empty for everything else.
    pub rows: Vec<usize>,
}

/// Tensors that go through one collective.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Batch {
    /// In the order in which they lie in the buffer.
    pub entries: Vec<Entry>,
}

/// What a rank says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Word {
    /// It wants this, which the table does not know yet.
    Announce(Box<Request>),
    /// It wants these again, exactly as last time.
    Ready(Vec<Id>),
    /// It asked for this name while it was still waiting for it.
    Twice(String),
    /// It no longer follows the repeated order.
    Deviate,
    /// Every thread that submits waits, after the rank has acted on this many verdicts and with messages in this state;
    /// see `deadlock`.
    Blocked(u64, MessageState),
    /// That is no longer so.
    Unblocked,
    /// It leaves in good order.
    Goodbye,
}

/// A word and the epoch it belongs to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spoken {
    /// The speaker's epoch.
    pub epoch: u64,
    /// What it says.
    pub word: Word,
}

/// Requests of one name that cannot be done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// The tensor's name.
    pub name: String,
    /// Ranks that had not asked for it. If they ask before they hear of this, that is another request.
    pub not_asked: Vec<Rank>,
}

/// What the table says to all ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Verdict {
    /// Run these, in this order.
    Run(Vec<Batch>),
    /// These cannot be done, and this is why.
    Refuse(Vec<Refusal>, String),
    /// All ranks have joined; this rank was the last.
    Joined(Rank),
    /// From now on these batches are repeated, in this epoch, without further words.
    Adopt(u64, Vec<Batch>),
    /// A rank no longer follows the repeated order of this epoch.
    Deviate(u64),
    /// Forget all numbers and announce again what is wanted, in this epoch.
    Restart(u64),
    /// This rank has left in good order.
    Left(Rank),
    /// Everything ends, and this is why.
    Fail(Alarm),
}

impl Verdict {
    /// Has these batches run, with at most this many entries in a verdict unless a single batch has more.
    pub(crate) fn run(batches: Vec<Batch>, most: usize) -> Vec<Verdict> {
        let mut verdicts: Vec<Verdict> = Vec::new();
        let mut entries = 0;
        for batch in batches {
            entries += batch.entries.len();
            match verdicts.last_mut() {
                Some(Verdict::Run(run)) if entries <= most => run.push(batch),
                _ => {
                    entries = batch.entries.len();
                    verdicts.push(Verdict::Run(vec![batch]));
                }
            }
        }
        verdicts
    }
}

/// Most bytes of a message.
pub const MESSAGE_LIMIT: usize = 64 << 20;

/// The message as bytes.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(message).expect("plain data in memory always has an encoding")
}

/// The message in these bytes, if they are a valid one.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::from_bytes(bytes).ok()
}
