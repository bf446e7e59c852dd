//! A server: messages in, messages out.
//!
//! The first owner of a block answers for it. It does what workers ask in the order in which that comes, tells the other
//! owners in the same order, and confirms when all of them have confirmed; so what a worker knows to be done survives as
//! many deaths as there are copies besides. What is repeated is recognised block by block, because a repetition after a
//! death may reach other servers than the first time.
//!
//! A push is a sign of life for all blocks of a server, those it has no gradient for included: otherwise a reader could
//! not tell a worker that is late from one that had nothing to say.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    HEAD, Id,
    block::Block,
    message::{Act, Kind, Message, Piece, Request, Terms},
    ring::Ring,
    table::BlockId,
    view::View,
};
use crate::rule::Rules;

/// A server of blocks.
pub struct Core {
    pub(super) id: Id,
    pub(super) terms: Terms,
    pub(super) rules: Rules,
    pub(super) blocks: BTreeMap<BlockId, Block>,
    /// The latest view, and the number of the last one that began.
    pub(super) view: View,
    pub(super) served: u64,
    pub(super) ring: Ring,
    /// The clocks at which workers began.
    pub(super) starts: BTreeMap<Id, u64>,
    pub(super) flushed: BTreeMap<u64, BTreeSet<Id>>,
    pub(super) sent: BTreeMap<u64, BTreeSet<Id>>,
    /// How far the change to the latest view is.
    pub(super) handed_over: bool,
    pub(super) reported: bool,
    /// Blocks that came from others in this change.
    pub(super) copied: BTreeSet<BlockId>,
    /// What came before its view.
    pub(super) early: Vec<(Id, Message)>,
    answers: Vec<Answer>,
    ended: Option<Option<String>>,
}

/// An answer that is not due yet.
struct Answer {
    worker: Id,
    number: u64,
    /// Servers that have not confirmed their copy.
    unconfirmed: BTreeSet<Id>,
    /// Rows to tell: at this clock, of this slot.
    asked: Option<(Option<u64>, u32, Vec<Piece>)>,
}

impl Core {
    /// A server without blocks.
    pub fn new(id: Id, terms: Terms, rules: Rules) -> Self {
        Self {
            id,
            terms,
            rules,
            blocks: BTreeMap::new(),
            view: View::default(),
            served: 0,
            ring: Ring::default(),
            starts: BTreeMap::new(),
            flushed: BTreeMap::new(),
            sent: BTreeMap::new(),
            handed_over: false,
            reported: false,
            copied: BTreeSet::new(),
            early: Vec::new(),
            answers: Vec::new(),
            ended: None,
        }
    }

    /// The latest view.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Whether it is over, and why if that was not in good order.
    pub fn ended(&self) -> Option<&Option<String>> {
        self.ended.as_ref()
    }

    /// What follows from a message.
    pub fn handle(&mut self, from: Id, message: Message, out: &mut Vec<(Id, Message)>) {
        let Message { kind, data } = message;
        match kind {
            Kind::View(view) if from == HEAD => self.begin_change(view, out),
            Kind::Serve { view, starts } if from == HEAD => self.serve(view, starts, out),
            Kind::End(problem) if from == HEAD => self.ended = Some(problem),
            Kind::Request(request) => self.request(from, request, data, out),
            Kind::Forward { worker, workers, request } => self.forwarded(from, worker, workers, request, data, out),
            Kind::Forwarded { worker, number } => self.confirmed(from, worker, number),
            Kind::Flush(view) => drop(self.flushed.entry(view).or_default().insert(from)),
            Kind::Copy { view, block } => self.take_copy(view, *block, &data),
            Kind::Sent(view) => drop(self.sent.entry(view).or_default().insert(from)),
            _ => {}
        }
        self.go_on_changing(out);
        self.answer(out);
    }

