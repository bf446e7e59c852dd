//! One rank's view of what runs when: what it waits for, what it has been told, and the order it may know by heart.
//!
//! Normally a rank announces and the table decides. Once an order is *adopted*, ranks repeat it without announcing: a
//! rank that has the tensors of the next batches goes to a **vote**, one small reduction among all ranks in which each
//! says how far it is ready and whether it wants to go on. All ranks learn the same minimum and run exactly up to
//! there. So no rank acts on a guess alone, and ranks cannot run different batches.
//!
//! A rank that wants something else tells the table (which tells the others, so that all come to the vote) and votes to
//! end the order. After that vote all ranks announce again whatever is still wanted, in a new epoch. Rejected: entering
//! predicted collectives directly. A rank that waits inside one for a rank that never comes could not be brought back
//! without failing.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use sirtaki_comm::{Alarm, Rank};

use crate::decide::{
    follow::Following,
    message::{Batch, Id, Refusal, Spoken, Verdict, Word},
    request::{ByName, Operation, Request},
    waits::MessageState,
};

/// What a rank has to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Run this with the others, then call [`Member::ran`].
    Run(Batch),
    /// Reduce these two by their minimum over all ranks, then call [`Member::voted`].
    Vote {
        /// How many batches of the adopted order I am ready to run, counted since it was adopted.
        through: i64,
        /// Whether I want to go on with it afterwards.
        stay: bool,
    },
    /// The adopted order is over, after this many cycles of it.
    Released(u64),
    /// Say what [`Member::words`] has, before anything else.
    Speak,
    /// These requests of this rank failed; of a name asked for several times, the first request.
    Refused(Vec<String>, String),
    /// All have joined; this rank was the last.
    Joined(Rank),
    /// This rank left in good order.
    Left(Rank),
    /// Everything ends.
    Fail(Alarm),
}

#[derive(Debug)]
struct Known {
    common: Arc<Request>,
    mine: Option<Arc<Request>>,
}

#[derive(Debug)]
struct Pending {
    request: Arc<Request>,
    since: Duration,
    /// Requests made again while this one was waiting.
    again: Vec<Arc<Request>>,
}

/// One rank's side of the agreement.
#[derive(Debug, Default)]
pub struct Member {
    rank: Rank,
    epoch: u64,
    ids: HashMap<String, Id>,
    known: HashMap<Id, Known>,
    pending: HashMap<ByName, Pending>,
    verdicts: VecDeque<Verdict>,
    todo: VecDeque<Batch>,
    following: Option<Following>,
    /// To be said to the table.
    words: Vec<Spoken>,
    /// Verdicts acted on.
    obeyed: u64,
    /// After how many verdicts this rank reported that it is blocked, if it has said nothing since.
    blocked: Option<(u64, MessageState)>,
}

impl Member {
    /// This rank, which has asked for nothing yet.
    pub fn new(rank: Rank) -> Self {
        Self { rank, ..Self::default() }
    }

    /// This rank wants something.
    pub fn submit(&mut self, request: Arc<Request>, now: Duration) {
        if let Some(pending) = self.pending.get_mut(request.name.as_str()) {
            let name = request.name.clone();
            pending.again.push(request);
            match self.following {
                Some(_) => self.deviate(),
                None => self.say(Word::Twice(name)),
            }
            return;
        }
        let pending = Pending { request: request.clone(), since: now, again: Vec::new() };
        self.pending.insert(ByName(request.clone()), pending);
        let id = self.familiar(&request);
        match (&mut self.following, id) {
            (Some(following), id) => {
                if !id.is_some_and(|id| following.has(id)) {
                    self.deviate();
                }
            }
            (None, Some(id)) => match self.words.last_mut() {
                Some(Spoken { word: Word::Ready(ids), epoch }) if *epoch == self.epoch => ids.push(id),
                _ => self.say(Word::Ready(vec![id])),
            },
            (None, None) => self.say(Word::Announce(Box::new((*request).clone()))),
        }
    }

    /// The number of a request that is the same as last time.
    fn familiar(&self, request: &Request) -> Option<Id> {
        let &id = self.ids.get(&request.name)?;
        self.known.get(&id)?.mine.as_ref().is_some_and(|mine| **mine == *request).then_some(id)
    }

    fn say(&mut self, word: Word) {
        self.blocked = None;
        self.words.push(Spoken { epoch: self.epoch, word });
    }

    /// The words for the table that have come up since the last call.
    pub fn words(&mut self) -> Vec<Spoken> {
        std::mem::take(&mut self.words)
    }

    /// Whether something has to be said to the table.
    pub fn has_words(&self) -> bool {
        !self.words.is_empty()
    }

    /// The table says something.
    pub fn hear(&mut self, verdict: Verdict) {
        self.verdicts.push_back(verdict);
    }

    /// Stops following the adopted order; nothing happens if there is none.
    pub fn deviate(&mut self) {
        if let Some(following) = &mut self.following
            && !std::mem::replace(&mut following.leaving, true)
        {
            self.say(Word::Deviate);
        }
    }

    /// Every thread of this rank that submits waits. The table is told unless there is something to do first.
    pub fn report_blocked(&mut self, messages: MessageState) {
        let idle =
            self.following.is_none() && self.verdicts.is_empty() && self.todo.is_empty() && self.words.is_empty();
        let report = (self.obeyed, messages);
        let same = |told: &(u64, MessageState)| told.0 == report.0 && told.1.frames == report.1.frames;
        if idle && !self.blocked.as_ref().is_some_and(same) {
            self.say(Word::Blocked(report.0, report.1.clone()));
            self.blocked = Some(report);
        }
    }

