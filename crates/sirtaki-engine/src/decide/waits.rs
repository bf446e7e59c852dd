//! Ranks that wait for messages: the part of the deadlock proof that is about them, and the sentences.
//!
//! Messages do not pass the table, so a rank that reports that it is blocked (`deadlock`) also says how many frames
//! it has handed to each other rank's channel and how many it has dealt with from each. If all ranks are blocked and every
//! rank has dealt with exactly the frames that were handed to it, none is under way. Such numbers prove it although the
//! reports are of different times: the first rank to do anything after its report would have to do so because of a frame
//! that was handed in before its sender's report and dealt with after its own, so the two numbers would differ.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sirtaki_comm::{Group, Rank};

use crate::decide::channel::Tag;

/// How many of one rank's messages are named at most.
const SAID: usize = 3;
/// How many ranks are named at most.
const RANKS_SAID: usize = 4;

/// A message that a rank waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageWait {
    /// Whether the rank sends it, rather than receives it.
    pub sends: bool,
    /// The rank at the other end; `None` for any.
    pub peer: Option<Rank>,
    /// What the program calls it.
    pub label: String,
    /// Its tag.
    pub tag: Tag,
    /// How long it has waited.
    pub waited: Duration,
}

impl MessageWait {
    /// What the rank waits for, in words that follow "waits for".
    fn describe(&self, name: &dyn Fn(Rank) -> String) -> String {
        let Self { sends, peer, label, tag, .. } = self;
        match (sends, peer) {
            (false, Some(peer)) => format!("\"{label}\" (tag {tag}) from {}", name(*peer)),
            (false, None) => format!("\"{label}\" (tag {tag}) from any rank"),
            (true, Some(peer)) => format!("{} to receive \"{label}\" (tag {tag})", name(*peer)),
            (true, None) => format!("somebody to receive \"{label}\" (tag {tag})"),
        }
    }
}

/// What a blocked rank says about messages.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageState {
    /// For every rank it has a channel to: frames handed in, frames dealt with.
    pub frames: Vec<(Rank, u64, u64)>,
    /// The messages it waits for, oldest first; not all of them if there are many.
    pub waits: Vec<MessageWait>,
}

impl MessageState {
    fn handed_in(&self, to: Rank) -> u64 {
        self.frames.iter().find(|(rank, ..)| *rank == to).map_or(0, |(_, handed_in, _)| *handed_in)
    }

    fn dealt_with(&self, from: Rank) -> u64 {
        self.frames.iter().find(|(rank, ..)| *rank == from).map_or(0, |(.., dealt_with)| *dealt_with)
    }
}

/// Whether no frame is under way between ranks that report this, by rank.
pub(crate) fn nothing_under_way(states: &[&MessageState]) -> bool {
    let used = |rank: Rank| states[rank].frames.iter().map(|(other, ..)| *other).filter(|other| *other < states.len());
    (0..states.len()).all(|rank| {
        used(rank).all(|other| {
            states[rank].handed_in(other) == states[other].dealt_with(rank)
                && states[other].handed_in(rank) == states[rank].dealt_with(other)
        })
    })
}

/// Why nothing can end these waits, by rank.
pub(crate) fn explain_message_deadlock(states: &[&MessageState]) -> String {
    let name = |rank: Rank| format!("rank {rank}");
    let waiting = states.iter().enumerate().filter(|(_, state)| !state.waits.is_empty());
    let mut said: Vec<String> = waiting
        .map(|(rank, state)| {
            let waits: Vec<String> = state.waits.iter().take(SAID).map(|wait| wait.describe(&name)).collect();
            format!("rank {rank} waits for {}", waits.join(" and "))
        })
        .collect();
    let more = said.len().saturating_sub(RANKS_SAID);
    said.truncate(RANKS_SAID);
    let more = if more > 0 { format!(", and so on for {more} more") } else { String::new() };
    format!(
        "ranks wait for each other's messages: {}{more}; every thread that sends, receives or submits is waiting, so \
         nothing can end this; hint: start sends and receives on both sides before waiting for any, and give both sides \
         of a message the same tag",
        said.join(", ")
    )
}

