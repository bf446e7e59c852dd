//! Noticing that the same tensors come again and again.
//!
//! A *cycle* is what was agreed on since some tensor came for the second time. One that consists of all-reduces alone
//! is taken for a training step at once. A mixed one may contain set-up, so it has to be seen twice. The same goes for
//! any cycle once an order was abandoned, because a number that all ranks reduce now and then is not part of the step
//! before it. An order that was abandoned soon after its adoption has to prove itself for longer, so that alternating
//! work does not adopt and abandon orders in turn.

use std::collections::HashSet;

use crate::decide::message::{Entry, Id};

/// How often a cycle has to be seen at most before it is believed.
const MOST_PROOF: u32 = 64;
/// An order that held for this many cycles was worth adopting.
const WORTH: u64 = 4;

/// The cycle in progress and what is known of the ones before.
#[derive(Debug)]
pub(crate) struct Cycle {
    entries: Vec<Entry>,
    /// Where in these something came later than what is before it.
    begins: Vec<usize>,
    /// What is agreed on next comes later than what was before.
    later: bool,
    ids: HashSet<Id>,
    /// Whether it contains anything but all-reduces.
    mixed: bool,
    before: HashSet<Id>,
    /// How often in a row a finished cycle was the same as the one before.
    repeats: u32,
    proof: u32,
}

impl Default for Cycle {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            begins: Vec::new(),
            later: false,
            ids: HashSet::new(),
            mixed: false,
            before: HashSet::new(),
            repeats: 0,
            proof: 1,
        }
    }
}

impl Cycle {
    /// This was agreed on.
    pub(crate) fn agreed(&mut self, entry: Entry, mixed: bool) {
        if self.ids.contains(&entry.id) {
            self.repeats = if self.ids == self.before { self.repeats + 1 } else { 0 };
            self.before = std::mem::take(&mut self.ids);
            self.entries.clear();
            self.begins.clear();
            self.mixed = false;
        }
        if std::mem::take(&mut self.later) {
            self.begins.push(self.entries.len());
        }
        self.ids.insert(entry.id);
        self.entries.push(entry);
        self.mixed |= mixed;
    }

    /// What is agreed on from here on came later than what was before.
    pub(crate) fn go_on(&mut self) {
        self.later = true;
    }

    /// Whether the cycle in progress contains this.
    pub(crate) fn contains(&self, id: Id) -> bool {
        self.ids.contains(&id)
    }

    /// Whether the cycle in progress, once complete, may be repeated without announcing.
    pub(crate) fn is_proven(&self) -> bool {
        let proof = if self.mixed { self.proof.max(2) } else { self.proof };
        let seen = if self.ids == self.before { self.repeats + 2 } else { 1 };
        !self.entries.is_empty() && seen >= proof
    }

    /// What was agreed on, in order.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The positions of what came later than what is before it.
    pub(crate) fn begins(&self) -> &[usize] {
        &self.begins
    }

    /// Nothing seen so far counts any more.
    pub(crate) fn forget(&mut self) {
        *self = Self { proof: self.proof, ..Self::default() };
    }

    /// The adopted order was abandoned after this many cycles.
    pub(crate) fn left_after(&mut self, cycles: u64) {
        let proof = if cycles >= WORTH { 2 } else { (self.proof * 2).min(MOST_PROOF) };
        *self = Self { proof, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(cycle: &mut Cycle, ids: &[Id], mixed: bool) {
        ids.iter().for_each(|&id| cycle.agreed(Entry { id, define: None, rows: Vec::new() }, mixed));
    }

    #[test]
    fn a_plain_cycle_is_believed_at_once_and_a_mixed_one_the_second_time() {
        let mut cycle = Cycle::default();
        assert!(!cycle.is_proven());
        run(&mut cycle, &[1, 2, 3], false);
        assert!(cycle.is_proven());
        let mut cycle = Cycle::default();
        run(&mut cycle, &[1, 2, 3], true);
        assert!(!cycle.is_proven());
        run(&mut cycle, &[3, 1, 2], true);
        assert!(cycle.is_proven());
    }

    #[test]
    fn an_order_that_is_left_soon_has_to_prove_itself_longer() {
        let mut cycle = Cycle::default();
        run(&mut cycle, &[1, 2], false);
        cycle.left_after(1);
        run(&mut cycle, &[1, 2], false);
        assert!(!cycle.is_proven());
        run(&mut cycle, &[1, 2], false);
        assert!(cycle.is_proven());
        cycle.left_after(1);
        cycle.left_after(100);
        run(&mut cycle, &[1, 2], false);
        assert!(!cycle.is_proven());
        run(&mut cycle, &[1, 2], false);
        assert!(cycle.is_proven());
    }
}
