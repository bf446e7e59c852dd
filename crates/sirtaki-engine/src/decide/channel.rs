//! Messages between two ranks: which message goes to which receive. Pure: frames in, frames out.
//!
//! A message stays with its sender until the receiver has asked for it, so nobody needs memory for what nobody wants yet,
//! and a link never carries bytes without a place to put them; that is why any number of ranks may send to each other at
//! once. The sender decides which of its messages answers which ask: the oldest of that tag answers the oldest ask for it,
//! so a receive that is there first costs one trip of the message and nothing else.
//!
//! A receive from any rank asks all of them. A rank with a message *offers* it and leaves it in place; the receiver takes
//! the first offer and cancels the other asks. Whatever comes behind an offered message waits for that answer, so messages
//! of one rank never overtake each other.
//!
//! Rejected: sending small messages unasked. It saves a late receiver one trip and costs every receiver memory that only
//! back-pressure would bound, which makes ranks that send to each other before they receive wait for ever.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use serde::{Deserialize, Serialize};
use sirtaki_comm::{DType, Rank};

/// Distinguishes messages between the same two ranks.
pub type Tag = u64;
/// A receive's number on the rank that made it.
pub type AskId = u64;

/// Type and shape of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageForm {
    /// The type of its elements.
    pub dtype: DType,
    /// Its shape.
    pub shape: Vec<usize>,
}

impl MessageForm {
    /// The bytes of such a message, unless there can be none of that size.
    pub fn bytes(&self) -> Option<usize> {
        let elements = self.shape.iter().try_fold(1_usize, |product, &size| product.checked_mul(size))?;
        elements.checked_mul(self.dtype.size()).filter(|&bytes| isize::try_from(bytes).is_ok())
    }

    /// `float32 of shape [2, 3]`.
    pub fn describe(&self) -> String {
        format!("{} of shape {:?}", self.dtype.name(), self.shape)
    }
}

/// What one rank says to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChannelFrame {
    /// Send me a message of this tag. Where one is offered first, the asker has asked others too.
    Ask {
        /// The asker's number for it.
        id: AskId,
        /// The tag.
        tag: Tag,
        /// The asker may get it from another rank.
        any: bool,
        /// What the asker has a place for, if that is fixed.
        form: Option<MessageForm>,
    },
    /// There is a message for this ask.
    Offer(AskId),
    /// Send the one that was offered.
    Take(AskId),
    /// This ask is void, offered or not.
    Cancel(AskId),
    /// The answer to an ask. Its bytes follow.
    Message(AskId, MessageForm),
    /// The message for this ask is not what the asker has a place for, in words.
    Refuse(AskId, String),
}

#[derive(Debug)]
struct Ask {
    id: AskId,
    any: bool,
    form: Option<MessageForm>,
}

/// The messages of one tag and the asks for them. Only one of both is not empty, unless a message is offered.
#[derive(Debug)]
struct Line<M> {
    held: VecDeque<(MessageForm, M)>,
    asks: VecDeque<Ask>,
    offered: bool,
}

/// What a sender has to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Dispatch<M> {
    /// Say this.
    Say(ChannelFrame),
    /// Answer this ask with this message.
    Send(AskId, MessageForm, M),
    /// The message is not what the receiver of this ask has a place for. Both are told in the same words.
    Refuse(AskId, M, String),
}

/// The messages from this rank to one other, and what that one has asked for.
#[derive(Debug)]
pub struct Outgoing<M> {
    lines: HashMap<Tag, Line<M>>,
    /// The tag of every ask that is open.
    tags: HashMap<AskId, Tag>,
}

impl<M> Default for Outgoing<M> {
    fn default() -> Self {
        Self { lines: HashMap::new(), tags: HashMap::new() }
    }
}

impl<M> Outgoing<M> {
    /// This rank sends a message.
    pub fn send(&mut self, tag: Tag, form: MessageForm, message: M) -> Vec<Dispatch<M>> {
        self.line(tag).held.push_back((form, message));
        self.advance(tag)
    }

    /// The other rank says something that concerns a sender; `None` if it makes no sense.
    pub fn hear(&mut self, frame: ChannelFrame) -> Option<Vec<Dispatch<M>>> {
        let mut first = None;
        let tag = match frame {
            ChannelFrame::Ask { id, tag, any, form } => {
                if self.tags.insert(id, tag).is_some() {
                    return None;
                }
                self.line(tag).asks.push_back(Ask { id, any, form });
                tag
            }
            ChannelFrame::Take(id) => {
                let tag = *self.tags.get(&id)?;
                let line = self.lines.get_mut(&tag)?;
                if !line.offered || line.asks.front()?.id != id {
                    return None;
                }
                line.offered = false;
                let ask = line.asks.pop_front()?;
                first = line.held.pop_front().map(|(form, message)| answer(&ask, form, message));
                self.tags.remove(&id);
                tag
            }
            ChannelFrame::Cancel(id) => {
                let tag = self.tags.remove(&id)?;
                let line = self.lines.get_mut(&tag)?;
                if line.asks.front()?.id == id {
                    line.offered = false;
                }
                line.asks.retain(|ask| ask.id != id);
                tag
            }
            _ => return None,
        };
        let mut all: Vec<Dispatch<M>> = first.into_iter().collect();
        all.extend(self.advance(tag));
        Some(all)
    }

    fn line(&mut self, tag: Tag) -> &mut Line<M> {
        self.lines.entry(tag).or_insert_with(|| Line { held: VecDeque::new(), asks: VecDeque::new(), offered: false })
    }

