//! Handles that callers hold, and what they stand for. They are numbers and not addresses, so that a wrong one is noticed.

use std::{collections::BTreeMap, sync::Mutex};

use crate::lock;

/// What one kind of handle stands for.
pub(crate) struct Table<T> {
    first: usize,
    entries: Mutex<(usize, BTreeMap<usize, T>)>,
}

impl<T: Clone> Table<T> {
    /// A table whose handles begin with `first`.
    pub(crate) const fn new(first: usize) -> Self {
        Self { first, entries: Mutex::new((0, BTreeMap::new())) }
    }

    /// A new handle.
    pub(crate) fn add(&self, value: T) -> usize {
        let mut entries = lock(&self.entries);
        let handle = self.first + entries.0 * 16;
        entries.0 += 1;
        entries.1.insert(handle, value);
        handle
    }

    /// What it stands for.
    pub(crate) fn get(&self, handle: usize) -> Option<T> {
        lock(&self.entries).1.get(&handle).cloned()
    }

    /// Takes it out.
    pub(crate) fn remove(&self, handle: usize) -> Option<T> {
        lock(&self.entries).1.remove(&handle)
    }

    /// Everything there is.
    pub(crate) fn all(&self) -> Vec<T> {
        lock(&self.entries).1.values().cloned().collect()
    }
}
