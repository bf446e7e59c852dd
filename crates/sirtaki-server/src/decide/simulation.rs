//! Random histories of a whole service: messages that overtake each other between different pairs, repetitions, deaths of
//! servers and workers at any moment, and newcomers. Every worker counts its pushes in a row of its own in every table,
//! so that what became of each push can be read off.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    HEAD, Id,
    client::{Client, Outcome},
    clock::Delay,
    core::Core,
    message::{Act, Kind, Leaves, Message, Piece, StepNumbers, Terms},
    ring::mix,
    table::{Rows, TableSpec},
    view::Membership,
};
use crate::rule::{Change, Rule, RuleSpec, Rules};

const TABLES: u32 = 5;
const ROWS: u64 = 24;
const PUSHES: u64 = 5;

struct Count;

impl Rule for Count {
    fn slots(&self) -> usize {
        0
    }

    fn apply(&self, _: Change, weights: &mut [f32], _: &mut [&mut [f32]], gradient: &[f32]) {
        weights.iter_mut().zip(gradient).for_each(|(weight, gradient)| *weight += gradient);
    }
}

fn table(number: u32) -> TableSpec {
    TableSpec { name: format!("table {number}"), rows: ROWS, width: 1, rule: RuleSpec::Named("count".into()) }
}

fn all_rows() -> Vec<Piece> {
    let piece = |number| Piece { block: table(number).block(0), rows: Rows::Range(0..ROWS), leaves: (0, 0) };
    (0..TABLES).map(piece).collect()
}

/// What a worker is about.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    Begins,
    Creates(u32),
    Pulls,
    Pushes,
    Checks,
}

struct Worker {
    client: Client,
    stage: Stage,
    clock: u64,
    start: u64,
    done: u64,
    /// Pushes that have been sent, confirmed or not.
    tried: u64,
}

