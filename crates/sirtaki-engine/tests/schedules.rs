//! Random schedules under a simulated clock: whatever the order in which ranks ask, messages arrive and threads run,
//! all ranks run the same batches in the same order, nothing fused is too large, and every request ends exactly once,
//! everywhere in the same way.
//!
//! The simulation has the real parts ([`Table`], [`Member`]) and models of the rest: queues for links, ranks that are
//! blocked while they are in a collective, and time that passes only when nothing else can happen.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use proptest::{prelude::*, test_runner::Config};
use sirtaki_comm::{DType, Reduction};
use sirtaki_engine::{
    agree::Table,
    fuse::{Limits, room},
    message::{Batch, Spoken, Verdict},
    order::{Member, Step},
    request::{Bundle, Operation, Request},
};

const LIMITS: Limits = Limits { fused: 1024, large: 512 };

/// What a rank's program does next.
#[derive(Debug, Clone)]
enum Act {
    Submit(Vec<Request>),
    /// Goes on only when this name is done.
    Wait(String),
}

struct Rank {
    member: Member,
    script: VecDeque<Act>,
    /// Requests that are not done, by name, and how many of them.
    open: HashMap<String, usize>,
    /// How each request ended, in order.
    endings: Vec<(String, String)>,
    batches: Vec<Batch>,
    inside: Option<Step>,
    words: VecDeque<Vec<Spoken>>,
    verdicts: VecDeque<Verdict>,
    last_joined: Option<usize>,
    joined: bool,
}

impl Rank {
    fn end(&mut self, name: &str, how: &str) {
        let open = self.open.get_mut(name).expect("only what was wanted ends");
        *open -= 1;
        if *open == 0 {
            self.open.remove(name);
        }
        self.endings.push((name.into(), how.into()));
    }
}

struct World {
    ranks: Vec<Rank>,
    table: Table,
    now: Duration,
    votes: usize,
    frames: usize,
}

impl World {
    fn new(scripts: Vec<Vec<Act>>) -> Self {
        let size = scripts.len();
        let rank = |script: Vec<Act>| Rank {
            member: Member::new(),
            script: script.into(),
            open: HashMap::new(),
            endings: Vec::new(),
            batches: Vec::new(),
            inside: None,
            words: VecDeque::new(),
            verdicts: VecDeque::new(),
            last_joined: None,
            joined: false,
        };
        let ranks = scripts.into_iter().map(rank).collect();
        World { ranks, table: Table::new(size, LIMITS), now: Duration::ZERO, votes: 0, frames: 0 }
    }

    /// Everything that can happen now, as (kind, rank).
    fn possible(&self) -> Vec<(u8, usize)> {
        let mut possible = Vec::new();
        for (index, rank) in self.ranks.iter().enumerate() {
            match rank.script.front() {
                Some(Act::Submit(_)) => possible.push((0, index)),
                Some(Act::Wait(name)) if !rank.open.contains_key(name) => possible.push((0, index)),
                _ => {}
            }
            // Rank 0 keeps the table, so nothing is heard while it is in a collective.
            if !rank.words.is_empty() && self.ranks[0].inside.is_none() {
                possible.push((1, index));
            }
            if rank.inside.is_none() && !rank.verdicts.is_empty() {
                possible.push((2, index));
            }
            if rank.inside.is_none() {
                possible.push((3, index));
            }
        }
        possible
    }

    /// Does one thing; says whether anything changed.
    fn happen(&mut self, (kind, index): (u8, usize)) -> bool {
        match kind {
            0 => self.act(index),
            1 => {
                let words = self.ranks[index].words.pop_front().unwrap();
                words.into_iter().for_each(|spoken| self.table.hear(index, spoken, self.now));
                self.decide();
                true
            }
            2 => {
                let rank = &mut self.ranks[index];
                let verdict = rank.verdicts.pop_front().unwrap();
                rank.member.hear(verdict);
                true
            }
            _ => self.step(index),
        }
    }

    fn decide(&mut self) {
        for verdict in self.table.decide() {
            self.ranks.iter_mut().for_each(|rank| rank.verdicts.push_back(verdict.clone()));
        }
    }