    fn request(&mut self, worker: Id, request: Request, data: Vec<f32>, out: &mut Vec<(Id, Message)>) {
        if request.view > self.served {
            self.early.push((worker, Message { kind: Kind::Request(request), data }));
            return;
        }
        // Workers ask again when the next view begins.
        let is_stale = request.view < self.served || self.view.number > self.served;
        let is_repeated = |answer: &Answer| answer.worker == worker && answer.number == request.number;
        if is_stale || !self.view.workers.contains(&worker) || self.answers.iter().any(is_repeated) {
            return;
        }
        let number = request.number;
        if let Some(problem) = self.problem(&request, &data) {
            return out.push((worker, Kind::Refused { number, problem }.into()));
        }
        let workers = self.view.workers.len() as u32;
        let is_new = self.perform(self.id, worker, workers, &request, &data);
        let unconfirmed = if is_new { self.forward(worker, workers, &request, &data, out) } else { BTreeSet::new() };
        let asked = match request.act {
            Act::Pull { pieces } => Some((Some(request.clock), 0, pieces)),
            Act::Push { pulls, .. } if !pulls.is_empty() => Some((Some(request.clock.saturating_add(1)), 0, pulls)),
            Act::Get { slot, pieces } => Some((None, slot, pieces)),
            Act::Create { .. } | Act::Push { .. } | Act::Put { .. } => None,
        };
        self.answers.push(Answer { worker, number, unconfirmed, asked });
    }

    /// Why a request cannot be carried out.
    fn problem(&self, request: &Request, data: &[f32]) -> Option<String> {
        let (mut expected, mut empty) = (0_usize, true);
        let created = match &request.act {
            Act::Create { table, .. } => {
                if let Some(problem) = table.problem().or_else(|| self.rules.find(&table.rule).err()) {
                    return Some(problem);
                }
                Some(table)
            }
            _ => None,
        };
        for piece in request.act.carried().iter().chain(request.act.asked()) {
            let (rows, width) = match (self.blocks.get(&piece.block), created) {
                (Some(block), Some(table)) if block.table() != table => {
                    return Some(format!("table `{}` is there with another shape, rule or name", table.name));
                }
                (Some(block), _) => (block.rows(), block.width()),
                (None, Some(table)) if piece.block.table == table.id() && piece.block.number < table.blocks() => {
                    let rows = table.block_rows(piece.block.number);
                    (rows.end - rows.start, table.width as usize)
                }
                (None, _) => return Some("there is no such table; hint: create it first, on every worker".into()),
            };
            if !piece.rows.fit(rows) || piece.leaves.0 > piece.leaves.1 {
                return Some("rows outside their table".into());
            }
            expected = expected.saturating_add(piece.rows.len().saturating_mul(width));
            empty = false;
        }
        let asked: usize = request
            .act
            .asked()
            .iter()
            .filter_map(|piece| Some(piece.rows.len() * self.blocks.get(&piece.block)?.width()))
            .sum();
        let expected = expected - asked;
        let zeros = created.is_some() && data.is_empty() && !empty;
        (data.len() != expected && !zeros).then(|| format!("{} numbers came for {expected} elements", data.len()))
    }

    /// Carries out what changes blocks, for those whose first owner is `of`. Whether any of it was new.
    fn perform(&mut self, of: Id, worker: Id, workers: u32, request: &Request, data: &[f32]) -> bool {
        let mut fresh = BTreeSet::new();
        if let Act::Push { .. } = request.act {
            let blocks = self.blocks.iter_mut().filter(|(_, block)| block.owners.first() == Some(&of));
            fresh =
                blocks.filter_map(|(&id, block)| block.clocks.advance(worker, request.clock).then_some(id)).collect();
        }
        let mut is_new = !fresh.is_empty();
        let mut rest = data;
        for piece in request.act.carried() {
            if let Act::Create { table, .. } = &request.act {
                let rows = table.block_rows(piece.block.number);
                let length = ((rows.end - rows.start) as usize * table.width as usize).min(rest.len());
                let (numbers, after) = rest.split_at(length);
                rest = after;
                is_new |= self.create(worker, request.clock, table, piece.block, numbers);
                continue;
            }
            let Some(block) = self.blocks.get_mut(&piece.block) else { continue };
            let Some((numbers, after)) = rest.split_at_checked(piece.rows.len() * block.width()) else { return is_new };
            rest = after;
            match &request.act {
                Act::Push { step, .. } if fresh.contains(&piece.block) && self.terms.delay.in_step() => {
                    block.wait(worker, request.clock, *step, piece, numbers);
                }
                Act::Push { step, .. } if fresh.contains(&piece.block) => {
                    block.apply(worker, *step, workers, piece, numbers);
                }
                Act::Put { slot, changes, .. } => {
                    block.write(*slot, *changes, &piece.rows, numbers);
                    is_new = true;
                }
                _ => {}
            }
        }
        self.catch_up();
        is_new
    }

