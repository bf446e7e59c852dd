//! The contents of a block, and how pushes change it.
//!
//! With a delay of zero, gradients of one clock wait for each other and change weights together; otherwise each changes
//! them as it comes, at the rate divided by the number of workers, so that all workers together move weights as far in
//! either way. What a server does to a block follows from the messages about it and their order alone, so a copy that
//! gets the same messages in the same order has the same bits.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use super::{
    Id,
    clock::Clocks,
    message::{Parcel, Piece, StepNumbers, Waiting},
    sums::{Part, gradient},
    table::{BlockId, Rows, TableSpec},
};
use crate::rule::{Change, Rule, Rules};

/// The slot that says how often the block of a row was changed, exactly up to 2^24, beyond which no rule minds.
pub const CHANGES: u32 = u32::MAX;

/// A block of a table.
pub struct Block {
    table: TableSpec,
    number: u32,
    rule: Arc<dyn Rule>,
    /// First the weights, then what their rule keeps.
    slots: Vec<Vec<f32>>,
    changes: u64,
    /// The pushes that are part of it.
    pub(super) clocks: Clocks,
    /// Gradients that wait for those of other workers.
    pending: BTreeMap<u64, (StepNumbers, Vec<Part>)>,
    /// The servers that have it in the view that is served.
    pub(super) owners: Vec<Id>,
}

impl Block {
    /// A new block with these weights, or with zeros.
    pub(super) fn new(table: &TableSpec, number: u32, weights: &[f32], rules: &Rules) -> Result<Self, String> {
        let rule = rules.find(&table.rule)?;
        let mut block = Self {
            table: table.clone(),
            number,
            rule,
            slots: Vec::new(),
            changes: 0,
            clocks: Clocks::default(),
            pending: BTreeMap::new(),
            owners: Vec::new(),
        };
        block.slots = vec![vec![0.0; block.elements()]; 1 + block.rule.slots()];
        if weights.len() == block.elements() {
            block.slots[0].copy_from_slice(weights);
        }
        Ok(block)
    }

    /// What it is known by.
    pub(super) fn id(&self) -> BlockId {
        self.table.block(self.number)
    }

    /// What it is part of.
    pub(super) fn table(&self) -> &TableSpec {
        &self.table
    }

    /// How many rows it has.
    pub(super) fn rows(&self) -> u64 {
        let rows = self.table.block_rows(self.number);
        rows.end - rows.start
    }

    /// Elements of a row.
    pub(super) fn width(&self) -> usize {
        self.table.width as usize
    }

    fn elements(&self) -> usize {
        self.rows() as usize * self.width()
    }

    /// Adds a worker's gradient to those of its clock.
    pub(super) fn wait(&mut self, worker: Id, clock: u64, step: StepNumbers, piece: &Piece, data: &[f32]) {
        let part = self.part(worker, piece, data);
        match self.pending.entry(clock) {
            Entry::Occupied(mut pending) => pending.get_mut().1.push(part),
            Entry::Vacant(pending) => drop(pending.insert((step, vec![part]))),
        }
    }

    /// Changes weights by all gradients of clocks that everybody has passed.
    pub(super) fn catch_up(&mut self, slowest: u64) {
        while let Some(entry) = self.pending.first_entry().filter(|entry| *entry.key() < slowest) {
            let (clock, (step, parts)) = entry.remove_entry();
            let workers = self.clocks.beyond(clock);
            if let Some(sum) = gradient(&step, parts, workers, self.width()) {
                self.change(step.rate, sum.touched.as_deref(), &sum.values);
            }
        }
    }

    /// Changes weights by one gradient, one of so many workers'.
    pub(super) fn apply(&mut self, worker: Id, step: StepNumbers, workers: u32, piece: &Piece, data: &[f32]) {
        let rate = step.rate / f64::from(workers.max(1));
        if data.len() == self.elements() {
            return self.change(rate, None, data);
        }
        let part = self.part(worker, piece, data);
        self.change(rate, part.touched.as_deref(), &part.values);
    }

    fn part(&self, worker: Id, piece: &Piece, data: &[f32]) -> Part {
        let (leaves, width) = (piece.leaves, self.width());
        if data.len() == self.elements() {
            return Part { worker, leaves, touched: None, values: data.to_vec() };
        }
        let (mut touched, mut values) = (vec![false; self.rows() as usize], vec![0.0; self.elements()]);
        for (row, numbers) in piece.rows.iter().zip(data.chunks(width)) {
            touched[row as usize] = true;
            values[row as usize * width..][..width].copy_from_slice(numbers);
        }
        Part { worker, leaves, touched: Some(touched), values }
    }

