//! Tensors that wait, and the sentence that explains why. Pure: what is read from the system comes in as text.

use std::time::Duration;

use sirtaki_comm::{Group, Rank};

use crate::{
    decide::{agree::Table, check::name_ranks},
    telemetry::recorder::Stage,
};

/// A tensor that some ranks wait for and others have not asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Stall {
    /// The tensor.
    pub tensor: String,
    /// Since when the first rank has waited.
    pub since: Duration,
    /// Who waits.
    pub waiting: Vec<Rank>,
    /// Ranks that have not asked for it.
    pub missing: Vec<Rank>,
    /// What the first missing rank has asked for instead.
    pub instead: Vec<String>,
    /// How many more tensors wait for it.
    pub more: usize,
    /// Number and name of the last tensor that all ranks ran together.
    pub last: (u64, String),
}

impl Table {
    /// The tensor that has waited longest, if that is at least `limit`.
    pub fn stalled(&self, now: Duration, limit: Duration) -> Option<Stall> {
        let incomplete = || self.wanted().filter(|slot| !self.is_ready(slot));
        let since = |wants: &[Option<_>], times: &[Duration]| {
            wants.iter().zip(times).filter(|(want, _)| want.is_some()).map(|(_, &time)| time).min()
        };
        let oldest = incomplete().min_by_key(|slot| since(&slot.wants, &slot.since))?;
        let began = since(&oldest.wants, &oldest.since)?;
        if now.saturating_sub(began) < limit {
            return None;
        }
        let waiting = (0..self.size).filter(|&rank| oldest.wants[rank].is_some()).collect();
        let missing: Vec<Rank> = (0..self.size).filter(|&rank| self.is_missing(oldest, rank)).collect();
        let first = *missing.first()?;
        let wanted = incomplete().filter(|slot| slot.wants[first].is_some());
        Some(Stall {
            tensor: oldest.name.clone(),
            since: began,
            waiting,
            instead: wanted.map(|slot| slot.name.clone()).collect(),
            more: incomplete().filter(|slot| self.is_missing(slot, first)).count() - 1,
            missing,
            last: self.agreed.clone(),
        })
    }
}

impl Stall {
    /// The stall in words. `states` says what the processes of the missing ranks are doing, where that is known.
    pub fn explain(&self, group: &Group, now: Duration, states: &dyn Fn(Rank) -> Option<String>) -> String {
        let Some((&first, others)) = self.missing.split_first() else { return String::new() };
        let seconds = now.saturating_sub(self.since).as_secs();
        let who = group.describe(first);
        let wait = if self.waiting.len() == 1 { "waits" } else { "wait" };
        let mut text = format!("{who} has not submitted \"{}\" for {seconds} s; ", self.tensor);
        if !others.is_empty() {
            text += &format!("neither {} {}; ", if others.len() == 1 { "has" } else { "have" }, name_ranks(others));
        }
        text += &format!("{} {wait} in it", name_ranks(&self.waiting));
        if self.more > 0 {
            text += &format!(" and in {} more", self.more);
        }
        let rank = group.world_rank(first);
        text += &match &self.last {
            (0, _) => format!(". Rank {rank} has had nothing in common with the others yet"),
            (number, tensor) => format!(". Rank {rank}'s last common operation was #{number} \"{tensor}\""),
        };
        match self.instead.as_slice() {
            [] => {}
            [one] => text += &format!(", it has submitted \"{one}\" instead"),
            [one, more @ ..] => text += &format!(", it has submitted \"{one}\" and {} more instead", more.len()),
        }
        text + &states(first).map_or(".".into(), |state| format!("; it is {state}."))
    }
}

/// Where a rank is, according to its flight record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whereabouts {
    /// What it did last.
    pub stage: Stage,
    /// In which collective it did that.
    pub sequence: u64,
}