/// The rank at the end of a chain of ranks that wait for each other's messages: the one to look at.
pub(crate) fn last_in_chain(first: Rank, wait: &dyn Fn(Rank) -> Option<MessageWait>, size: usize) -> Rank {
    let mut at = first;
    for _ in 0..size {
        match wait(at).and_then(|wait| wait.peer) {
            Some(next) => at = next,
            None => break,
        }
    }
    at
}

/// A long wait in words. `wait` says what ranks wait for, and `state` what the process of the last one is doing.
pub(crate) fn explain_message(
    group: &Group,
    rank: Rank,
    wait: &dyn Fn(Rank) -> Option<MessageWait>,
    state: &dyn Fn(Rank) -> Option<String>,
) -> Option<String> {
    let name = |rank: Rank| group.describe(rank);
    let first = wait(rank)?;
    let mut text = format!("{} has waited for {} for {} s", name(rank), first.describe(&name), first.waited.as_secs());
    let mut seen = vec![rank];
    let mut next = first.peer;
    while let Some(at) = next.filter(|at| !seen.contains(at)) {
        seen.push(at);
        match wait(at) {
            Some(wait) => {
                text += &format!(", which waits for {}", wait.describe(&name));
                next = wait.peer;
            }
            None => {
                text += &state(at).map_or(String::new(), |state| format!(", which is {state}"));
                next = None;
            }
        }
    }
    Some(text + ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(sends: bool, peer: Option<Rank>, label: &str) -> MessageWait {
        MessageWait { sends, peer, label: label.into(), tag: 3, waited: Duration::from_secs(12) }
    }

    #[test]
    fn numbers_that_differ_mean_that_something_is_under_way() {
        let state = |frames: &[(Rank, u64, u64)]| MessageState { frames: frames.to_vec(), waits: Vec::new() };
        let (quiet, busy) = (state(&[(1, 4, 2)]), state(&[(1, 5, 2)]));
        let (other, unused) = (state(&[(0, 2, 4)]), state(&[]));
        assert!(nothing_under_way(&[&quiet, &other, &unused]));
        assert!(!nothing_under_way(&[&busy, &other, &unused]));
        assert!(!nothing_under_way(&[&quiet, &unused, &unused]), "rank 1 has not begun to listen");
        assert!(!nothing_under_way(&[&unused, &other, &unused]));
        assert!(nothing_under_way(&[&unused, &unused]));
        assert!(nothing_under_way(&[&state(&[(9, 1, 1)])]), "a rank that does not exist is nobody's");
    }

    #[test]
    fn the_sentence_follows_the_chain_to_its_end() {
        let waits = |rank: Rank| match rank {
            2 => Some(wait(false, Some(1), "activations of micro-batch 3")),
            1 => Some(wait(true, Some(0), "gradients")),
            _ => None,
        };
        let group = Group::local(0, 3);
        let text = explain_message(&group, 2, &waits, &|_| Some("alive and computing, in load (train.py:4)".into()));
        let (zero, one, two) = (group.describe(0), group.describe(1), group.describe(2));
        let expected = format!(
            "{two} has waited for \"activations of micro-batch 3\" (tag 3) from {one} for 12 s, which waits for {zero} \
             to receive \"gradients\" (tag 3), which is alive and computing, in load (train.py:4)."
        );
        assert_eq!(text, Some(expected));
        assert_eq!(last_in_chain(2, &waits, 3), 0);
        let circle = |rank: Rank| Some(wait(false, Some(1 - rank), "x"));
        let text = explain_message(&group, 0, &circle, &|_| None).unwrap();
        assert_eq!(text.matches("\"x\"").count(), 2, "a circle ends where it began: {text}");
    }

    #[test]
    fn a_deadlock_names_who_waits_for_what() {
        let state = |waits| MessageState { frames: Vec::new(), waits };
        let text = explain_message_deadlock(&[
            &state(vec![wait(false, Some(1), "a")]),
            &state(vec![wait(true, Some(0), "b"), wait(false, None, "c")]),
        ]);
        assert!(
            text.starts_with(
                "ranks wait for each other's messages: rank 0 waits for \"a\" (tag 3) from rank 1, rank 1 waits for \
                 rank 0 to receive \"b\" (tag 3) and \"c\" (tag 3) from any rank; "
            ),
            "{text}"
        );
    }
}