    /// Changes weights by a gradient, in the rows that were touched, or in all.
    fn change(&mut self, rate: f64, touched: Option<&[bool]>, gradient: &[f32]) {
        self.changes += 1;
        let change = Change { rate, number: self.changes };
        let (width, rows) = (self.width(), self.rows() as usize);
        let mut row = 0;
        while row < rows {
            let end = touched.and_then(|touched| (row..rows).find(|&row| !touched[row])).unwrap_or(rows);
            if row < end {
                let elements = row * width..end * width;
                let mut slots = self.slots.iter_mut().map(|slot| &mut slot[elements.clone()]);
                let Some(weights) = slots.next() else { return };
                let mut kept: Vec<&mut [f32]> = slots.collect();
                self.rule.apply(change, weights, &mut kept, &gradient[elements.clone()]);
            }
            row = end + 1;
        }
    }

    /// Appends these rows of a slot; zeros where there is no such slot.
    pub(super) fn read(&self, slot: u32, rows: &Rows, into: &mut Vec<f32>) {
        let Some(values) = self.slots.get(slot as usize) else {
            let number = if slot == CHANGES { self.changes as f32 } else { 0.0 };
            return into.resize(into.len() + rows.len() * self.width(), number);
        };
        let width = self.width();
        match rows {
            Rows::Range(range) => into.extend(&values[range.start as usize * width..range.end as usize * width]),
            Rows::Steps(_) => rows.iter().for_each(|row| into.extend(&values[row as usize * width..][..width])),
        }
    }

    /// Overwrites these rows of a slot.
    pub(super) fn write(&mut self, slot: u32, changes: u64, rows: &Rows, data: &[f32]) {
        let width = self.width();
        self.changes = changes;
        if let Some(values) = self.slots.get_mut(slot as usize) {
            for (row, numbers) in rows.iter().zip(data.chunks(width)) {
                values[row as usize * width..][..width].copy_from_slice(numbers);
            }
        }
    }

    /// How many gradients of a worker wait for those of others.
    #[cfg(test)]
    pub(super) fn waiting_of(&self, worker: Id) -> u64 {
        self.pending.values().flat_map(|(_, parts)| parts).filter(|part| part.worker == worker).count() as u64
    }

    /// The block as another server gets it, and its numbers.
    pub(super) fn pack(&self) -> (Parcel, Vec<f32>) {
        let mut data = self.slots.concat();
        let mut pending = Vec::new();
        for (&clock, (step, parts)) in &self.pending {
            let wait =
                |part: &Part| Waiting { worker: part.worker, leaves: part.leaves, touched: part.touched.clone() };
            pending.push((clock, *step, parts.iter().map(wait).collect()));
            parts.iter().for_each(|part| data.extend(&part.values));
        }
        let (table, number) = (self.table.clone(), self.number);
        (Parcel { table, number, changes: self.changes, clocks: self.clocks.clone(), pending }, data)
    }

    /// The block that another server sent.
    pub(super) fn unpack(parcel: Parcel, data: &[f32], rules: &Rules) -> Result<Self, String> {
        let Parcel { table, number, changes, clocks, pending } = parcel;
        let broken = || format!("a copy of block {number} of `{}` is damaged", table.name);
        if table.problem().is_some() || number >= table.blocks() {
            return Err(broken());
        }
        let mut block = Self::new(&table, number, &[], rules)?;
        let elements = block.elements();
        let mut rest = data.chunks_exact(elements);
        for slot in &mut block.slots {
            slot.copy_from_slice(rest.next().ok_or_else(broken)?);
        }
        for (clock, step, waiting) in pending {
            let mut parts = Vec::new();
            for Waiting { worker, leaves, touched } in waiting {
                if touched.as_ref().is_some_and(|touched| touched.len() as u64 != block.rows()) {
                    return Err(broken());
                }
                parts.push(Part { worker, leaves, touched, values: rest.next().ok_or_else(broken)?.to_vec() });
            }
            block.pending.insert(clock, (step, parts));
        }
        (block.changes, block.clocks) = (changes, clocks);
        Ok(block)
    }
}
