//! What the lines of a ledger say together. Pure: lines in, decisions out.

use std::collections::{BTreeMap, HashMap};

use super::record::Record;

/// A tile that is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// The checksum of what was written.
    pub sum: u64,
    /// Who computed it.
    pub by: String,
}

#[derive(Debug, Clone)]
struct Lease {
    until: u64,
    by: String,
}

#[derive(Debug, Default)]
pub(super) struct State {
    done: BTreeMap<u64, Done>,
    leases: HashMap<u64, Lease>,
    damaged: u64,
    /// How many tiles at the start of an order are known to be done, and which order that is: its length and first tile.
    skipped: usize,
    order: (usize, Option<u64>),
}

impl State {
    pub(super) fn done(&self) -> &BTreeMap<u64, Done> {
        &self.done
    }

    pub(super) fn damaged(&self) -> u64 {
        self.damaged
    }

    pub(super) fn is_free(&self) -> bool {
        self.leases.is_empty()
    }

    pub(super) fn free_all(&mut self) {
        self.leases.clear();
    }

    pub(super) fn read(&mut self, line: &[u8], plan: u64) {
        match Record::parse(line) {
            Some(record) => self.apply(record, plan),
            None => self.damaged += 1,
        }
    }

    pub(super) fn apply(&mut self, record: Record, plan: u64) {
        match record {
            Record::Done { done, sum, plan: of, by } => {
                let number = |text: &str| u64::from_str_radix(text, 16).ok();
                match (number(&sum), number(&of) == Some(plan)) {
                    (Some(sum), true) => {
                        self.leases.remove(&done);
                        self.done.entry(done).or_insert(Done { sum, by });
                    }
                    _ => self.damaged += 1,
                }
            }
            Record::Lease { lease, until, by } => {
                let free = lease.into_iter().filter(|tile| !self.done.contains_key(tile));
                self.leases.extend(free.map(|tile| (tile, Lease { until, by: by.clone() })));
            }
            Record::Free { free, by } => {
                for tile in free {
                    if self.leases.get(&tile).is_some_and(|lease| lease.by == by) {
                        self.leases.remove(&tile);
                    }
                }
            }
            Record::Redo { redo, .. } => {
                self.done.remove(&redo);
                self.skipped = 0;
            }
            Record::AllFree {} => self.free_all(),
        }
    }

    /// The first tiles that nobody has done or is doing.
    pub(super) fn choose(&mut self, order: &[u64], count: usize, now: u64) -> Vec<u64> {
        let done = |tile: &&u64| self.done.contains_key(*tile);
        let asked = (order.len(), order.first().copied());
        if std::mem::replace(&mut self.order, asked) != asked {
            self.skipped = 0;
        }
        self.skipped += order[self.skipped..].iter().take_while(done).count();
        let free = |tile: &&u64| {
            !self.done.contains_key(*tile) && self.leases.get(*tile).is_none_or(|lease| lease.until <= now)
        };
        order[self.skipped..].iter().filter(free).take(count).copied().collect()
    }

    /// The tiles that a worker has leased, in order.
    pub(super) fn leased_by(&self, worker: &str) -> Vec<u64> {
        let own = self.leases.iter().filter(|(_, lease)| lease.by == worker);
        let mut tiles: Vec<u64> = own.map(|(tile, _)| *tile).collect();
        tiles.sort_unstable();
        tiles
    }
}
