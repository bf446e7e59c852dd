//! A worker's side: one request at a time, cut up for the servers that answer for its blocks.
//!
//! When the view changes, whatever was not answered is asked again, of the servers that answer for it now. Servers
//! recognise what they have done already.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use super::{
    HEAD, Id,
    message::{Act, Kind, Message, Piece, Request, Terms},
    ring::Ring,
    table::BlockId,
    view::View,
};

/// What became of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It is done; the rows that were asked for, in the order of the request, and how many clocks the slowest worker
    /// was behind.
    Done(Vec<f32>, u64),
    /// A server refused it.
    Refused(String),
    /// The service has ended, for this reason if not in good order.
    Ended(Option<String>),
}

/// A worker.
#[derive(Debug)]
pub struct Client {
    id: Id,
    terms: Terms,
    view: View,
    /// Whether the view has begun.
    serving: bool,
    ring: Ring,
    starts: BTreeMap<Id, u64>,
    next: u64,
    open: Option<Open>,
    ended: Option<Option<String>>,
}

/// The request that is under way.
#[derive(Debug)]
struct Open {
    number: u64,
    clock: u64,
    act: Act,
    /// The numbers that its pieces carry.
    data: Vec<f32>,
    /// For each piece that carries numbers, which these are, and whether its server has confirmed it.
    carried: Vec<(Range<usize>, bool)>,
    /// The numbers that are asked for, as far as they are here.
    values: Vec<f32>,
    /// For each piece that is asked for, which numbers are its own, and whether they are here.
    asked: Vec<(Range<usize>, bool)>,
    /// Servers that have not answered, with what they were asked: places in the two lists above.
    unanswered: BTreeMap<Id, (Vec<usize>, Vec<usize>)>,
    behind: u64,
    sent: bool,
}

impl Open {
    /// What a server is asked.
    fn request(&self, view: u64, server: Id) -> Option<Message> {
        let (carried, asked) = self.unanswered.get(&server)?;
        let pieces = |places: &[usize], all: &[Piece]| places.iter().map(|&place| all[place].clone()).collect();
        let act = self.act.with(pieces(carried, self.act.carried()), pieces(asked, self.act.asked()));
        let parts: Vec<&[f32]> = carried.iter().map(|&place| &self.data[self.carried[place].0.clone()]).collect();
        let request = Request { view, number: self.number, clock: self.clock, act };
        Some(Message { kind: Kind::Request(request), data: parts.concat() })
    }

    /// Takes what a server answers for these pieces; an error if that is not what they have.
    fn take(&mut self, asked: &[usize], data: Vec<f32>) -> Result<(), String> {
        let expected: usize = asked.iter().map(|&place| self.asked[place].0.len()).sum();
        if data.len() != expected {
            return Err(format!("{} numbers came for {expected} elements", data.len()));
        }
        asked.iter().for_each(|&place| self.asked[place].1 = true);
        if asked.len() == self.asked.len() {
            self.values = data;
            return Ok(());
        }
        self.values.resize(self.asked.last().map_or(0, |(range, _)| range.end), 0.0);
        let mut rest = data.as_slice();
        for &place in asked {
            let range = self.asked[place].0.clone();
            let (numbers, after) = rest.split_at(range.len());
            self.values[range].copy_from_slice(numbers);
            rest = after;
        }
        Ok(())
    }
}

impl Client {
    /// A worker that has been admitted.
    pub fn new(id: Id, terms: Terms) -> Self {
        let (view, ring) = (View::default(), Ring::default());
        Self { id, terms, view, serving: false, ring, starts: BTreeMap::new(), next: 0, open: None, ended: None }
    }

    /// Its number.
    pub fn id(&self) -> Id {
        self.id
    }

    /// What all members have in common.
    pub fn terms(&self) -> Terms {
        self.terms
    }

    /// The latest view.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The clock at which it begins, once that is known.
    pub fn start(&self) -> Option<u64> {
        self.starts.get(&self.id).copied()
    }

    /// Begins a request. `data` are the numbers of its pieces one after the other; `width` says how many elements rows
    /// of a piece have.
    pub fn begin(
        &mut self,
        clock: u64,
        act: Act,
        data: Vec<f32>,
        width: impl Fn(&Piece) -> usize,
        out: &mut Vec<(Id, Message)>,
    ) {
        let length = |piece: &Piece| piece.rows.len() * width(piece);
        let carried = one_after_the_other(act.carried().iter().map(length), data.len());
        let asked = one_after_the_other(act.asked().iter().map(length), usize::MAX);
        self.next += 1;
        let (number, values, unanswered) = (self.next, Vec::new(), BTreeMap::new());
        self.open = Some(Open { number, clock, act, data, carried, values, asked, unanswered, behind: 0, sent: false });
        self.ask(out);
    }

    /// What follows from a message; the outcome of the request if there is one.
    pub fn handle(&mut self, from: Id, message: Message, out: &mut Vec<(Id, Message)>) -> Option<Outcome> {
        let Message { kind, data } = message;
        match kind {
            Kind::View(view) if from == HEAD => {
                self.view = view;
                self.serving = false;
            }
            Kind::Serve { view, starts } if from == HEAD && view == self.view.number => {
                (self.serving, self.starts) = (true, starts);
                self.ring = Ring::new(&self.view.server_ids());
                self.ask(out);
            }
            Kind::End(problem) if from == HEAD => self.ended = Some(problem),
            Kind::Done { view, number } if view == self.view.number => {
                return self.answered(from, number, Vec::new(), 0).or_else(|| self.outcome());
            }
            Kind::Values { view, number, behind } if view == self.view.number => {
                return self.answered(from, number, data, behind).or_else(|| self.outcome());
            }
            Kind::Refused { number, problem } if self.open.as_ref().is_some_and(|open| open.number == number) => {
                self.open = None;
                return Some(Outcome::Refused(problem));
            }
            _ => {}
        }
        self.outcome()
    }

