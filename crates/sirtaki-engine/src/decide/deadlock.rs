//! Whether ranks wait for each other for ever: a proof, and the sentence that explains it.
//!
//! A rank *reports* that it is blocked when every thread that has ever submitted a tensor waits, without a time limit,
//! for one that is not done, and nothing is on its way to be submitted (see `runtime::callers`). The report says how many
//! verdicts the rank has acted on, and it travels behind everything the rank has said before.
//!
//! When every rank has reported on the newest verdict, nothing can happen any more: no verdict or word is under way,
//! and new words come only from threads that wait for a verdict. The table has not decided anything on what it knows,
//! so it never will. That is a proof, not a guess: it does not depend on how long anything takes. A rank with a thread
//! that computes, loads or evaluates does not report and is late, not deadlocked; [`super::stall`] explains that.
//!
//! Rejected: a time limit alone. One short enough to help in a deadlock ends jobs whose evaluation takes long.

use std::collections::BTreeMap;

use sirtaki_comm::Rank;

use crate::decide::{
    agree::Table,
    check::{check, name_ranks},
    request::Request,
    slot::Slot,
    waits::{MessageState, explain_message_deadlock, nothing_under_way},
};

/// How many of one rank's tensors are named at most.
const NAMES_SAID: usize = 3;
/// How many groups of ranks are named at most.
const SIDES_SAID: usize = 4;

/// Which ranks have reported that they are blocked, after how many verdicts, and what they said about messages.
#[derive(Debug)]
pub(crate) struct Blocked(Vec<Option<(u64, MessageState)>>);

impl Blocked {
    pub(crate) fn new(size: usize) -> Self {
        Self(vec![None; size])
    }

    /// `rank` is blocked after it has acted on this many verdicts.
    pub(crate) fn report(&mut self, rank: Rank, verdicts: u64, messages: MessageState) {
        self.0[rank] = Some((verdicts, messages));
    }

    /// `rank` has said something since then.
    pub(crate) fn withdraw(&mut self, rank: Rank) {
        self.0[rank] = None;
    }

    /// Whether every rank is blocked after the last of this many verdicts.
    pub(crate) fn is_proven(&self, verdicts: u64) -> bool {
        self.0.iter().all(|report| report.as_ref().is_some_and(|report| report.0 == verdicts))
            && nothing_under_way(&self.messages())
    }

    /// Why messages will never come, if ranks wait for any.
    pub(crate) fn message_deadlock(&self) -> Option<String> {
        let messages = self.messages();
        let waits = messages.iter().any(|messages| !messages.waits.is_empty());
        waits.then(|| explain_message_deadlock(&messages))
    }

    fn messages(&self) -> Vec<&MessageState> {
        self.0.iter().flatten().map(|(_, messages)| messages).collect()
    }
}

impl Table {
    /// Who waits for what, in words: what ranks disagree about if they have made the same call, otherwise names.
    pub(crate) fn explain_deadlock(&self) -> String {
        self.explain_calls().unwrap_or_else(|| self.explain_names())
    }

    /// The first difference between calls whose names are made from sizes.
    fn explain_calls(&self) -> Option<String> {
        let calls: Vec<Vec<Request>> = (0..self.size).map(|rank| self.calls_of(rank)).collect();
        let shortest = calls.iter().map(Vec::len).min().unwrap_or(0);
        let of_all = |number: usize| calls.iter().map(|of_rank| Some(&of_rank[number])).collect::<Vec<_>>();
        let is_one =
            |of_all: &Vec<Option<&Request>>| of_all.windows(2).all(|pair| pair[0].map(name) == pair[1].map(name));
        (0..shortest).map(of_all).take_while(is_one).find_map(|wishes| check(&wishes).err())
    }