    fn act(&mut self, index: usize) -> bool {
        let now = self.now;
        let rank = &mut self.ranks[index];
        if let Some(Act::Submit(requests)) = rank.script.pop_front() {
            for request in requests {
                *rank.open.entry(request.name.clone()).or_default() += 1;
                rank.joined |= request.operation == Operation::Join;
                rank.member.submit(Arc::new(request), now);
            }
            self.flush(index);
        }
        true
    }

    fn flush(&mut self, index: usize) {
        let words = self.ranks[index].member.words();
        if !words.is_empty() {
            self.frames += 1;
            self.ranks[index].words.push_back(words);
        }
    }

    fn step(&mut self, index: usize) -> bool {
        let now = self.now;
        let rank = &mut self.ranks[index];
        let Some(step) = rank.member.next_step() else { return false };
        match step {
            Step::Run(_) | Step::Vote { .. } => rank.inside = Some(step),
            Step::Released(cycles) if index == 0 => self.table.released(cycles, now),
            Step::Released(_) => {}
            Step::Refused(names, text) => {
                names.into_iter().for_each(|name| rank.end(&name, &text));
            }
            Step::Joined(last) => {
                rank.last_joined = Some(last);
                rank.joined = false;
                rank.open.remove("join");
            }
            Step::Left(_) | Step::Fail(_) => panic!("nobody leaves or fails here"),
        }
        self.flush(index);
        if index == 0 {
            self.decide();
        }
        if self.ranks.iter().all(|rank| rank.inside.is_some()) {
            self.meet();
        }
        true
    }

    /// All ranks are in a collective: it must be the same one.
    fn meet(&mut self) {
        let steps: Vec<Step> = self.ranks.iter_mut().map(|rank| rank.inside.take().unwrap()).collect();
        match &steps[0] {
            Step::Run(batch) => {
                assert!(steps.iter().all(|step| *step == steps[0]), "ranks run different things: {steps:?}");
                (0..steps.len()).for_each(|index| self.finish(index, batch));
            }
            _ => {
                self.votes += 1;
                let vote = |step: &Step| match step {
                    Step::Vote { through, stay } => (*through, *stay),
                    other => panic!("a vote met {other:?}"),
                };
                let through = steps.iter().map(|step| vote(step).0).min().unwrap();
                let stay = steps.iter().all(|step| vote(step).1);
                self.ranks.iter_mut().for_each(|rank| rank.member.voted(through, stay));
            }
        }
    }

    fn finish(&mut self, index: usize, batch: &Batch) {
        let now = self.now;
        let rank = &mut self.ranks[index];
        let requests: Vec<Arc<Request>> =
            batch.entries.iter().map(|entry| rank.member.request(entry.id).expect("it was defined").clone()).collect();
        let bytes: usize = requests.iter().map(|request| room(request)).sum();
        assert!(requests.len() == 1 || bytes <= LIMITS.fused, "{bytes} bytes in one batch");
        for request in &requests {
            let wanted = rank.open.contains_key(&request.name);
            assert!(wanted || rank.joined, "{} ran without being wanted", request.name);
            if wanted {
                rank.end(&request.name, "done");
            }
        }
        rank.batches.push(Batch {
            entries: batch
                .entries
                .iter()
                .map(|entry| sirtaki_engine::message::Entry { define: None, ..entry.clone() })
                .collect(),
        });
        rank.member.ran(batch, now);
        self.flush(index);
    }

    fn is_done(&self) -> bool {
        self.ranks.iter().all(|rank| rank.script.is_empty() && rank.open.is_empty())
    }

    /// Half a second passes in which nobody could do anything: the watchers of waiting ranks speak up.
    fn be_impatient(&mut self) -> bool {
        self.now += Duration::from_millis(500);
        let mut spoke = false;
        for index in 0..self.ranks.len() {
            let rank = &mut self.ranks[index];
            let voting = matches!(rank.inside, Some(Step::Vote { .. }));
            if voting || (rank.member.is_following() && !rank.open.is_empty()) {
                rank.member.deviate();
                let words = rank.member.words();
                spoke |= !words.is_empty();
                match (index, voting) {
                    // The vote is under way with what was said; only the others have to come.
                    (0, true) => {
                        words.into_iter().for_each(|spoken| self.table.hear(0, spoken, self.now));
                        self.decide();
                    }
                    _ if !words.is_empty() => self.ranks[index].words.push_back(words),
                    _ => {}
                }
            }
        }
        spoke
    }