struct World {
    random: u64,
    terms: Terms,
    head: Membership,
    servers: BTreeMap<Id, Core>,
    workers: BTreeMap<Id, Worker>,
    queues: BTreeMap<(Id, Id), VecDeque<Option<Message>>>,
    /// Of workers that are gone: pushes that were confirmed, and that were sent.
    gone: BTreeMap<Id, (u64, u64)>,
    killed: BTreeSet<Id>,
    kills: usize,
    checked: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = mix(seed);
        let mut below = |limit: u64| {
            random = mix(random);
            random % limit
        };
        let delay = match below(3) {
            0 => Delay::Bounded(0),
            1 => Delay::Bounded(1 + below(3)),
            _ => Delay::Unbounded,
        };
        let terms = Terms { delay, copies: 1 + below(3) as u32 };
        let (servers, workers) = (1 + below(4) as usize, 1 + below(3) as usize);
        let head = Membership::new(terms, servers, workers);
        let mut world = World {
            random,
            terms,
            head,
            servers: BTreeMap::new(),
            workers: BTreeMap::new(),
            queues: BTreeMap::new(),
            gone: BTreeMap::new(),
            killed: BTreeSet::new(),
            kills: 0,
            checked: false,
        };
        (0..servers).for_each(|_| world.join_server());
        (0..workers).for_each(|_| world.join_worker());
        world
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random = mix(self.random);
        self.random % limit
    }

    fn send(&mut self, from: Id, out: Vec<(Id, Message)>) {
        for (to, message) in out {
            if !self.killed.contains(&to) {
                self.queues.entry((from, to)).or_default().push_back(Some(message));
            }
        }
    }

    fn join_server(&mut self) {
        let mut out = Vec::new();
        let id = self.head.enter(Some(([127, 0, 0, 1], 1).into()), &mut out);
        self.servers.insert(id, Core::new(id, self.terms, Rules::default().with("count", Count)));
        self.send(HEAD, out);
    }

    fn join_worker(&mut self) {
        let mut out = Vec::new();
        let id = self.head.enter(None, &mut out);
        let client = Client::new(id, self.terms);
        self.workers.insert(id, Worker { client, stage: Stage::Begins, clock: 0, start: 0, done: 0, tried: 0 });
        self.send(HEAD, out);
    }

    /// A worker leaves in good order.
    fn end(&mut self, id: Id) {
        if let Some(worker) = self.workers.remove(&id) {
            self.gone.insert(id, (worker.done, worker.done));
        }
        self.killed.insert(id);
        self.queues.retain(|&(_, to), _| to != id);
        self.queues.entry((id, HEAD)).or_default().push_back(None);
    }

    /// Ends a member. Of what it has sent, a part may still arrive, and then the head hears of its end.
    fn kill(&mut self, id: Id) {
        self.killed.insert(id);
        self.kills += 1;
        self.servers.remove(&id);
        if let Some(worker) = self.workers.remove(&id) {
            self.gone.insert(id, (worker.done, worker.tried));
        }
        self.queues.retain(|&(_, to), _| to != id);
        let sent: Vec<(Id, Id)> = self.queues.keys().copied().filter(|&(from, _)| from == id).collect();
        for pair in sent {
            let length = self.queues[&pair].len() as u64;
            let kept = self.below(length + 1) as usize;
            self.queues.entry(pair).or_default().truncate(kept);
        }
        self.queues.entry((id, HEAD)).or_default().push_back(None);
    }

    fn disturb(&mut self) {
        match self.below(40) {
            0 if self.kills < 6 => {
                // A view that begins may have some that are gone already.
                let view = self.head.view();
                let members: BTreeSet<Id> = view.base.iter().chain(view.servers.keys()).copied().collect();
                let lost = members.intersection(&self.killed).count();
                let copies = (self.terms.copies as usize).min(view.base.len());
                let begun = !view.base.is_empty();
                let ids: Vec<Id> = self.servers.keys().copied().collect();
                let victim = ids[self.below(ids.len() as u64) as usize];
                if begun && lost + 1 < copies {
                    self.kill(victim);
                }
            }
            1 if self.kills < 6 && self.workers.len() > 1 && self.head.view().number > 0 => {
                let ids: Vec<Id> = self.workers.keys().copied().collect();
                let victim = ids[self.below(ids.len() as u64) as usize];
                self.kill(victim);
            }
            2 if self.servers.len() < 5 => self.join_server(),
            3 if self.workers.len() < 4
                && self.gone.len() + self.workers.len() < 8
                && self.workers.values().all(|worker| worker.stage != Stage::Checks) =>
            {
                self.join_worker();
            }
            _ => {}
        }
    }

    /// Delivers one message; false if there is none.
    fn deliver(&mut self) -> bool {
        let pairs: Vec<(Id, Id)> =
            self.queues.iter().filter(|(_, queue)| !queue.is_empty()).map(|(&pair, _)| pair).collect();
        if pairs.is_empty() {
            return false;
        }
        let (from, to) = pairs[self.below(pairs.len() as u64) as usize];
        let Some(message) = self.queues.get_mut(&(from, to)).and_then(VecDeque::pop_front) else { return false };
        let mut out = Vec::new();
        let Some(message) = message else {
            self.head.leave(from, &mut out);
            self.send(HEAD, out);
            return true;
        };
        let is_asking = |act: &Act| matches!(act, Act::Push { .. } | Act::Pull { .. });
        if matches!(&message.kind, Kind::Request(request) if is_asking(&request.act)) && self.below(8) == 0 {
            self.queues.entry((from, to)).or_default().push_back(Some(message.clone()));
        }
        if to == HEAD {
            if let Kind::Settled { view, largest } = message.kind {
                self.head.settled(from, view, largest, &mut out);
            }
        } else if let Some(server) = self.servers.get_mut(&to) {
            server.handle(from, message, &mut out);
        } else {
            self.worker_hears(from, to, message);
        }
        self.send(to, out);
        true
    }

    fn worker_hears(&mut self, from: Id, to: Id, message: Message) {
        let mut out = Vec::new();
        let Some(worker) = self.workers.get_mut(&to) else { return };
        let outcome = worker.client.handle(from, message, &mut out);
        self.send(to, out);
        let Some(worker) = self.workers.get_mut(&to) else { return };
        match (worker.stage, outcome) {
            (Stage::Begins, None) => {
                if let Some(start) = worker.client.start() {
                    (worker.clock, worker.start, worker.stage) = (start, start, Stage::Creates(0));
                    self.begin(to);
                }
            }
            (Stage::Creates(number), Some(Outcome::Done(..))) => {
                worker.stage = if number + 1 < TABLES { Stage::Creates(number + 1) } else { Stage::Pulls };
                self.begin(to);
            }
            (Stage::Pulls, Some(Outcome::Done(values, behind))) => {
                worker.stage = Stage::Pushes;
                self.check_pull(to, &values, behind);
                self.begin(to);
            }
            (Stage::Pushes, Some(Outcome::Done(..))) => {
                worker.clock += 1;
                worker.done += 1;
                let is_last = self.workers.len() == 1;
                let Some(worker) = self.workers.get_mut(&to) else { return };
                match worker.done < PUSHES {
                    true => worker.stage = Stage::Pulls,
                    false if is_last => worker.stage = Stage::Checks,
                    false => return self.end(to),
                }
                self.begin(to);
            }
            (Stage::Checks, Some(Outcome::Done(values, _))) => self.check_end(&values),
            (_, None) => {}
            (stage, outcome) => panic!("worker {to} in {stage:?}: {outcome:?}"),
        }
    }

    fn begin(&mut self, id: Id) {
        let mut out = Vec::new();
        let Some(worker) = self.workers.get_mut(&id) else { return };
        let (act, data) = match worker.stage {
            Stage::Creates(number) => {
                let piece = Piece { block: table(number).block(0), rows: Rows::Range(0..ROWS), leaves: (0, 0) };
                (Act::Create { table: table(number), pieces: vec![piece] }, Vec::new())
            }
            Stage::Pulls => (Act::Pull { pieces: all_rows() }, Vec::new()),
            Stage::Pushes => {
                worker.tried += 1;
                let row = Rows::some(&[u64::from(id)]).unwrap();
                let piece = |piece: Piece| Piece { rows: row.clone(), leaves: (id, id + 1), ..piece };
                let step = StepNumbers { rate: 1.0, leaves: Some(Leaves { total: 64, scale: 1.0 }) };
                let pieces: Vec<Piece> = all_rows().into_iter().map(piece).collect();
                (Act::Push { step, pieces, pulls: Vec::new() }, vec![1.0; TABLES as usize])
            }
            Stage::Checks => (Act::Get { slot: 0, pieces: all_rows() }, Vec::new()),
            Stage::Begins => return,
        };
        worker.client.begin(worker.clock, act, data, |_| 1, &mut out);
        self.send(id, out);
    }

    /// What a worker reads has all pushes that it must have, and in step no others.
    fn check_pull(&self, id: Id, values: &[f32], behind: u64) {
        let me = &self.workers[&id];
        if let Delay::Bounded(delay) = self.terms.delay {
            assert!(behind <= delay, "{behind} behind");
        }
        for table in values.chunks(ROWS as usize) {
            assert_eq!(table[id as usize] as u64, me.clock - me.start, "my own pushes");
            for (&other, worker) in &self.workers {
                if !me.client.view().workers.contains(&other) || worker.client.start().is_none() {
                    continue;
                }
                let start = worker.client.start().unwrap_or(0);
                let reached = start + table[other as usize] as u64;
                if let Delay::Bounded(delay) = self.terms.delay {
                    assert!(reached + delay >= me.clock, "worker {id} at {} saw {other} at {reached}", me.clock);
                }
                assert!(!self.terms.delay.in_step() || start > me.clock || reached == me.clock, "in step");
            }
        }
    }

    fn check_end(&mut self, values: &[f32]) {
        let here = self.workers.iter().map(|(&id, worker)| (id, (worker.done, worker.done)));
        let everybody: Vec<(Id, (u64, u64))> = here.chain(self.gone.clone()).collect();
        for (number, table) in values.chunks(ROWS as usize).enumerate() {
            let block = self::table(number as u32).block(0);
            for &(id, (done, tried)) in &everybody {
                // What was read may have been applied since, so a copy is asked for both at once: in step, gradients of
                // a clock that somebody else has not reached still wait.
                let known = self.servers.values().filter_map(|server| server.blocks.get(&block)).map(|block| {
                    let mut applied = Vec::new();
                    block.read(0, &Rows::Range(u64::from(id)..u64::from(id) + 1), &mut applied);
                    applied[0] as u64 + block.waiting_of(id)
                });
                let count = known.max().unwrap_or(0);
                assert!((done..=tried).contains(&count), "{count} pushes of worker {id}, who made {done} to {tried}");
                assert!(table[id as usize] as u64 <= tried, "more was read than worker {id} made");
            }
        }
        self.checked = true;
    }

    fn finish(&mut self) {
        // Nothing is under way any more: all copies of a block are equal.
        let mut seen = BTreeMap::new();
        let mut count = 0;
        for server in self.servers.values() {
            assert_eq!(server.served, self.head.view().number);
            for (id, block) in &server.blocks {
                let packed = block.pack();
                assert!(*seen.entry(*id).or_insert_with(|| packed.clone()) == packed, "copies of {id:?} differ");
                count += 1;
            }
        }
        let copies = (self.terms.copies as usize).min(self.servers.len());
        assert_eq!(count, copies * TABLES as usize);
    }

    fn run(&mut self) {
        for _ in 0..200_000 {
            if !self.checked {
                self.disturb();
            }
            if !self.deliver() {
                if self.checked {
                    return self.finish();
                }
                panic!("nothing moves any more");
            }
        }
        panic!("no end");
    }
}

fn histories(seeds: impl Iterator<Item = u64>) {
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| World::new(seed).run());
        assert!(outcome.is_ok(), "in history {seed}");
    }
}

#[test]
fn pushes_count_once_and_readers_see_what_they_must() {
    histories(0..500);
}

#[test]
#[ignore = "takes minutes; `cargo xtask test server-histories`"]
fn a_hundred_thousand_histories() {
    histories(0..100_000);
}