    /// Asks every server for what is still missing. Those that have nothing of it hear of a push, too.
    fn ask(&mut self, out: &mut Vec<(Id, Message)>) {
        let Some(open) = self.open.as_mut().filter(|_| self.serving) else { return };
        let first = |block: BlockId| self.ring.owners(block.key(), 1).first().copied();
        open.unanswered.clear();
        if matches!(open.act, Act::Push { .. }) {
            open.unanswered.extend(self.view.servers.keys().map(|&server| (server, Default::default())));
        }
        for (place, piece) in open.act.carried().iter().enumerate().filter(|&(place, _)| !open.carried[place].1) {
            open.unanswered.entry(first(piece.block).unwrap_or(HEAD)).or_default().0.push(place);
        }
        for (place, piece) in open.act.asked().iter().enumerate().filter(|&(place, _)| !open.asked[place].1) {
            open.unanswered.entry(first(piece.block).unwrap_or(HEAD)).or_default().1.push(place);
        }
        let view = self.view.number;
        out.extend(open.unanswered.keys().filter_map(|&server| Some((server, open.request(view, server)?))));
        open.sent = true;
    }

    /// Asks a server again, whose link was lost and is there again.
    pub fn repeat(&self, server: Id, out: &mut Vec<(Id, Message)>) {
        let open = self.open.as_ref().filter(|open| self.serving && open.sent);
        out.extend(open.and_then(|open| Some((server, open.request(self.view.number, server)?))));
    }

    /// An answer; the outcome if it makes no sense.
    fn answered(&mut self, from: Id, number: u64, data: Vec<f32>, behind: u64) -> Option<Outcome> {
        let open = self.open.as_mut().filter(|open| open.number == number)?;
        let (carried, asked) = open.unanswered.remove(&from)?;
        carried.into_iter().for_each(|place| open.carried[place].1 = true);
        open.behind = open.behind.max(behind);
        let problem = open.take(&asked, data).err()?;
        self.open = None;
        Some(Outcome::Refused(format!("server {from}: {problem}")))
    }

    fn outcome(&mut self) -> Option<Outcome> {
        if let (Some(problem), true) = (&self.ended, self.open.is_some()) {
            self.open = None;
            return Some(Outcome::Ended(problem.clone()));
        }
        let is_done = |open: &&Open| open.sent && open.unanswered.is_empty() && self.serving;
        self.open.as_ref().filter(is_done)?;
        let open = self.open.take()?;
        Some(Outcome::Done(open.values, open.behind))
    }

    /// The servers that have not answered the request under way.
    pub fn waits_for(&self) -> BTreeSet<Id> {
        self.open.iter().flat_map(|open| open.unanswered.keys().copied()).collect()
    }
}

/// The places of pieces of these lengths, all of them below a limit, none of which is dealt with yet.
fn one_after_the_other(lengths: impl Iterator<Item = usize>, most: usize) -> Vec<(Range<usize>, bool)> {
    let mut end = 0_usize;
    let place = |length| {
        let begin = end;
        end = begin.saturating_add(length).min(most);
        (begin..end, false)
    };
    lengths.map(place).collect()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;
    use crate::decide::{clock::Delay, table::Rows};

    const ME: Id = 9;

    /// A worker of two servers that has asked for blocks of three elements each, and what it asked of whom.
    fn asking(blocks: u32) -> (Client, Vec<(Id, Message)>) {
        let mut client = Client::new(ME, Terms { delay: Delay::Unbounded, copies: 1 });
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let servers = [(1, address), (2, address)].into();
        let view = View { number: 1, servers, workers: vec![ME], base: Vec::new() };
        let mut out = Vec::new();
        client.handle(HEAD, Kind::View(view).into(), &mut out);
        client.handle(HEAD, Kind::Serve { view: 1, starts: [(ME, 0)].into() }.into(), &mut out);
        let piece = |number| Piece { block: BlockId { table: 5, number }, rows: Rows::Range(0..3), leaves: (0, 0) };
        let act = Act::Pull { pieces: (0..blocks).map(piece).collect() };
        client.begin(0, act, Vec::new(), |_| 1, &mut out);
        (client, out)
    }

    fn numbers_of(message: &Message) -> Vec<u32> {
        let Kind::Request(request) = &message.kind else { panic!("{message:?}") };
        request.act.asked().iter().map(|piece| piece.block.number).collect()
    }

    #[test]
    fn answers_of_several_servers_come_in_the_order_of_the_request() {
        let (mut client, asked) = asking(16);
        assert_eq!(asked.len(), 2, "both servers have some of 16 blocks");
        let mut outcome = None;
        for (server, message) in asked.iter().rev() {
            let data = numbers_of(message).into_iter().flat_map(|number| [number as f32; 3]).collect();
            let kind = Kind::Values { view: 1, number: 1, behind: 0 };
            outcome = client.handle(*server, Message { kind, data }, &mut Vec::new());
        }
        let expected = (0..16).flat_map(|number| [number as f32; 3]).collect();
        assert_eq!(outcome, Some(Outcome::Done(expected, 0)));
    }

    #[test]
    fn an_answer_of_the_wrong_length_is_no_answer() {
        let (mut client, asked) = asking(16);
        let kind = Kind::Values { view: 1, number: 1, behind: 0 };
        let message = Message { kind, data: vec![1.0; 2] };
        let outcome = client.handle(asked[0].0, message, &mut Vec::new());
        let Some(Outcome::Refused(problem)) = outcome else { panic!("{outcome:?}") };
        assert!(problem.contains("2 numbers came for"), "{problem}");
    }
}