    /// Runs to the end, choosing by `choices`.
    fn run(&mut self, mut choices: impl FnMut(usize) -> usize) {
        let mut steps = 0;
        while !self.is_done() {
            steps += 1;
            assert!(steps < 1_000_000, "no end");
            let mut possible = self.possible();
            let mut changed = false;
            while !changed && !possible.is_empty() {
                let chosen = possible.swap_remove(choices(possible.len()));
                changed = self.happen(chosen);
            }
            if !changed {
                assert!(self.be_impatient(), "deadlock: {}", self.describe());
            }
        }
    }

    fn describe(&self) -> String {
        let rank = |(index, rank): (usize, &Rank)| {
            format!("rank {index}: inside {:?}, open {:?}, next {:?}", rank.inside, rank.open, rank.script.front())
        };
        self.ranks.iter().enumerate().map(rank).collect::<Vec<_>>().join("\n")
    }
}

/// A small generator, so that a whole world comes from one seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % below.max(1) as u64) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        (1..items.len()).rev().for_each(|at| items.swap(at, self.roll(at + 1)));
    }
}

fn request(dice: &mut Dice, name: String, size: usize) -> Request {
    let operation = match dice.roll(12) {
        0 => Operation::Broadcast { root: dice.roll(size) },
        1 => Operation::Barrier,
        2 => Operation::ReduceScatter(Reduction::SUM),
        3 => Operation::AllReduce(Reduction::AVERAGE),
        _ => Operation::AllReduce(Reduction::SUM),
    };
    let dtype = if dice.roll(5) == 0 { DType::F64 } else { DType::F32 };
    Request::new(name, operation, dtype, &[dice.roll(150)])
}

/// One step's requests: what the ranks submit together, the same for all of them.
fn step_of(dice: &mut Dice, step: usize, plain: bool, size: usize) -> Vec<Vec<Request>> {
    let count = 1 + dice.roll(8);
    let mut tensors: Vec<Vec<Request>> = (0..count)
        .map(|index| {
            let mut request = request(dice, format!("t{index}"), size);
            if plain {
                request.operation = Operation::AllReduce(Reduction::SUM);
            }
            vec![request]
        })
        .collect();
    if !plain && dice.roll(3) == 0 {
        let members = 2 + dice.roll(2);
        let bundle = Bundle { name: format!("bundle{step}"), size: members };
        let part = |index| Request { bundle: Some(bundle.clone()), ..request(dice, format!("b{index}"), size) };
        tensors.push((0..members).map(part).collect());
    }
    tensors
}

/// Programs for all ranks: steps of tensors, shuffled per rank, some steps repeated, with waits that cannot be circular.
fn scripts(dice: &mut Dice, size: usize, mismatches: bool) -> Vec<Vec<Act>> {
    let mut scripts = vec![Vec::new(); size];
    let mut step = 0;
    for _ in 0..1 + dice.roll(4) {
        let plain = dice.roll(2) == 0;
        let tensors = step_of(dice, step, plain, size);
        for _ in 0..1 + dice.roll(6) {
            step += 1;
            let wrong = (mismatches && dice.roll(5) == 0).then(|| (dice.roll(size), dice.roll(tensors.len())));
            for (rank, script) in scripts.iter_mut().enumerate() {
                let mut order: Vec<usize> = (0..tensors.len()).collect();
                dice.shuffle(&mut order);
                let mut submitted = vec![false; tensors.len()];
                for at in order {
                    let mut requests = tensors[at].clone();
                    if wrong == Some((rank, at)) {
                        requests[0].shape = vec![777];
                        requests[0].dtype = DType::I32;
                    }
                    script.push(Act::Submit(requests));
                    submitted[at] = true;
                    let complete = submitted.iter().take_while(|done| **done).count();
                    if complete > 0 && dice.roll(6) == 0 {
                        script.push(Act::Wait(tensors[dice.roll(complete)][0].name.clone()));
                    }
                }
                let names = tensors.iter().flatten().map(|request| Act::Wait(request.name.clone()));
                script.extend(names);
            }
        }
    }
    scripts
}

fn same_everywhere(world: &World) {
    let sorted = |rank: &Rank| {
        let mut endings = rank.endings.clone();
        endings.sort();
        endings
    };
    let first = &world.ranks[0];
    for rank in &world.ranks[1..] {
        assert_eq!(rank.batches, first.batches, "the same batches in the same order");
        assert_eq!(sorted(rank), sorted(first), "every request ends in the same way everywhere");
    }
}

