//! The simulation: the real table and members, and models of everything around them.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use sirtaki_engine::decide::{
    agree::Table,
    fuse::{Limits, room},
    message::{Batch, Entry, Spoken, Verdict},
    order::{Member, Step},
    request::{Operation, Request},
};

use super::failures::{Failing, Harm};

const LIMITS: Limits = Limits { fused: 1024, large: 512 };

/// What a rank's program does next.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Submit(Vec<Request>),
    /// Goes on only when this name is done.
    Wait(String),
}

pub(crate) struct Rank {
    pub(crate) member: Member,
    pub(crate) script: VecDeque<Act>,
    /// Requests that are not done, by name, and how many of them.
    pub(crate) open: HashMap<String, usize>,
    /// Requests so far.
    pub(crate) asked: usize,
    /// How each request ended, in order.
    pub(crate) endings: Vec<(String, String)>,
    pub(crate) batches: Vec<Batch>,
    pub(crate) inside: Option<Step>,
    pub(crate) words: VecDeque<Vec<Spoken>>,
    pub(crate) verdicts: VecDeque<Verdict>,
    pub(crate) last_joined: Option<usize>,
    pub(crate) joined: bool,
    /// Its part in failing.
    pub(crate) failing: Failing,
    /// A collective failed; it waits for the reason.
    pub(crate) broken: bool,
}

impl Rank {
    /// Whether its program has ended.
    pub(crate) fn is_through(&self) -> bool {
        self.script.is_empty() && self.open.is_empty()
    }

    /// Whether it waits for something that is not done, and nothing is under way from or to it.
    fn is_stuck(&self) -> bool {
        let waits = matches!(self.script.front(), Some(Act::Wait(name)) if self.open.contains_key(name));
        waits
            && self.words.is_empty()
            && self.verdicts.is_empty()
            && self.inside.is_none()
            && !self.member.has_batches()
    }

    pub(crate) fn end(&mut self, name: &str, how: &str) {
        let open = self.open.get_mut(name).expect("only what was wanted ends");
        *open -= 1;
        if *open == 0 {
            self.open.remove(name);
        }
        self.endings.push((name.into(), how.into()));
    }
}

pub(crate) struct World {
    pub(crate) ranks: Vec<Rank>,
    pub(crate) table: Table,
    pub(crate) now: Duration,
    pub(crate) votes: usize,
    pub(crate) frames: usize,
    /// Who was harmed, how and when.
    pub(crate) harmed: Option<(usize, Harm, Duration)>,
}

impl World {
    pub(crate) fn new(scripts: Vec<Vec<Act>>) -> Self {
        let size = scripts.len();
        let rank = |(index, script): (usize, Vec<Act>)| Rank {
            member: Member::new(index),
            script: script.into(),
            open: HashMap::new(),
            asked: 0,
            endings: Vec::new(),
            batches: Vec::new(),
            inside: None,
            words: VecDeque::new(),
            verdicts: VecDeque::new(),
            last_joined: None,
            joined: false,
            failing: Failing::new(index, size),
            broken: false,
        };
        let ranks = scripts.into_iter().enumerate().map(rank).collect();
        World { ranks, table: Table::new(size, LIMITS), now: Duration::ZERO, votes: 0, frames: 0, harmed: None }
    }

    /// Everything that can happen now, as (kind, rank).
    fn possible(&self) -> Vec<(u8, usize)> {
        let mut possible = Vec::new();
        for (index, rank) in self.ranks.iter().enumerate().filter(|(_, rank)| !rank.failing.gone) {
            match rank.script.front() {
                Some(Act::Submit(_)) => possible.push((0, index)),
                Some(Act::Wait(name)) if !rank.open.contains_key(name) => possible.push((0, index)),
                _ => {}
            }
            // Rank 0 keeps the table, so nothing is heard while it is in a collective.
            let heard = self.works(0) && self.connected(0, index);
            if heard && !rank.words.is_empty() && self.ranks[0].inside.is_none() {
                possible.push((1, index));
            }
            let listens = self.works(index) && rank.inside.is_none();
            if listens && !rank.verdicts.is_empty() && self.connected(0, index) {
                possible.push((2, index));
            }
            if listens {
                possible.extend([(3, index), (7, index)]);
            }
            if self.harmed.is_some() {
                possible.extend([(4, index), (5, index), (6, index)]);
            }
        }
        possible
    }

