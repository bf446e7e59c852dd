//! A rank's place in an adopted order.

use std::collections::HashMap;

use crate::decide::{
    message::{Batch, Id},
    order::Step,
};

/// The adopted order and how far it has been repeated.
#[derive(Debug, Default)]
pub(crate) struct Following {
    schedule: Vec<Batch>,
    /// Which batch a tensor is part of.
    place: HashMap<Id, usize>,
    /// Whether the order may be abandoned before each batch: not while a bundle is half done.
    gaps: Vec<bool>,
    /// Tensors of each batch that this rank does not have yet.
    missing: Vec<usize>,
    /// Batches begun since the order was adopted.
    position: i64,
    /// This rank votes for the end.
    pub(crate) leaving: bool,
    /// All have voted, and the order ends once the batches agreed on have run.
    pub(crate) over: bool,
}

impl Following {
    pub(crate) fn new<'a>(schedule: Vec<Batch>, bundle: impl Fn(Id) -> Option<&'a str>) -> Self {
        let place = schedule
            .iter()
            .enumerate()
            .flat_map(|(at, batch)| batch.entries.iter().map(move |entry| (entry.id, at)))
            .collect();
        let missing = schedule.iter().map(|batch| batch.entries.len()).collect();
        let gaps = gaps(&schedule, bundle);
        Self { schedule, place, gaps, missing, ..Self::default() }
    }

    /// This rank has this tensor now; says whether the order has a place for it.
    pub(crate) fn has(&mut self, id: Id) -> bool {
        let Some(&at) = self.place.get(&id) else { return false };
        let here = self.at(self.position);
        // A tensor that has had its turn in this cycle comes again: the rank has gone on without the rest.
        let skipped = at < here && self.missing[here..].iter().any(|&missing| missing > 0);
        if skipped || self.missing[at] == 0 {
            return false;
        }
        self.missing[at] -= 1;
        true
    }

    fn at(&self, position: i64) -> usize {
        (position % self.schedule.len().max(1) as i64) as usize
    }

    /// The vote, once this rank has something to say.
    pub(crate) fn vote(&self) -> Option<Step> {
        let cycle = self.schedule.len() as i64;
        let ready = (0..cycle).take_while(|ahead| self.missing[self.at(self.position + ahead)] == 0).count() as i64;
        let ready = (0..=ready).rev().find(|ahead| self.gaps[self.at(self.position + ahead)]).unwrap_or(0);
        (ready > 0 || self.leaving).then_some(Step::Vote { through: self.position + ready, stay: !self.leaving })
    }

    /// The batches all ranks are ready for.
    pub(crate) fn voted(&mut self, through: i64, stay: bool) -> Vec<Batch> {
        self.over = !stay;
        let mut run = Vec::new();
        while self.position < through {
            let at = self.at(self.position);
            self.missing[at] = self.schedule[at].entries.len();
            run.push(self.schedule[at].clone());
            self.position += 1;
        }
        run
    }

    /// Full cycles so far.
    pub(crate) fn cycles(&self) -> u64 {
        self.position as u64 / self.schedule.len().max(1) as u64
    }
}

/// Before which batches no bundle is half done.
fn gaps<'a>(schedule: &[Batch], bundle: impl Fn(Id) -> Option<&'a str>) -> Vec<bool> {
    let mut spans: HashMap<&str, (usize, usize)> = HashMap::new();
    for (at, batch) in schedule.iter().enumerate() {
        for name in batch.entries.iter().filter_map(|entry| bundle(entry.id)) {
            spans.entry(name).or_insert((at, at)).1 = at;
        }
    }
    let inside = |at: usize| spans.values().any(|&(first, last)| first < at && at <= last);
    (0..schedule.len()).map(|at| !inside(at)).collect()
}