    /// A thread that submits no longer waits.
    pub fn withdraw_blocked(&mut self) {
        if self.blocked.take().is_some() {
            self.say(Word::Unblocked);
        }
    }

    /// Whether batches are known that are to be run next.
    pub fn has_batches(&self) -> bool {
        !self.todo.is_empty()
    }

    /// Whether an adopted order is being followed.
    pub fn is_following(&self) -> bool {
        self.following.is_some()
    }

    /// Cycles of the adopted order begun, if one is being followed.
    pub fn cycles(&self) -> Option<u64> {
        self.following.as_ref().map(Following::cycles)
    }

    /// The epoch; rises whenever announcing starts over.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Since when the oldest request has waited, if there is any.
    pub fn oldest(&self) -> Option<Duration> {
        self.pending.values().map(|pending| pending.since).min()
    }

    /// What a number means: the request of the first rank that had one.
    pub fn request(&self, id: Id) -> Option<&Arc<Request>> {
        self.known.get(&id).map(|known| &known.common)
    }

    /// What to do now, if anything.
    pub fn next_step(&mut self) -> Option<Step> {
        loop {
            if let Some(batch) = self.todo.pop_front() {
                return Some(Step::Run(batch));
            }
            if self.following.as_ref().is_some_and(|following| following.over) {
                return self.release();
            }
            match self.verdicts.pop_front() {
                Some(verdict) => {
                    if let Some(step) = self.obey(verdict) {
                        return Some(step);
                    }
                }
                None if !self.words.is_empty() => return Some(Step::Speak),
                None => return self.following.as_ref()?.vote(),
            }
        }
    }

    fn obey(&mut self, verdict: Verdict) -> Option<Step> {
        self.obeyed += 1;
        match verdict {
            Verdict::Run(batches) => {
                batches.iter().flat_map(|batch| &batch.entries).for_each(|entry| {
                    if let Some(define) = &entry.define {
                        self.define(entry.id, define);
                    }
                });
                self.todo.extend(batches);
                None
            }
            Verdict::Adopt(epoch, schedule) => {
                self.epoch = epoch;
                self.words.clear();
                let bundle = |id| Some(self.known.get(&id)?.common.bundle.as_ref()?.name.as_str());
                self.follow(Following::new(schedule, bundle));
                None
            }
            Verdict::Deviate(epoch) => {
                if epoch == self.epoch
                    && let Some(following) = &mut self.following
                {
                    following.leaving = true;
                }
                None
            }
            Verdict::Restart(epoch) => {
                self.epoch = epoch;
                self.ids.clear();
                self.known.clear();
                self.announce_all();
                None
            }
            Verdict::Refuse(refusals, text) => {
                let names = self.refused(refusals);
                (!names.is_empty()).then_some(Step::Refused(names, text))
            }
            Verdict::Joined(last) => {
                self.pending.retain(|_, pending| pending.request.operation != Operation::Join);
                Some(Step::Joined(last))
            }
            Verdict::Left(rank) => Some(Step::Left(rank)),
            Verdict::Fail(alarm) => Some(Step::Fail(alarm)),
        }
    }

    /// Gives up what was refused; returns the names that this rank had asked for.
    fn refused(&mut self, refusals: Vec<Refusal>) -> Vec<String> {
        let mut names = Vec::new();
        for Refusal { name, not_asked } in refusals {
            if not_asked.contains(&self.rank) {
                continue;
            }
            let Some(Pending { again, since, .. }) = self.pending.remove(name.as_str()) else { continue };
            again.into_iter().for_each(|request| self.submit(request, since));
            names.push(name);
        }
        names
    }

    fn define(&mut self, id: Id, request: &Request) {
        self.ids.insert(request.name.clone(), id);
        let known = Known { common: Arc::new(request.clone()), mine: None };
        self.known.insert(id, known);
    }

    fn follow(&mut self, mut following: Following) {
        let mut strange = false;
        for pending in self.pending.values() {
            let id = self.familiar(&pending.request);
            strange |= !id.is_some_and(|id| following.has(id)) || !pending.again.is_empty();
        }
        self.following = Some(following);
        if strange {
            self.deviate();
        }
    }

    /// A batch from [`Step::Run`] is done.
    pub fn ran(&mut self, batch: &Batch, now: Duration) {
        for entry in &batch.entries {
            let Some(known) = self.known.get_mut(&entry.id) else { continue };
            let Some(pending) = self.pending.remove(known.common.name.as_str()) else { continue };
            known.mine = Some(pending.request);
            pending.again.into_iter().for_each(|request| self.submit(request, now));
        }
    }

    /// The minimum of what all ranks said in a [`Step::Vote`].
    pub fn voted(&mut self, through: i64, stay: bool) {
        if let Some(following) = &mut self.following {
            self.todo.extend(following.voted(through, stay));
        }
    }

    fn release(&mut self) -> Option<Step> {
        let cycles = self.following.take()?.cycles();
        self.epoch += 1;
        self.announce_all();
        Some(Step::Released(cycles))
    }

    /// Says again everything that is wanted.
    fn announce_all(&mut self) {
        self.words.clear();
        let mut names: Vec<&str> = self.pending.keys().map(|key| key.0.name.as_str()).collect();
        names.sort_unstable();
        let mut again = Vec::new();
        let mut words = Vec::new();
        for name in names {
            let pending = &self.pending[name];
            match self.familiar(&pending.request) {
                Some(id) => again.push(id),
                None => words.push(Word::Announce(Box::new((*pending.request).clone()))),
            }
            if !pending.again.is_empty() {
                words.push(Word::Twice(name.into()));
            }
        }
        if !again.is_empty() {
            words.insert(0, Word::Ready(again));
        }
        words.into_iter().for_each(|word| self.say(word));
    }
}
