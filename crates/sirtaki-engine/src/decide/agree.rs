//! The table on rank 0: all ranks' requests meet here, and it decides what runs next.
//!
//! Pure: requests and the time come in as arguments, verdicts go out as values. All ranks get the same verdicts.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use sirtaki_comm::{Alarm, Rank};

use crate::decide::{
    check::impossible,
    cycle::Cycle,
    deadlock::Blocked,
    fuse::{Limits, MOST_ENTRIES, fuse, fuse_step},
    message::{Entry, Id, Spoken, Verdict, Word},
    request::{Operation, Request},
    slot::Slot,
};

/// How many names are remembered although nobody wants them now; beyond that, all are forgotten and renumbered.
const NAMES: usize = 1 << 16;

/// The meeting point.
#[derive(Debug)]
pub struct Table {
    pub(crate) size: usize,
    limits: Limits,
    epoch: u64,
    names: HashMap<String, Id>,
    pub(super) slots: Vec<Slot>,
    /// The slots that somebody wants.
    pub(super) wanted: BTreeSet<Id>,
    /// How many names may be remembered although nobody wants them.
    names_limit: usize,
    /// Complete, in the order in which they became complete.
    pub(super) ready: Vec<Id>,
    /// Complete but waiting for their companions, by the bundle's name and size.
    pub(super) bundles: BTreeMap<(String, usize), Vec<Id>>,
    pub(super) joined: Vec<Rank>,
    /// All ranks follow an adopted order.
    following: bool,
    /// Whether orders are adopted at all.
    adopts: bool,
    pub(super) cycle: Cycle,
    pub(super) said: Vec<Verdict>,
    /// Verdicts given so far, and which ranks are blocked after which of them.
    given: u64,
    blocked: Blocked,
    /// Words of an epoch that this table has not reached yet.
    early: Vec<(Rank, Spoken)>,
    /// Tensors agreed on, and the last one's name.
    pub(crate) agreed: (u64, String),
    /// When each rank's request for a tensor came, if that is recorded.
    arrivals: Option<Vec<Arrivals>>,
}

/// A tensor's name and when each rank's request came, in nanoseconds; 0 for ranks without one.
pub(crate) type Arrivals = (String, Vec<u64>);

impl Table {
    /// A table for `size` ranks.
    pub fn new(size: usize, limits: Limits) -> Self {
        Table {
            size,
            limits,
            epoch: 0,
            names: HashMap::new(),
            slots: Vec::new(),
            wanted: BTreeSet::new(),
            names_limit: NAMES,
            ready: Vec::new(),
            bundles: BTreeMap::new(),
            joined: Vec::new(),
            following: false,
            adopts: true,
            cycle: Cycle::default(),
            said: Vec::new(),
            given: 0,
            blocked: Blocked::new(size),
            early: Vec::new(),
            agreed: (0, String::new()),
            arrivals: None,
        }
    }

    /// Whether an order that repeats is adopted; on unless set otherwise.
    pub fn set_adopting(&mut self, adopts: bool) {
        self.adopts = adopts;
    }

    /// How many names are remembered although nobody wants them; 65,536 unless set otherwise.
    pub fn set_names_limit(&mut self, limit: usize) {
        self.names_limit = limit;
    }

    /// Whether to record when requests came, for [`Table::take_arrivals`].
    pub(crate) fn set_noting_arrivals(&mut self, notes: bool) {
        self.arrivals = notes.then(Vec::new);
    }

    /// When the requests came for everything agreed on since recording was switched on.
    pub(crate) fn take_arrivals(&mut self) -> Vec<Arrivals> {
        self.arrivals.take().unwrap_or_default()
    }

    /// Whether all ranks repeat an adopted order.
    pub fn is_following(&self) -> bool {
        self.following
    }

