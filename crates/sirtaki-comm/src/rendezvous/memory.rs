//! A store inside one process: for ranks that are threads, and what a [`TcpStoreServer`](super::TcpStoreServer) serves.

use std::{
    collections::HashMap,
    sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Instant,
};

use super::{Store, wire};
use crate::CommError;

/// Most keys, values and counters together.
const KEYS: usize = 1 << 18;
/// Most bytes of all values.
const BYTES: usize = 256 << 20;

/// Hears every value of keys that begin in some way.
type Listener = Box<dyn Fn(&[u8]) + Send + Sync>;

/// A store in this process's memory.
#[derive(Default)]
pub struct MemoryStore {
    tables: Mutex<Tables>,
    changed: Condvar,
    /// Who hears of keys with this beginning.
    listener: OnceLock<(String, Listener)>,
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").field("tables", &self.tables).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Tables {
    values: HashMap<String, Vec<u8>>,
    counters: HashMap<String, i64>,
    bytes: usize,
    closed: bool,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on, `heard` gets every value of keys that begin with `prefix`, in the order in which they are set. They
    /// are not kept. Only the first listener counts.
    pub fn listen(&self, prefix: &str, heard: impl Fn(&[u8]) + Send + Sync + 'static) {
        let _ = self.listener.set((prefix.to_owned(), Box::new(heard)));
    }

    /// Forgets all keys and counters that begin with `prefix`.
    pub fn forget(&self, prefix: &str) {
        let mut tables = self.tables();
        let Tables { values, counters, bytes, .. } = &mut *tables;
        values.retain(|key, value| {
            let kept = !key.starts_with(prefix);
            *bytes -= if kept { 0 } else { value.len() };
            kept
        });
        counters.retain(|key, _| !key.starts_with(prefix));
    }

    /// Ends all waits, now and later.
    pub(super) fn close(&self) {
        self.tables().closed = true;
        self.changed.notify_all();
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    fn room(&self, new_key: bool, more: usize) -> Result<(), CommError> {
        let keys = self.values.len() + self.counters.len() + usize::from(new_key);
        if keys > KEYS || self.bytes + more > BYTES {
            let problem = format!("the store is full ({keys} keys, {} bytes of values)", self.bytes);
            return Err(CommError::Invalid { problem });
        }
        Ok(())
    }
}

impl Store for MemoryStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<(), CommError> {
        wire::check(key, value)?;
        if let Some((prefix, heard)) = self.listener.get()
            && key.starts_with(prefix)
        {
            heard(value);
            return Ok(());
        }
        let mut tables = self.tables();
        let old = tables.values.get(key).map(Vec::len);
        tables.room(old.is_none(), value.len())?;
        tables.bytes = tables.bytes + value.len() - old.unwrap_or(0);
        tables.values.insert(key.into(), value.into());
        drop(tables);
        self.changed.notify_all();
        Ok(())
    }

    fn wait(&self, key: &str, deadline: Instant) -> Result<Option<Vec<u8>>, CommError> {
        wire::check(key, &[])?;
        let mut tables = self.tables();
        loop {
            if let Some(value) = tables.values.get(key) {
                return Ok(Some(value.clone()));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || tables.closed {
                return Ok(None);
            }
            tables = self.changed.wait_timeout(tables, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn add(&self, key: &str, amount: i64) -> Result<i64, CommError> {
        wire::check(key, &[])?;
        let mut tables = self.tables();
        tables.room(!tables.counters.contains_key(key), 0)?;
        let counter = tables.counters.entry(key.into()).or_default();
        *counter = counter.wrapping_add(amount);
        Ok(*counter)
    }
}
