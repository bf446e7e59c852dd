//! Records on their way from the threads that make them to the thread that writes them: bounded, and never waited for.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use super::record::Record;

/// Most tensors, collectives, votes and phases kept. What comes while it is full is dropped and counted.
const ROOM: usize = 1 << 16;

#[derive(Debug, Default)]
struct Kept {
    records: Vec<Record>,
    weight: usize,
    dropped: u64,
}

/// The queue; closed at first.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    open: AtomicBool,
    kept: Mutex<Kept>,
}

impl Ring {
    /// Whether records are wanted.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Sets whether records are wanted from now on. Those already there stay.
    pub(crate) fn set_open(&self, open: bool) {
        self.open.store(open, Ordering::Relaxed);
    }

    /// Adds what `record` makes, if records are wanted.
    pub(crate) fn push(&self, record: impl FnOnce() -> Record) {
        if !self.is_open() {
            return;
        }
        let record = record();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let weight = record.weight();
        if kept.weight + weight > ROOM {
            kept.dropped += weight as u64;
            return;
        }
        kept.weight += weight;
        kept.records.push(record);
    }

    /// The oldest records, of at most this total weight but at least one record, and how much was dropped since the
    /// last call.
    pub(crate) fn take(&self, most: usize) -> (Vec<Record>, u64) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped = std::mem::take(&mut kept.dropped);
        if kept.weight <= most {
            kept.weight = 0;
            return (std::mem::take(&mut kept.records), dropped);
        }
        let mut weight = 0;
        let fits = |record: &&Record| {
            weight += record.weight();
            weight <= most
        };
        let count = kept.records.iter().take_while(fits).count().max(1);
        let taken: Vec<Record> = kept.records.drain(..count).collect();
        kept.weight -= taken.iter().map(Record::weight).sum::<usize>();
        (taken, dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded_and_says_what_is_missing() {
        let ring = Ring::default();
        ring.push(|| unreachable!("nobody wants it"));
        ring.set_open(true);
        (0..ROOM as u64 + 5).for_each(|time| ring.push(|| Record::Vote(time, time)));
        let (first, dropped) = ring.take(10);
        assert_eq!((first.len(), dropped), (10, 5));
        let (records, dropped) = ring.take(usize::MAX);
        assert_eq!((records.len(), dropped), (ROOM - 10, 0));
        assert_eq!(records[0], Record::Vote(10, 10));
        ring.push(|| Record::Vote(1, 1));
        ring.set_open(false);
        ring.push(|| Record::Vote(2, 2));
        assert_eq!(ring.take(usize::MAX), (vec![Record::Vote(1, 1)], 0));
    }
}
