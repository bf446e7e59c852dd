//! Random schedules: ranks send and ask in any order, and frames between two ranks arrive in order but at any time.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;

const RANKS: usize = 3;
const TAGS: u64 = 2;

fn form(shape: &[usize]) -> MessageForm {
    MessageForm { dtype: DType::F32, shape: shape.to_vec() }
}

/// A message, by its number among those of its sender.
type Message = u64;

/// A frame, with the message that follows it.
type OnItsWay = (ChannelFrame, Option<(Tag, Message)>);

/// A receive: its number on its rank, whom it asks, and the tag.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wish {
    number: u64,
    from: Option<Rank>,
    tag: Tag,
}

#[derive(Debug, Default)]
struct Network {
    outgoing: BTreeMap<(Rank, Rank), Outgoing<(Tag, Message)>>,
    incoming: [Incoming<Wish>; RANKS],
    /// Frames under way, with the message that follows one, by sender and receiver.
    links: BTreeMap<(Rank, Rank), VecDeque<OnItsWay>>,
    sent: [u64; RANKS],
    wished: [u64; RANKS],
    /// Receiver, wish, sender and message.
    got: Vec<(Rank, Wish, Rank, (Tag, Message))>,
}

impl Network {
    fn say(&mut self, from: Rank, to: Rank, frame: ChannelFrame, message: Option<(Tag, Message)>) {
        self.links.entry((from, to)).or_default().push_back((frame, message));
    }

    fn dispatch(&mut self, from: Rank, to: Rank, all: Vec<Dispatch<(Tag, Message)>>) {
        for dispatch in all {
            match dispatch {
                Dispatch::Say(frame) => self.say(from, to, frame, None),
                Dispatch::Send(id, form, message) => {
                    self.say(from, to, ChannelFrame::Message(id, form), Some(message));
                }
                Dispatch::Refuse(..) => panic!("all messages have one form"),
            }
        }
    }

    fn send(&mut self, from: Rank, to: Rank, tag: Tag) {
        self.sent[from] += 1;
        let message = (tag, self.sent[from]);
        let all = self.outgoing.entry((from, to)).or_default().send(tag, form(&[1]), message);
        self.dispatch(from, to, all);
    }

    fn ask(&mut self, rank: Rank, from: Option<Rank>, tag: Tag) {
        self.wished[rank] += 1;
        let wish = Wish { number: self.wished[rank], from, tag };
        let others: Vec<Rank> = (0..RANKS).filter(|&other| from.map_or(other != rank, |from| other == from)).collect();
        for (to, frame) in self.incoming[rank].ask(&others, from.is_none(), tag, Some(form(&[1])), wish) {
            self.say(rank, to, frame, None);
        }
    }

    /// One frame arrives; says whether there was one.
    fn deliver(&mut self, from: Rank, to: Rank) -> bool {
        let Some((frame, message)) = self.links.get_mut(&(from, to)).and_then(VecDeque::pop_front) else {
            return false;
        };
        if matches!(frame, ChannelFrame::Ask { .. } | ChannelFrame::Take(_) | ChannelFrame::Cancel(_)) {
            let all = self.outgoing.entry((to, from)).or_default().hear(frame).expect("it makes sense");
            self.dispatch(to, from, all);
            return true;
        }
        match self.incoming[to].hear(from, frame).expect("it makes sense") {
            Receipt::Say(frames) => frames.into_iter().for_each(|(other, frame)| self.say(to, other, frame, None)),
            Receipt::Message(wish, _) => self.got.push((to, wish, from, message.expect("bytes follow"))),
            Receipt::Refused(..) => panic!("all messages have one form"),
        }
        true
    }

    fn settle(&mut self) {
        let pairs = || (0..RANKS).flat_map(|from| (0..RANKS).map(move |to| (from, to)));
        while pairs().filter(|&(from, to)| self.deliver(from, to)).count() > 0 {}
    }
}

fn schedule() -> impl Strategy<Value = Vec<(u8, Rank, Rank, Tag)>> {
    proptest::collection::vec((0..4_u8, 0..RANKS, 0..RANKS, 0..TAGS), 0..120)
}

