//! From one view to the next.
//!
//! ```text
//! head     view                                       serve
//! servers       flush to all → copies → sent to all → settled
//! ```
//!
//! After `flush` from everybody nothing of earlier views is on its way between servers that are left, so all owners of a
//! block that are left are equal where its first owner is among them. That one, or otherwise the next, sends the block
//! to those that need it. Blocks are kept where they were until the view begins, because another change may come first.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    HEAD, Id,
    block::Block,
    core::Core,
    message::{Kind, Message, Parcel},
    ring::Ring,
    table::BlockId,
    view::View,
};

impl Core {
    /// Stops serving and tells the others that nothing more comes.
    pub(super) fn begin_change(&mut self, view: View, out: &mut Vec<(Id, Message)>) {
        if view.number <= self.view.number {
            return;
        }
        self.view = view;
        (self.handed_over, self.reported) = (false, false);
        self.copied.clear();
        self.forget_answers();
        self.tell_others(&Kind::Flush(self.view.number), out);
    }

    fn others(&self) -> BTreeSet<Id> {
        self.view.servers.keys().copied().filter(|&server| server != self.id).collect()
    }

    fn tell_others(&self, kind: &Kind, out: &mut Vec<(Id, Message)>) {
        out.extend(self.others().into_iter().map(|other| (other, kind.clone().into())));
    }

    /// Takes the next step of a change, if it is time for it.
    pub(super) fn go_on_changing(&mut self, out: &mut Vec<(Id, Message)>) {
        let number = self.view.number;
        if number == self.served || self.reported {
            return;
        }
        let others = self.others();
        let have_said = |said: &BTreeMap<u64, BTreeSet<Id>>| {
            others.iter().all(|other| said.get(&number).is_some_and(|said| said.contains(other)))
        };
        if !self.handed_over && have_said(&self.flushed) {
            self.hand_over(out);
            self.tell_others(&Kind::Sent(number), out);
            self.handed_over = true;
        }
        if self.handed_over && have_said(&self.sent) {
            self.reported = true;
            let largest = self.blocks.values().map(|block| block.clocks.largest()).max().unwrap_or(0);
            let largest = self.starts.values().copied().max().unwrap_or(0).max(largest);
            out.push((HEAD, Kind::Settled { view: number, largest }.into()));
        }
    }

    /// The servers whose copy of a block from the last view counts: where its first owner is left, all owners that are;
    /// otherwise the next one alone, because others may know of something that it does not, and that nobody was told.
    fn heirs(&self, before: &Ring, id: BlockId) -> Vec<Id> {
        let old = before.owners(id.key(), self.terms.copies as usize);
        let mut left: Vec<Id> = old.iter().copied().filter(|owner| self.view.servers.contains_key(owner)).collect();
        if left.first() != old.first() {
            left.truncate(1);
        }
        left
    }

    /// Sends blocks to servers that need them.
    fn hand_over(&self, out: &mut Vec<(Id, Message)>) {
        let (before, after) = (Ring::new(&self.view.base), Ring::new(&self.view.server_ids()));
        let copies = self.terms.copies as usize;
        for (id, block) in &self.blocks {
            let heirs = self.heirs(&before, *id);
            if heirs.first() != Some(&self.id) {
                continue;
            }
            for owner in after.owners(id.key(), copies) {
                if !heirs.contains(&owner) {
                    let (parcel, data) = block.pack();
                    let kind = Kind::Copy { view: self.view.number, block: Box::new(parcel) };
                    out.push((owner, Message { kind, data }));
                }
            }
        }
    }

    /// Takes a block that another server had.
    pub(super) fn take_copy(&mut self, view: u64, parcel: Parcel, data: &[f32]) {
        if view == self.view.number
            && let Ok(block) = Block::unpack(parcel, data, &self.rules)
        {
            self.copied.insert(block.id());
            self.blocks.insert(block.id(), block);
        }
    }

    /// Begins the view: drops what belongs to others now, and does what came early.
    pub(super) fn serve(&mut self, view: u64, starts: BTreeMap<Id, u64>, out: &mut Vec<(Id, Message)>) {
        if view != self.view.number || view == self.served {
            return;
        }
        (self.served, self.starts) = (view, starts);
        let before = Ring::new(&self.view.base);
        let counts = |id: BlockId| self.copied.contains(&id) || self.heirs(&before, id).contains(&self.id);
        let dropped: Vec<BlockId> = self.blocks.keys().copied().filter(|&id| !counts(id)).collect();
        dropped.iter().for_each(|id| drop(self.blocks.remove(id)));
        self.ring = Ring::new(&self.view.server_ids());
        let copies = self.terms.copies as usize;
        for (id, block) in &mut self.blocks {
            block.owners = self.ring.owners(id.key(), copies);
        }
        let id = self.id;
        self.blocks.retain(|_, block| block.owners.contains(&id));
        self.flushed.retain(|&number, _| number > view);
        self.sent.retain(|&number, _| number > view);
        self.catch_up();
        for (from, message) in std::mem::take(&mut self.early) {
            self.handle(from, message, out);
        }
    }
}
