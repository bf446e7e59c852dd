//! A worker's side: one request at a time, cut up for the servers that answer for its blocks.
//!
//! When the view changes, whatever was not answered is asked again, of the servers that answer for it now. Servers
//! recognise what they have done already.

use std::collections::{BTreeMap, BTreeSet};

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
    /// For each piece that carries numbers, those numbers, and whether its server has confirmed it.
    carried: Vec<(Vec<f32>, bool)>,
    /// For each piece that is asked for, how many numbers it has, and they, once they are here.
    asked: Vec<(usize, Option<Vec<f32>>)>,
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
        let data = carried.iter().flat_map(|&place| self.carried[place].0.iter().copied()).collect();
        let request = Request { view, number: self.number, clock: self.clock, act };
        Some(Message { kind: Kind::Request(request), data })
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
        mut data: &[f32],
        width: impl Fn(&Piece) -> usize,
        out: &mut Vec<(Id, Message)>,
    ) {
        let length = |piece: &Piece| piece.rows.len() * width(piece);
        let carried = act.carried().iter().map(|piece| {
            let (numbers, rest) = data.split_at(length(piece).min(data.len()));
            data = rest;
            (numbers.to_vec(), false)
        });
        let carried = carried.collect();
        let asked = act.asked().iter().map(|piece| (length(piece), None)).collect();
        self.next += 1;
        let unanswered = BTreeMap::new();
        self.open = Some(Open { number: self.next, clock, act, carried, asked, unanswered, behind: 0, sent: false });
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
            Kind::Done { view, number } if view == self.view.number => self.answered(from, number, &[], 0),
            Kind::Values { view, number, behind } if view == self.view.number => {
                self.answered(from, number, &data, behind);
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
        for (place, piece) in open.act.asked().iter().enumerate().filter(|&(place, _)| open.asked[place].1.is_none()) {
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

    fn answered(&mut self, from: Id, number: u64, mut data: &[f32], behind: u64) {
        let Some(open) = self.open.as_mut().filter(|open| open.number == number) else { return };
        let Some((carried, asked)) = open.unanswered.remove(&from) else { return };
        for place in carried {
            open.carried[place].1 = true;
        }
        for place in asked {
            let (length, values) = &mut open.asked[place];
            let (numbers, rest) = data.split_at((*length).min(data.len()));
            data = rest;
            *values = Some(numbers.to_vec());
        }
        open.behind = open.behind.max(behind);
    }

    fn outcome(&mut self) -> Option<Outcome> {
        if let (Some(problem), true) = (&self.ended, self.open.is_some()) {
            self.open = None;
            return Some(Outcome::Ended(problem.clone()));
        }
        let is_done = |open: &&Open| open.sent && open.unanswered.is_empty() && self.serving;
        self.open.as_ref().filter(is_done)?;
        let open = self.open.take()?;
        let values = open.asked.into_iter().flat_map(|(_, values)| values.unwrap_or_default()).collect();
        Some(Outcome::Done(values, open.behind))
    }

    /// The servers that have not answered the request under way.
    pub fn waits_for(&self) -> BTreeSet<Id> {
        self.open.iter().flat_map(|open| open.unanswered.keys().copied()).collect()
    }
}