    /// What a rank has called and waits for, oldest first, by the name of the call.
    fn calls_of(&self, rank: Rank) -> Vec<Request> {
        let of_rank = |slot: &'_ Slot| Some((slot.since[rank], slot.wants[rank].clone()?));
        let mut wants: Vec<_> = self.wanted().filter_map(of_rank).collect();
        wants.sort_by_key(|(since, _)| *since);
        let named = |request: &Request| Some(Request { name: request.call.clone()?, bundle: None, ..request.clone() });
        wants.iter().filter_map(|(_, request)| named(request)).collect()
    }

    fn explain_names(&self) -> String {
        let mut sides: BTreeMap<Vec<&str>, Vec<Rank>> = BTreeMap::new();
        for rank in (0..self.size).filter(|&rank| self.wanted().any(|slot| slot.wants[rank].is_some())) {
            let of_rank = |slot: &&Slot| slot.wants[rank].is_some();
            // A tensor that all ranks have submitted waits only for the rest of its group.
            let alone = |slot: &&Slot| of_rank(slot) && !self.is_ready(slot);
            let mut names: Vec<&str> = self.wanted().filter(alone).map(|slot| slot.name.as_str()).collect();
            if names.is_empty() {
                names = self.wanted().filter(of_rank).map(|slot| slot.name.as_str()).collect();
            }
            sides.entry(names).or_default().push(rank);
        }
        let mut sides: Vec<(Vec<&str>, Vec<Rank>)> = sides.into_iter().collect();
        sides.sort_by_key(|(_, ranks)| ranks[0]);
        let more = sides.len().saturating_sub(SIDES_SAID);
        let said: Vec<String> = sides.iter().take(SIDES_SAID).map(|(names, ranks)| side(names, ranks)).collect();
        let mut text = format!("they wait for each other: {}", said.join(", "));
        if more > 0 {
            text += &format!(", and so on for {more} more");
        }
        text += "; every thread that submits tensors is waiting, so nothing can end this; \
                 hint: submit the same tensors on all ranks, and wait for them in the same order";
        text
    }
}

fn name(request: &Request) -> &str {
    &request.name
}