    /// Does one thing; says whether anything changed.
    fn happen(&mut self, (kind, index): (u8, usize), choice: usize) -> bool {
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
            3 => self.step(index),
            4 => self.watch(index),
            5 => self.exit(index),
            7 => self.report_blocked(index),
            _ if self.can_break(index) => {
                self.break_collective(index, choice);
                true
            }
            _ => false,
        }
    }

    fn decide(&mut self) {
        for verdict in self.table.decide() {
            if matches!(&verdict, Verdict::Refuse(_, text) if text.contains("wait for each other")) {
                assert!(self.ranks.iter().all(Rank::is_stuck), "a false alarm: {}", self.describe());
            }
            self.ranks.iter_mut().for_each(|rank| rank.verdicts.push_back(verdict.clone()));
        }
    }

    fn act(&mut self, index: usize) -> bool {
        let now = self.now;
        let rank = &mut self.ranks[index];
        if let Some(Act::Submit(requests)) = rank.script.pop_front() {
            for request in requests {
                *rank.open.entry(request.name.clone()).or_default() += 1;
                rank.asked += 1;
                if let Some(reason) = rank.failing.reason() {
                    rank.end(&request.name, &reason);
                    continue;
                }
                rank.joined |= request.operation == Operation::Join;
                rank.member.submit(Arc::new(request), now);
            }
            self.flush(index);
        }
        true
    }

    fn flush(&mut self, index: usize) -> bool {
        let words = self.ranks[index].member.words();
        let speaks = !words.is_empty();
        if speaks {
            self.frames += 1;
            self.ranks[index].words.push_back(words);
        }
        speaks
    }

    /// The owner of a rank whose program waits says so, at any time at which it has nothing else to do.
    fn report_blocked(&mut self, index: usize) -> bool {
        let rank = &mut self.ranks[index];
        let Some(Act::Wait(name)) = rank.script.front() else { return false };
        if rank.asked == 0 || !rank.open.contains_key(name) {
            return false;
        }
        rank.member.report_blocked(Default::default());
        self.flush(index)
    }

    /// Whoever waits says so, now that all verdicts were acted on; says whether anybody did.
    fn report_all_blocked(&mut self) -> bool {
        let listens = |index: &usize| self.works(*index) && self.ranks[*index].inside.is_none();
        let ranks: Vec<usize> = (0..self.ranks.len()).filter(listens).collect();
        ranks.into_iter().filter(|&index| self.report_blocked(index)).count() > 0
    }

    fn step(&mut self, index: usize) -> bool {
        let now = self.now;
        let rank = &mut self.ranks[index];
        let Some(step) = rank.member.next_step() else { return false };
        match step {
            Step::Run(_) | Step::Vote { .. } => rank.inside = Some(step),
            Step::Released(cycles) if index == 0 => self.table.released(cycles, now),
            Step::Released(_) | Step::Speak => {}
            Step::Refused(names, text) => names.iter().for_each(|name| rank.end(name, &text)),
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
        if self.can_meet() {
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
        let bytes: usize = requests.iter().map(|request| room(request, &[])).sum();
        assert!(requests.len() == 1 || bytes <= LIMITS.fused, "{bytes} bytes in one batch");
        for request in &requests {
            let wanted = rank.open.contains_key(&request.name);
            assert!(wanted || rank.joined, "{} ran without being wanted", request.name);
            if wanted {
                rank.end(&request.name, "done");
            }
        }
        rank.batches.push(Batch {
            entries: batch.entries.iter().map(|entry| Entry { define: None, ..entry.clone() }).collect(),
        });
        rank.member.ran(batch, now);
        self.flush(index);
    }

    fn is_done(&self) -> bool {
        self.ranks.iter().filter(|rank| !rank.failing.gone).all(Rank::is_through)
    }

    /// Half a second passes in which nobody could do anything: the watchers of waiting ranks speak up.
    fn be_impatient(&mut self) -> bool {
        self.now += Duration::from_millis(500);
        let mut spoke = false;
        for index in (0..self.ranks.len()).filter(|&index| self.works(index)).collect::<Vec<_>>() {
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
    pub(crate) fn run(&mut self, choices: impl FnMut(usize) -> usize) {
        self.run_with(choices, None);
    }

    /// The same, with harm done to a rank after some steps.
    pub(crate) fn run_with(&mut self, mut choices: impl FnMut(usize) -> usize, harm: Option<(usize, usize, Harm)>) {
        let (mut steps, mut patience) = (0, 0);
        while !self.is_done() {
            if let Some((_, rank, harm)) = harm.filter(|&(when, ..)| when == steps) {
                self.harm(rank, harm);
            }
            steps += 1;
            assert!(steps < 1_000_000, "no end");
            let mut possible = self.possible();
            let mut changed = false;
            while !changed && !possible.is_empty() {
                let chosen = possible.swap_remove(choices(possible.len()));
                changed = self.happen(chosen, choices(1 << 16));
            }
            // Failing takes some time limits; without harm somebody always speaks up at the first.
            patience = if changed { 0 } else { patience + 1 };
            if !changed && !self.be_impatient() && !self.report_all_blocked() {
                if self.harmed.is_none() && self.ranks.iter().any(Rank::is_through) {
                    return;
                }
                assert!(self.harmed.is_some() && patience < 20, "deadlock: {}", self.describe());
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