    /// `rank` says something at time `now`.
    pub fn hear(&mut self, rank: Rank, spoken: Spoken, now: Duration) {
        if rank >= self.size {
            return;
        }
        self.blocked.withdraw(rank);
        match spoken.word {
            Word::Goodbye => self.said.push(Verdict::Left(rank)),
            _ if spoken.epoch < self.epoch => {}
            _ if spoken.epoch > self.epoch => self.early.push((rank, spoken)),
            Word::Deviate => {
                if self.following {
                    self.said.push(Verdict::Deviate(self.epoch));
                }
            }
            Word::Blocked(verdicts, messages) => self.blocked.report(rank, verdicts, messages),
            Word::Unblocked => {}
            Word::Announce(request) if request.problem(self.size).is_some() => {
                self.said.push(Verdict::Fail(impossible(rank, &request)));
            }
            Word::Announce(request) if request.operation == Operation::Join => self.join(rank),
            Word::Announce(request) => self.announce(rank, *request, now),
            Word::Ready(ids) => {
                for id in ids {
                    let request = self.slots.get(id as usize).and_then(|slot| slot.agreed[rank].clone());
                    if let Some(request) = request {
                        self.note(rank, id, request, now);
                    }
                }
            }
            Word::Twice(name) => {
                let slot = self.names.get(&name).map(|&id| &mut self.slots[id as usize]);
                if let Some(slot) = slot.filter(|slot| slot.wants[rank].is_some()) {
                    slot.twice.push(rank);
                }
            }
        }
    }

    fn announce(&mut self, rank: Rank, request: Request, since: Duration) {
        let id = match self.names.get(&request.name) {
            Some(&id) => id,
            None => {
                let id = self.slots.len() as Id;
                self.names.insert(request.name.clone(), id);
                self.slots.push(Slot::new(request.name.clone(), self.size));
                id
            }
        };
        self.slots[id as usize].fresh = true;
        self.note(rank, id, Arc::new(request), since);
    }

    fn note(&mut self, rank: Rank, id: Id, request: Arc<Request>, since: Duration) {
        let slot = &mut self.slots[id as usize];
        slot.count += usize::from(slot.wants[rank].replace(request).is_none());
        slot.since[rank] = since;
        self.wanted.insert(id);
        self.complete(id);
    }

    fn join(&mut self, rank: Rank) {
        if !self.joined.contains(&rank) {
            self.joined.push(rank);
        }
        self.cycle.forget();
        self.wanted.iter().copied().collect::<Vec<Id>>().into_iter().for_each(|id| self.complete(id));
    }

    /// Moves a slot on if every rank that has not joined wants it.
    fn complete(&mut self, id: Id) {
        let slot = &mut self.slots[id as usize];
        if slot.ready || slot.count == 0 || slot.count + self.joined.len() < self.size {
            return;
        }
        if !slot.wants.iter().enumerate().all(|(rank, want)| want.is_some() || self.joined.contains(&rank)) {
            return;
        }
        slot.ready = true;
        let bundle = slot.first().and_then(|request| request.bundle.clone());
        match bundle {
            None => self.ready.push(id),
            Some(bundle) => self.bundles.entry((bundle.name, bundle.size)).or_default().push(id),
        }
    }

    /// What follows from everything heard so far, for all ranks.
    pub fn decide(&mut self) -> Vec<Verdict> {
        self.settle_bundles();
        let mut run = Vec::new();
        self.cycle.go_on();
        for id in std::mem::take(&mut self.ready) {
            match self.examine(id) {
                _ if !self.slots[id as usize].ready => {}
                Ok(rows) => run.extend(self.agree_on(id, rows)),
                Err(text) => self.refuse([id], text),
            }
        }
        if !run.is_empty() {
            let known: Vec<(Entry, Arc<Request>)> = run;
            let batches = fuse(known.iter().map(|(entry, request)| (entry.clone(), &**request)), self.limits);
            self.said.extend(Verdict::run(batches, MOST_ENTRIES));
        }
        if self.joined.len() == self.size {
            let last = self.joined.pop().unwrap_or(0);
            self.joined.clear();
            self.said.push(Verdict::Joined(last));
        }
        self.adopt();
        self.forget_names();
        let proven = self.said.is_empty() && self.blocked.is_proven(self.given);
        if let Some(mut reason) = self.blocked.message_deadlock().filter(|_| proven) {
            if !self.wanted.is_empty() {
                reason = format!("{reason}; beside that, {}", self.explain_deadlock());
            }
            self.said.push(Verdict::Fail(Alarm::Stopped { reason }));
        } else if proven && !self.wanted.is_empty() {
            let text = self.explain_deadlock();
            self.refuse(self.wanted.clone(), text);
        }
        self.given += self.said.len() as u64;
        std::mem::take(&mut self.said)
    }