/// A collective that does not end, in words: which ranks are in it and which are not. `places` are the whereabouts of
/// the ranks of this host.
pub fn explain_collective(
    group: &Group,
    (sequence, tensor): (u64, &str),
    lasting: Duration,
    places: &[Option<Whereabouts>],
    states: &dyn Fn(Rank) -> Option<String>,
) -> String {
    let behind = |place: &Whereabouts| place.sequence < sequence || !matches!(place.stage, Stage::Met | Stage::Running);
    let absent: Vec<Rank> = (0..places.len()).filter(|&rank| places[rank].as_ref().is_some_and(behind)).collect();
    let seconds = lasting.as_secs();
    let what = if tensor.is_empty() { String::new() } else { format!(" \"{tensor}\"") };
    let mut text = format!("operation #{sequence}{what} has been under way for {seconds} s");
    match absent.first() {
        Some(&first) => {
            let state = states(first).map_or(String::new(), |state| format!("; it is {state}"));
            text += &format!(
                "; {} has not come to it, its last one was #{}{state}.",
                group.describe(first),
                places[first].map_or(0, |place| place.sequence.saturating_sub(1))
            );
        }
        None => {
            let stuck = (0..places.len())
                .filter_map(|rank| Some((rank, states(rank)?)))
                .find(|(_, state)| state.contains("stopped"));
            text += &match stuck {
                Some((rank, state)) => {
                    format!("; all ranks of this host are in it, but {} is {state}.", group.describe(rank))
                }
                None => "; all ranks of this host are in it but make no progress.".into(),
            };
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use sirtaki_comm::{DType, Member, Reduction};

    use super::*;
    use crate::decide::{
        fuse::Limits,
        message::{Spoken, Word},
        request::{Operation, Request},
    };

    fn group() -> Group {
        let member = |world_rank| Member {
            world_rank,
            host: "b".into(),
            host_id: "b".into(),
            pid: 4709 + world_rank as u32,
            cores: Vec::new(),
        };
        Group::new(0, (0..4).map(member).collect())
    }

    fn want(table: &mut Table, rank: Rank, name: &str, seconds: u64) {
        let request = Request::new(name, Operation::AllReduce(Reduction::SUM), DType::F32, &[1]);
        let spoken = Spoken { epoch: 0, word: Word::Announce(Box::new(request)) };
        table.hear(rank, spoken, Duration::from_secs(seconds));
    }

    #[test]
    fn the_sentence_says_who_and_what() {
        let mut table = Table::new(4, Limits { fused: 1, large: 1 });
        (0..4).for_each(|rank| want(&mut table, rank, "fc2.grad", 1));
        table.decide();
        [0, 1, 3].into_iter().for_each(|rank| want(&mut table, rank, "conv1.grad", 10));
        table.decide();
        let limit = Duration::from_secs(10);
        assert_eq!(table.stalled(Duration::from_secs(19), limit), None);
        let now = Duration::from_secs(24);
        let stall = table.stalled(now, limit).unwrap();
        assert_eq!(
            stall.explain(&group(), now, &|_| Some("alive and computing".into())),
            "rank 2 (host b, pid 4711) has not submitted \"conv1.grad\" for 14 s; ranks 0,1,3 wait in it. \
             Rank 2's last common operation was #1 \"fc2.grad\"; it is alive and computing."
        );
        want(&mut table, 2, "other", 20);
        want(&mut table, 0, "third", 21);
        let stall = table.stalled(now, limit).unwrap();
        let text = stall.explain(&group(), now, &|_| None);
        assert!(text.contains("wait in it and in 1 more.") && text.ends_with("submitted \"other\" instead."), "{text}");
    }

    #[test]
    fn a_rank_that_is_not_in_a_collective_is_named() {
        let place = |stage, sequence| Some(Whereabouts { stage, sequence });
        let places = [place(Stage::Running, 7), place(Stage::Running, 7), place(Stage::Done, 6), None];
        let text =
            explain_collective(&group(), (7, "x"), Duration::from_secs(12), &places, &|_| Some("stopped".into()));
        assert_eq!(
            text,
            "operation #7 \"x\" has been under way for 12 s; rank 2 (host b, pid 4711) has not come to it, \
             its last one was #5; it is stopped."
        );
    }
}
