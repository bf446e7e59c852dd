//! The store's contract, and the one pattern everything uses on it: every rank says something, every rank hears all.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{CommError, Rank};

/// Keys and values shared by all processes of a job. Values are small: addresses, names, certificates.
pub trait Store: Send + Sync {
    /// Sets a key, overwriting.
    fn set(&self, key: &str, value: &[u8]) -> Result<(), CommError>;

    /// The value of a key as soon as it has one; `None` when `deadline` passes first.
    fn wait(&self, key: &str, deadline: Instant) -> Result<Option<Vec<u8>>, CommError>;

    /// Adds to a counter that starts at zero and returns the sum.
    fn add(&self, key: &str, amount: i64) -> Result<i64, CommError>;
}

/// Every rank contributes some bytes and receives those of all ranks, in rank order. This is what connecting a group
/// needs; a store provides it at start-up, an existing communicator when it is split.
pub trait Exchange {
    /// One round. All members call it the same number of times.
    fn all(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, CommError>;
}

/// An [`Exchange`] through a [`Store`].
pub struct StoreExchange {
    store: Arc<dyn Store>,
    prefix: String,
    rank: Rank,
    size: usize,
    round: usize,
    patience: Duration,
}

impl StoreExchange {
    /// Rounds under `prefix`, which must be unused in this store, among `size` ranks.
    pub fn new(store: Arc<dyn Store>, prefix: impl Into<String>, rank: Rank, size: usize, patience: Duration) -> Self {
        Self { store, prefix: prefix.into(), rank, size, round: 0, patience }
    }

    fn missing(&self, rank: Rank) -> CommError {
        CommError::Timeout {
            rank,
            who: format!("rank {rank}"),
            operation: format!("start-up ({} of {} ranks expected)", self.size, self.size),
            waited: self.patience,
        }
    }
}

impl Exchange for StoreExchange {
    fn all(&mut self, mine: &[u8]) -> Result<Vec<Vec<u8>>, CommError> {
        let key = |rank: Rank| format!("{}/{}/{rank}", self.prefix, self.round);
        self.store.set(&key(self.rank), mine)?;
        let deadline = Instant::now() + self.patience;
        let values = (0..self.size)
            .map(|rank| self.store.wait(&key(rank), deadline)?.ok_or_else(|| self.missing(rank)))
            .collect();
        self.round += 1;
        values
    }
}