proptest! {
    #![proptest_config(Config { cases: 3000, failure_persistence: None, ..Config::default() })]

    #[test]
    fn all_ranks_run_the_same(seed in any::<u64>(), size in 1_usize..5, mismatches in any::<bool>()) {
        let mut dice = Dice(seed);
        let scripts = scripts(&mut dice, size, mismatches);
        let wanted: usize = scripts[0].iter().map(|act| match act { Act::Submit(r) => r.len(), Act::Wait(_) => 0 }).sum();
        let mut world = World::new(scripts);
        world.run(|below| dice.roll(below));
        same_everywhere(&world);
        prop_assert_eq!(world.ranks[0].endings.len(), wanted, "every request ends exactly once");
    }

    /// Ranks run out of data at different times.
    #[test]
    fn ranks_that_have_joined_help_the_others(seed in any::<u64>(), size in 2_usize..5) {
        let mut dice = Dice(seed);
        let tensors = step_of(&mut dice, 0, true, size);
        let join = Request::new("join", Operation::Join, DType::U8, &[]);
        let scripts: Vec<Vec<Act>> = (0..size)
            .map(|_| {
                let mut script = Vec::new();
                for _ in 0..dice.roll(6) {
                    tensors.iter().for_each(|requests| script.push(Act::Submit(requests.clone())));
                    tensors.iter().flatten().for_each(|request| script.push(Act::Wait(request.name.clone())));
                }
                script.push(Act::Submit(vec![join.clone()]));
                script.push(Act::Wait("join".into()));
                script
            })
            .collect();
        let mut world = World::new(scripts);
        world.run(|below| dice.roll(below));
        let last = world.ranks[0].last_joined;
        prop_assert!(last.is_some());
        for rank in &world.ranks {
            prop_assert_eq!(rank.last_joined, last, "everybody knows the last one");
            prop_assert_eq!(&rank.batches, &world.ranks[0].batches);
        }
    }

    /// A name used twice at a time.
    #[test]
    fn a_name_used_twice_ends_the_same_way_everywhere(seed in any::<u64>(), size in 2_usize..4, again in 0_usize..4) {
        let mut dice = Dice(seed);
        let tensor = || Act::Submit(vec![Request::new("t", Operation::AllReduce(Reduction::SUM), DType::F32, &[4])]);
        let other = || Act::Submit(vec![Request::new("u", Operation::AllReduce(Reduction::SUM), DType::F32, &[4])]);
        let wait = |name: &str| Act::Wait(name.into());
        let scripts: Vec<Vec<Act>> = (0..size)
            .map(|_| {
                let mut script = Vec::new();
                (0..again).for_each(|_| script.extend([tensor(), other(), wait("t"), wait("u")]));
                script.extend([tensor(), tensor(), wait("t"), other(), wait("u")]);
                script
            })
            .collect();
        let mut world = World::new(scripts);
        world.run(|below| dice.roll(below));
        for rank in &world.ranks {
            let ended = |wanted: &str| rank.endings.iter().filter(|(name, _)| name == wanted).count();
            prop_assert_eq!((ended("t"), ended("u")), (again + 2, again + 1));
            prop_assert_eq!(&rank.batches, &world.ranks[0].batches);
        }
    }
}

#[test]
fn a_repeated_order_needs_no_words() {
    let mut dice = Dice(7);
    let tensors: Vec<Request> = (0..20)
        .map(|index| Request::new(format!("t{index}"), Operation::AllReduce(Reduction::SUM), DType::F32, &[index]))
        .collect();
    let mut frames = Vec::new();
    for steps in [10, 100] {
        let scripts = (0..3)
            .map(|_| {
                let mut script = Vec::new();
                for _ in 0..steps {
                    let mut order = tensors.clone();
                    dice.shuffle(&mut order);
                    script.extend(order.into_iter().map(|request| Act::Submit(vec![request])));
                    script.extend(tensors.iter().map(|request| Act::Wait(request.name.clone())));
                }
                script
            })
            .collect();
        let mut world = World::new(scripts);
        world.run(|below| dice.roll(below));
        same_everywhere(&world);
        assert!(world.votes >= steps - 2);
        frames.push(world.frames);
    }
    assert!(frames[1] < frames[0] + 60, "ninety more steps took {} more frames", frames[1] - frames[0]);
}