    fn create(
        &mut self,
        worker: Id,
        clock: u64,
        table: &super::table::TableSpec,
        id: BlockId,
        weights: &[f32],
    ) -> bool {
        let known = self.blocks.contains_key(&id);
        if !known && let Ok(mut block) = Block::new(table, id.number, weights, &self.rules) {
            block.owners = self.ring.owners(id.key(), self.terms.copies as usize);
            self.blocks.insert(id, block);
        }
        if let Some(block) = self.blocks.get_mut(&id) {
            block.clocks.begin(worker, clock);
        }
        true
    }

    /// Changes weights by everything that is complete.
    pub(super) fn catch_up(&mut self) {
        if self.terms.delay.in_step() && self.view.number == self.served {
            for block in self.blocks.values_mut() {
                block.catch_up(block.clocks.slowest(&self.view.workers, &self.starts));
            }
        }
    }

    /// Tells the other owners of this server's blocks, and returns who they are.
    fn forward(
        &self,
        worker: Id,
        workers: u32,
        request: &Request,
        data: &[f32],
        out: &mut Vec<(Id, Message)>,
    ) -> BTreeSet<Id> {
        let mine = self.blocks.values().filter(|block| block.owners.first() == Some(&self.id));
        let others: BTreeSet<Id> = mine.flat_map(|block| block.owners[1..].iter().copied()).collect();
        if matches!(request.act, Act::Pull { .. } | Act::Get { .. }) {
            return BTreeSet::new();
        }
        for &other in &others {
            let (mut pieces, mut numbers, mut rest) = (Vec::new(), Vec::new(), data);
            for piece in request.act.carried() {
                let Some(block) = self.blocks.get(&piece.block) else { continue };
                let length = (piece.rows.len() * block.width()).min(rest.len());
                let (these, after) = rest.split_at(length);
                rest = after;
                if block.owners.contains(&other) {
                    pieces.push(piece.clone());
                    numbers.extend(these);
                }
            }
            let request = Request { act: request.act.with(pieces, Vec::new()), ..*request };
            out.push((other, Message { kind: Kind::Forward { worker, workers, request }, data: numbers }));
        }
        others
    }

    /// Does to copies what their first owner did.
    fn forwarded(
        &mut self,
        from: Id,
        worker: Id,
        workers: u32,
        request: Request,
        data: Vec<f32>,
        out: &mut Vec<(Id, Message)>,
    ) {
        if request.view > self.served {
            self.early.push((from, Message { kind: Kind::Forward { worker, workers, request }, data }));
        } else if request.view == self.served && self.view.servers.contains_key(&from) {
            let number = request.number;
            if self.problem(&request, &data).is_none() {
                self.perform(from, worker, workers, &request, &data);
            }
            out.push((from, Kind::Forwarded { worker, number }.into()));
        }
    }

    fn confirmed(&mut self, from: Id, worker: Id, number: u64) {
        for answer in &mut self.answers {
            if answer.worker == worker && answer.number == number {
                answer.unconfirmed.remove(&from);
            }
        }
    }

    /// Gives up all answers: workers will ask again.
    pub(super) fn forget_answers(&mut self) {
        self.answers.clear();
    }

    /// Gives the answers that are due.
    fn answer(&mut self, out: &mut Vec<(Id, Message)>) {
        let mut answers = std::mem::take(&mut self.answers);
        answers.retain(|answer| match self.due(answer) {
            Some(message) => {
                out.push((answer.worker, message));
                false
            }
            None => true,
        });
        self.answers = answers;
    }

    fn due(&self, answer: &Answer) -> Option<Message> {
        if !answer.unconfirmed.is_empty() {
            return None;
        }
        let (view, number) = (self.served, answer.number);
        let Some((clock, slot, pieces)) = &answer.asked else { return Some(Kind::Done { view, number }.into()) };
        let mut behind = 0;
        if let Some(clock) = *clock {
            for piece in pieces {
                let slowest = self.blocks.get(&piece.block)?.clocks.slowest(&self.view.workers, &self.starts);
                if !self.terms.delay.allows(clock, slowest) {
                    return None;
                }
                behind = behind.max(clock.saturating_sub(slowest));
            }
        }
        let elements = |piece: &Piece| Some(piece.rows.len() * self.blocks.get(&piece.block)?.width());
        let mut data = Vec::with_capacity(pieces.iter().filter_map(elements).sum());
        for piece in pieces {
            self.blocks.get(&piece.block)?.read(*slot, &piece.rows, &mut data);
        }
        Some(Message { kind: Kind::Values { view, number, behind }, data })
    }
}