    fn agree_on(&mut self, id: Id, rows: Vec<usize>) -> Option<(Entry, Arc<Request>)> {
        let slot = &mut self.slots[id as usize];
        let request = slot.first()?.clone();
        if let Some(arrivals) = &mut self.arrivals {
            let came = slot.wants.iter().zip(&slot.since);
            let came = came.map(|(want, since)| want.as_ref().map_or(0, |_| since.as_nanos() as u64));
            arrivals.push((slot.name.clone(), came.collect()));
        }
        let define = slot.fresh.then(|| Box::new((*request).clone()));
        for (agreed, want) in slot.agreed.iter_mut().zip(&mut slot.wants) {
            if want.is_some() {
                *agreed = want.take();
            }
        }
        slot.clear();
        self.wanted.remove(&id);
        slot.fresh = !self.joined.is_empty();
        self.agreed = (self.agreed.0 + 1, slot.name.clone());
        let entry = Entry { id, define, rows };
        if !self.joined.is_empty() || !request.operation.repeats() {
            self.cycle.forget();
        } else {
            let mixed = !matches!(request.operation, Operation::AllReduce(_));
            self.cycle.agreed(Entry { define: None, ..entry.clone() }, mixed);
        }
        Some((entry, request))
    }

    /// Adopts the cycle if it has just begun again, with nothing else under way.
    fn adopt(&mut self) {
        if !self.adopts
            || self.following
            || !self.joined.is_empty()
            || !self.bundles.is_empty()
            || !self.cycle.is_proven()
        {
            return;
        }
        let known = |&id: &Id| {
            let slot = &self.slots[id as usize];
            !slot.fresh && slot.twice.is_empty() && self.cycle.contains(id)
        };
        if self.wanted.is_empty() || !self.wanted.iter().all(known) {
            return;
        }
        let entries = self.cycle.entries().iter().filter_map(|entry| {
            let request = self.slots[entry.id as usize].agreed.iter().flatten().next()?;
            Some((entry.clone(), &**request))
        });
        let entries: Vec<(Entry, &Request)> = entries.collect();
        let schedule = fuse_step(entries, self.cycle.begins(), self.limits);
        self.start_over();
        self.following = true;
        self.said.push(Verdict::Adopt(self.epoch, schedule));
    }

    /// Whether any rank waits for anything.
    pub fn is_waited_at(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// The slots that somebody wants.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = &Slot> {
        self.wanted.iter().map(|&id| &self.slots[id as usize])
    }

    /// Whether a slot is complete, even if it still waits for its companions.
    pub(crate) fn is_ready(&self, slot: &Slot) -> bool {
        slot.ready
    }

    /// Whether a slot still waits for this rank.
    pub(crate) fn is_missing(&self, slot: &Slot, rank: Rank) -> bool {
        slot.wants[rank].is_none() && !self.joined.contains(&rank)
    }

    /// All requests are void; ranks will make them again where needed.
    fn start_over(&mut self) {
        self.epoch += 1;
        for id in std::mem::take(&mut self.wanted) {
            self.slots[id as usize].clear();
        }
        self.ready.clear();
        self.bundles.clear();
    }

    /// All ranks have stopped repeating the adopted order, after this many cycles of it.
    pub fn released(&mut self, cycles: u64, now: Duration) {
        self.following = false;
        self.start_over();
        self.cycle.left_after(cycles);
        for (rank, spoken) in std::mem::take(&mut self.early) {
            self.hear(rank, spoken, now);
        }
    }

    fn forget_names(&mut self) {
        // Wanted names are announced again, so counting them would cause endless restarts.
        if self.slots.len() - self.wanted.len() <= self.names_limit || self.following {
            return;
        }
        self.start_over();
        self.slots.clear();
        self.names.clear();
        self.cycle.forget();
        self.said.push(Verdict::Restart(self.epoch));
    }
}
