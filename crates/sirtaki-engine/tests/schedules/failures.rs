//! Ranks that die or are cut off in the simulation: the real [`Blame`] on every rank, and models of what it sees.

use std::time::Duration;

use sirtaki_comm::{Alarm, CommError, Group};
use sirtaki_engine::decide::blame::{Act, Blame, Ending, Sign, View};

use super::world::World;

/// How long a rank may be silent.
const LIMIT: Duration = Duration::from_secs(2);

/// What happens to one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Harm {
    /// Its process ends.
    Dies,
    /// Nothing it says arrives any more, and it hears nothing.
    CutOff,
}

/// One rank's side of failing.
pub(crate) struct Failing {
    pub(crate) blame: Blame,
    /// On its way to rank 0.
    complaint: Option<Alarm>,
    /// On its way from rank 0.
    word: Option<Alarm>,
    /// The reason it gave.
    pub(crate) over: Option<Alarm>,
    /// The process has ended.
    pub(crate) gone: bool,
}

impl Failing {
    pub(crate) fn new(rank: usize, size: usize) -> Self {
        let blame = Blame::new(Group::local(rank, size), LIMIT);
        Self { blame, complaint: None, word: None, over: None, gone: false }
    }

    pub(crate) fn reason(&self) -> Option<String> {
        self.over.as_ref().map(|alarm| CommError::from(alarm.clone()).to_string())
    }
}

impl World {
    /// Does harm to a rank, now.
    pub(crate) fn harm(&mut self, rank: usize, harm: Harm) {
        self.harmed = Some((rank, harm, self.now));
        if harm == Harm::Dies {
            self.ranks[rank].failing.gone = true;
            self.ranks[rank].inside = None;
        }
    }

    fn cut_off(&self) -> Option<usize> {
        self.harmed.and_then(|(rank, harm, _)| (harm == Harm::CutOff).then_some(rank))
    }

    /// Whether what one of these says reaches the other.
    pub(crate) fn connected(&self, one: usize, other: usize) -> bool {
        one == other || self.cut_off().is_none_or(|rank| rank != one && rank != other)
    }

    /// Whether an error of the collective `index` is in can show itself: somebody who is needed will not come.
    pub(crate) fn can_break(&self, index: usize) -> bool {
        let rank = &self.ranks[index];
        let absent = |other: usize| {
            let failing = &self.ranks[other].failing;
            (failing.gone || failing.over.is_some()) && self.connected(index, other)
        };
        let late = self.harmed.is_some_and(|(_, _, since)| self.now.saturating_sub(since) >= LIMIT);
        rank.inside.is_some() && ((0..self.ranks.len()).any(absent) || (self.cut_off().is_some() && late))
    }

    /// The collective fails. Who is named is the communicator's best guess, and after a time limit it may be wrong.
    pub(crate) fn break_collective(&mut self, index: usize, guess: usize) {
        let told = self
            .ranks
            .iter()
            .enumerate()
            .find_map(|(other, rank)| rank.failing.over.clone().filter(|_| self.connected(index, other)));
        let gone = (0..self.ranks.len()).find(|&rank| self.ranks[rank].failing.gone);
        let name = |rank: usize| format!("rank {rank}");
        let alarm = match (told, gone) {
            (Some(told), _) => told,
            (None, Some(rank)) => Alarm::PeerLost { rank, who: name(rank), how: "its process ended".into() },
            (None, None) => {
                let rank = guess % self.ranks.len();
                Alarm::Timeout { rank, who: name(rank), operation: format!("call {guess}"), waited: LIMIT }
            }
        };
        let now = self.now;
        let rank = &mut self.ranks[index];
        rank.inside = None;
        rank.broken = true;
        rank.failing.blame.complain(alarm, now);
    }

    /// What rank `index` sees of `rank`.
    fn sign(&self, index: usize, rank: usize) -> Sign {
        match self.harmed {
            Some((_, Harm::CutOff, since)) if !self.connected(index, rank) => {
                Sign::Quiet(self.now.saturating_sub(since))
            }
            _ if self.ranks[rank].failing.gone => Sign::Closed("it closed the connection".into()),
            _ => Sign::Quiet(Duration::ZERO),
        }
    }

    /// The watcher of a rank looks; says whether anything came of it.
    pub(crate) fn watch(&mut self, index: usize) -> bool {
        self.deliver(index);
        let rank = &self.ranks[index];
        let waiting = !rank.open.is_empty() || (index == 0 && self.table.is_waited_at());
        let signs: Vec<Sign> = (0..self.ranks.len()).map(|other| self.sign(index, other)).collect();
        let view = View { now: self.now, waiting, sign: &|rank| signs[rank].clone(), ending: &|_| Ending::Unknown };
        match self.ranks[index].failing.blame.look(&view) {
            Act::Wait => return false,
            Act::Tell(alarm) => self.ranks[index].failing.complaint = Some(alarm),
            Act::Over(alarm) => self.end(index, &alarm),
        }
        true
    }

    /// Hands over what was said about failing. Whatever a process said before it went is read before its end is seen.
    fn deliver(&mut self, index: usize) {
        for other in 1..self.ranks.len() {
            if !self.connected(0, other) {
                continue;
            }
            let Failing { complaint, word, blame, .. } = &mut self.ranks[other].failing;
            if other == index
                && let Some(word) = word.take()
            {
                blame.hear(word);
            }
            if index == 0
                && let Some(alarm) = complaint.take()
            {
                self.ranks[0].failing.blame.complain(alarm, self.now);
            }
        }
    }

    fn end(&mut self, index: usize, alarm: &Alarm) {
        if index == 0 {
            self.ranks.iter_mut().skip(1).for_each(|rank| rank.failing.word = Some(alarm.clone()));
        }
        let rank = &mut self.ranks[index];
        rank.failing.over = Some(alarm.clone());
        let reason = rank.failing.reason().unwrap();
        rank.inside = None;
        let open: Vec<String> = rank.open.iter().flat_map(|(name, count)| vec![name.clone(); *count]).collect();
        open.iter().for_each(|name| rank.end(name, &reason));
    }

    /// The program of a rank that failed ends, and with it its process.
    pub(crate) fn exit(&mut self, index: usize) -> bool {
        let rank = &mut self.ranks[index];
        let exits = rank.failing.over.is_some() && rank.script.is_empty() && !rank.failing.gone;
        rank.failing.gone |= exits;
        exits
    }

    /// Whether the rank takes part in agreement and collectives.
    pub(crate) fn works(&self, index: usize) -> bool {
        let rank = &self.ranks[index];
        !rank.failing.gone && !rank.broken && rank.failing.over.is_none()
    }

    /// Whether this step can be met by all: everybody who is needed is inside and hears the others.
    pub(crate) fn can_meet(&self) -> bool {
        self.cut_off().is_none() && self.ranks.iter().all(|rank| rank.inside.is_some())
    }
}