/// `rank 1 waits for "a", "b" and 2 more`.
fn side(names: &[&str], ranks: &[Rank]) -> String {
    let wait = if ranks.len() == 1 { "waits" } else { "wait" };
    let quoted: Vec<String> = names.iter().take(NAMES_SAID).map(|name| format!("\"{name}\"")).collect();
    let names = match names.len().saturating_sub(NAMES_SAID) {
        0 => match quoted.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} and {last}", others.join(", ")),
            None => "nothing".into(),
        },
        more => format!("{} and {more} more", quoted.join(", ")),
    };
    format!("{} {wait} for {names}", name_ranks(ranks))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sirtaki_comm::{DType, Reduction};

    use super::*;
    use crate::decide::{
        fuse::Limits,
        message::{Spoken, Verdict, Word},
        request::Operation,
    };

    fn table() -> Table {
        Table::new(3, Limits { fused: 1, large: 1 })
    }

    fn say(table: &mut Table, rank: Rank, word: Word) -> Vec<Verdict> {
        table.hear(rank, Spoken { epoch: 0, word }, Duration::ZERO);
        table.decide()
    }

    fn want(name: &str) -> Word {
        Word::Announce(Box::new(Request::new(name, Operation::AllReduce(Reduction::SUM), DType::F32, &[1])))
    }

    #[test]
    fn all_ranks_have_to_be_blocked_after_the_newest_verdict() {
        let mut table = table();
        for rank in 0..3 {
            let verdicts = say(&mut table, rank, want("common"));
            assert_eq!(verdicts.len(), usize::from(rank == 2));
        }
        assert!(say(&mut table, 0, want("a")).is_empty());
        assert!(say(&mut table, 1, want("a")).is_empty());
        assert!(say(&mut table, 2, want("b")).is_empty());
        // Rank 0 has not run what was decided before.
        for (rank, verdicts) in [(0, 0), (1, 1), (2, 1)] {
            assert!(say(&mut table, rank, Word::Blocked(verdicts, MessageState::default())).is_empty());
        }
        // Rank 2 goes on before rank 0 is blocked.
        assert!(say(&mut table, 2, want("c")).is_empty());
        assert!(say(&mut table, 0, Word::Blocked(1, MessageState::default())).is_empty());
        assert!(say(&mut table, 2, Word::Blocked(1, MessageState::default())).len() == 1);
    }

    #[test]
    fn a_rank_that_goes_on_takes_its_report_back() {
        let mut table = table();
        say(&mut table, 0, want("a"));
        say(&mut table, 1, want("b"));
        say(&mut table, 2, want("b"));
        (0..2).for_each(|rank| assert!(say(&mut table, rank, Word::Blocked(0, MessageState::default())).is_empty()));
        assert!(say(&mut table, 0, Word::Unblocked).is_empty());
        assert!(say(&mut table, 2, Word::Blocked(0, MessageState::default())).is_empty());
        let verdicts = say(&mut table, 0, Word::Blocked(0, MessageState::default()));
        let [Verdict::Refuse(refusals, text)] = verdicts.as_slice() else { panic!("{verdicts:?}") };
        let refusals = refusals.iter().map(|refusal| (refusal.name.as_str(), refusal.not_asked.as_slice()));
        assert_eq!(refusals.collect::<Vec<_>>(), [("a", &[1, 2][..]), ("b", &[0])]);
        assert!(
            text.starts_with("they wait for each other: rank 0 waits for \"a\", ranks 1,2 wait for \"b\"; "),
            "{text}"
        );
        assert!(!table.is_waited_at());
    }

    /// A call with one tensor or with several together, named by its size.
    fn call(table: &mut Table, rank: Rank, call: &str, sizes: &[usize]) {
        for (number, &size) in sizes.iter().enumerate() {
            let name = format!("{call}.{}.{number}", sizes.iter().sum::<usize>());
            let request = Request::new(name, Operation::AllReduce(Reduction::SUM), DType::F32, &[size]);
            let word = Word::Announce(Box::new(Request { call: Some(call.into()), ..request }));
            assert!(say(table, rank, word).is_empty());
        }
    }

    fn verdict_on_blocked(table: &mut Table) -> String {
        (0..2).for_each(|rank| assert!(say(table, rank, Word::Blocked(0, MessageState::default())).is_empty()));
        let verdicts = say(table, 2, Word::Blocked(0, MessageState::default()));
        let [Verdict::Refuse(_, text)] = verdicts.as_slice() else { panic!("{verdicts:?}") };
        text.clone()
    }

    #[test]
    fn one_call_with_different_sizes_is_a_disagreement_about_shapes() {
        let mut first = table();
        (0..3).for_each(|rank| call(&mut first, rank, "sum", &[if rank == 1 { 5 } else { 4 }]));
        assert_eq!(
            verdict_on_blocked(&mut first),
            "\"sum\": ranks bring different shapes: ranks 0,2 shape [4], rank 1 shape [5]"
        );
        // The first of several tensors may be the same.
        let mut second = table();
        (0..3).for_each(|rank| call(&mut second, rank, "sum", &[3, 4 + rank]));
        assert!(verdict_on_blocked(&mut second).contains("rank 0 shape [4], rank 1 shape [5], rank 2 shape [6]"));
    }

    #[test]
    fn different_calls_wait_for_each_other() {
        let mut table = table();
        (0..3).for_each(|rank| call(&mut table, rank, ["sum", "sum", "other"][rank], &[4 + rank]));
        assert!(verdict_on_blocked(&mut table).starts_with("they wait for each other: rank 0 waits for \"sum.4.0\""));
    }

    #[test]
    fn many_names_are_counted() {
        assert_eq!(side(&["a"], &[0]), "rank 0 waits for \"a\"");
        assert_eq!(side(&["a", "b", "c"], &[0, 2]), "ranks 0,2 wait for \"a\", \"b\" and \"c\"");
        assert_eq!(side(&["a", "b", "c", "d"], &[1]), "rank 1 waits for \"a\", \"b\", \"c\" and 1 more");
    }
}