proptest! {
    #[test]
    fn every_receive_gets_the_message_it_should(steps in schedule()) {
        let mut network = Network::default();
        for (action, rank, other, tag) in steps {
            match action {
                0 if rank != other => network.send(rank, other, tag),
                1 if rank != other => network.ask(rank, Some(other), tag),
                2 if tag == 0 => network.ask(rank, None, tag),
                _ => drop(network.deliver(rank, other)),
            }
        }
        network.settle();
        for (rank, wish, from, (tag, _)) in &network.got {
            prop_assert_eq!(wish.tag, *tag);
            prop_assert!(wish.from.is_none_or(|wanted| wanted == *from) && from != rank);
        }
        // Messages of one rank answer the receives of another in the order of both.
        for (first, second) in network.got.iter().flat_map(|a| network.got.iter().map(move |b| (a, b))) {
            let same = first.0 == second.0 && first.2 == second.2 && first.3.0 == second.3.0;
            prop_assert!(!same || (first.1.number < second.1.number) == (first.3.1 < second.3.1) || first == second);
        }
        // Nothing waits for what is there, and nothing is lost.
        let held: usize = network.outgoing.values().map(|outgoing| outgoing.held().count()).sum();
        prop_assert_eq!(held + network.got.len(), network.sent.iter().sum::<u64>() as usize);
        let open: usize = network.incoming.iter().map(Incoming::count).sum();
        prop_assert_eq!(open + network.got.len(), network.wished.iter().sum::<u64>() as usize);
        for (&(from, to), outgoing) in &network.outgoing {
            for (tag, _) in outgoing.held() {
                let waits = |wish: &Wish| wish.tag == *tag && wish.from.is_none_or(|wanted| wanted == from);
                prop_assert!(!network.incoming[to].open().any(|(_, wish)| waits(wish)), "{from} → {to}, tag {tag}");
            }
        }
    }

    #[test]
    fn whatever_arrives_is_understood_or_refused(frames in proptest::collection::vec((0..6_u8, 0..4_u64), 0..40)) {
        let mut outgoing = Outgoing::default();
        let mut incoming: Incoming<()> = Incoming::default();
        outgoing.send(0, form(&[1]), ());
        incoming.ask(&[0, 1], true, 0, None, ());
        incoming.ask(&[1], false, 0, None, ());
        for (kind, id) in frames {
            let frame = match kind {
                0 => ChannelFrame::Ask { id, tag: id % 2, any: id % 2 == 0, form: None },
                1 => ChannelFrame::Offer(id),
                2 => ChannelFrame::Take(id),
                3 => ChannelFrame::Cancel(id),
                4 => ChannelFrame::Message(id, form(&[1])),
                _ => ChannelFrame::Refuse(id, String::new()),
            };
            let _ = (outgoing.hear(frame.clone()), incoming.hear(1, frame));
        }
    }
}

#[test]
fn a_message_of_another_form_is_refused_on_both_sides() {
    let mut outgoing = Outgoing::default();
    let ask = ChannelFrame::Ask { id: 0, tag: 7, any: false, form: Some(form(&[2])) };
    assert_eq!(outgoing.hear(ask), Some(Vec::new()));
    let all = outgoing.send(7, form(&[3]), "message");
    let text = "different shapes: the sender brings f32 of shape [3], the receiver expects f32 of shape [2]";
    assert_eq!(all, [Dispatch::Refuse(0, "message", text.into())]);
    let mut incoming = Incoming::default();
    incoming.ask(&[1], false, 7, Some(form(&[2])), "receive");
    let receipt = incoming.hear(1, ChannelFrame::Refuse(0, text.into()));
    assert_eq!(receipt, Some(Receipt::Refused("receive", text.into())));
    assert_eq!(incoming.hear(1, ChannelFrame::Refuse(0, text.into())), None, "it was answered");
}

#[test]
fn sizes_that_cannot_be_are_none() {
    assert_eq!(form(&[2, 3]).bytes(), Some(24));
    assert_eq!(form(&[]).bytes(), Some(4));
    assert_eq!(form(&[usize::MAX, 2]).bytes(), None);
    assert_eq!(form(&[1 << 62]).bytes(), None);
}