    /// Answers asks as far as there are messages and nothing is offered.
    fn advance(&mut self, tag: Tag) -> Vec<Dispatch<M>> {
        let mut all = Vec::new();
        let Some(line) = self.lines.get_mut(&tag) else { return all };
        while !line.offered && !line.held.is_empty() && !line.asks.is_empty() {
            if let Some(ask) = line.asks.front().filter(|ask| ask.any) {
                line.offered = true;
                all.push(Dispatch::Say(ChannelFrame::Offer(ask.id)));
                break;
            }
            if let (Some(ask), Some((form, message))) = (line.asks.pop_front(), line.held.pop_front()) {
                self.tags.remove(&ask.id);
                all.push(answer(&ask, form, message));
            }
        }
        if line.held.is_empty() && line.asks.is_empty() {
            self.lines.remove(&tag);
        }
        all
    }

    /// Asks that are open.
    pub fn asks(&self) -> usize {
        self.tags.len()
    }

    /// The messages that nobody has taken.
    pub fn held(&self) -> impl Iterator<Item = &M> {
        self.lines.values().flat_map(|line| line.held.iter().map(|(_, message)| message))
    }

    /// Gives up all messages.
    pub fn drain(&mut self) -> Vec<M> {
        let lines = std::mem::take(&mut self.lines);
        lines.into_values().flat_map(|line| line.held.into_iter().map(|(_, message)| message)).collect()
    }
}

fn answer<M>(ask: &Ask, form: MessageForm, message: M) -> Dispatch<M> {
    match &ask.form {
        Some(wanted) if *wanted != form => {
            let what = if wanted.dtype == form.dtype { "shapes" } else { "types" };
            let (brings, expects) = (form.describe(), wanted.describe());
            let text = format!("different {what}: the sender brings {brings}, the receiver expects {expects}");
            Dispatch::Refuse(ask.id, message, text)
        }
        _ => Dispatch::Send(ask.id, form, message),
    }
}

#[derive(Debug)]
struct Receive<R> {
    /// The ranks that were asked and have not been told otherwise.
    asked: BTreeSet<Rank>,
    any: bool,
    receive: R,
}

/// What this rank has asked for.
#[derive(Debug)]
pub struct Incoming<R> {
    next: AskId,
    open: BTreeMap<AskId, Receive<R>>,
}

impl<R> Default for Incoming<R> {
    fn default() -> Self {
        Self { next: 0, open: BTreeMap::new() }
    }
}

/// What a receiver has to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Receipt<R> {
    /// Say this to these ranks.
    Say(Vec<(Rank, ChannelFrame)>),
    /// The message for this receive comes now.
    Message(R, MessageForm),
    /// There is none, and this is why.
    Refused(R, String),
}

impl<R> Incoming<R> {
    /// This rank asks one rank, or the first of several that has a message.
    pub fn ask(
        &mut self,
        from: &[Rank],
        any: bool,
        tag: Tag,
        form: Option<MessageForm>,
        receive: R,
    ) -> Vec<(Rank, ChannelFrame)> {
        let id = self.next;
        self.next += 1;
        self.open.insert(id, Receive { asked: from.iter().copied().collect(), any, receive });
        let ask = |&rank: &Rank| (rank, ChannelFrame::Ask { id, tag, any, form: form.clone() });
        from.iter().map(ask).collect()
    }

    /// `rank` says something that concerns a receiver; `None` if it makes no sense.
    pub fn hear(&mut self, rank: Rank, frame: ChannelFrame) -> Option<Receipt<R>> {
        match frame {
            ChannelFrame::Offer(id) => {
                // An offer that crossed our cancelling is void already.
                let Some(receive) = self.open.get_mut(&id).filter(|receive| receive.asked.contains(&rank)) else {
                    return (id < self.next).then(|| Receipt::Say(Vec::new()));
                };
                if !receive.any {
                    return None;
                }
                let others = std::mem::take(&mut receive.asked).into_iter().filter(|&other| other != rank);
                let mut frames: Vec<_> = others.map(|other| (other, ChannelFrame::Cancel(id))).collect();
                frames.push((rank, ChannelFrame::Take(id)));
                (receive.asked, receive.any) = (BTreeSet::from([rank]), false);
                Some(Receipt::Say(frames))
            }
            ChannelFrame::Message(id, form) => Some(Receipt::Message(self.answered(rank, id)?, form)),
            ChannelFrame::Refuse(id, text) => Some(Receipt::Refused(self.answered(rank, id)?, text)),
            _ => None,
        }
    }

    fn answered(&mut self, rank: Rank, id: AskId) -> Option<R> {
        self.open.get(&id).filter(|receive| !receive.any && receive.asked.contains(&rank))?;
        self.open.remove(&id).map(|receive| receive.receive)
    }

    /// The receives that are open, oldest first, with the only rank that each can come from, if there is only one.
    pub fn open(&self) -> impl Iterator<Item = (Option<Rank>, &R)> {
        let from = |receive: &Receive<R>| receive.asked.first().copied().filter(|_| receive.asked.len() == 1);
        self.open.values().map(move |receive| (from(receive), &receive.receive))
    }

    /// How many receives are open.
    pub fn count(&self) -> usize {
        self.open.len()
    }

    /// Gives up all receives.
    pub fn drain(&mut self) -> Vec<R> {
        std::mem::take(&mut self.open).into_values().map(|receive| receive.receive).collect()
    }
}

#[cfg(test)]
mod tests;
