//! Everything that is under way on this rank's channel. Results are collected here and handed out once the lock is
//! released, because whoever gets one may start the next message at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::fd::OwnedFd,
};

use sirtaki_comm::{CommError, Rank, link::Link};

use super::{
    Transfer,
    meet::LinkState,
    pipe::{Arrival, Body, Parcel, Pipe, budget, memory},
};
use crate::{
    EngineError,
    decide::channel::{ChannelFrame, Dispatch, Incoming, MessageForm, Outgoing, Receipt},
    runtime::{
        memory::Tensor,
        shared::{Shared, now},
        ticket::Output,
    },
};

/// Most asks of one rank that wait at a time; it keeps to fewer.
const ASKS: usize = 1 << 17;

/// A receive that waits.
pub(super) struct Receiving {
    pub(super) job: Transfer,
    pub(super) tensor: Option<Tensor>,
}

/// What came of a message.
pub(super) struct Settled {
    pub(super) job: Transfer,
    pub(super) outcome: Result<Output, EngineError>,
}

/// What there is between this rank and another.
#[derive(Default)]
pub(super) struct Peer {
    pub(super) outgoing: Outgoing<Parcel>,
    pub(super) pipe: Pipe,
    pub(super) link_state: LinkState,
    /// Its end was reported.
    missed: bool,
}

/// The state.
#[derive(Default)]
pub(crate) struct State {
    pub(super) peers: BTreeMap<Rank, Peer>,
    pub(super) incoming: Incoming<Receiving>,
    settled: Vec<Settled>,
    /// Peers with something new to write.
    changed: BTreeSet<Rank>,
    /// Peers to meet.
    meetings: Vec<Rank>,
    /// The courier has to look: there is a link it does not know, or something to write that did not fit.
    wakes: bool,
    /// Changes with the set of links.
    pub(super) links: u64,
    left: BTreeSet<Rank>,
    pub(super) closing: bool,
    /// The engine has failed: nobody needs what is on its way.
    pub(super) broken: bool,
    /// Why everything fails.
    pub(super) failure: Option<CommError>,
    pub(super) gates: super::meet::Gates,
}

impl State {
    pub(super) fn receives(&self) -> usize {
        self.incoming.count()
    }

    pub(super) fn take_settled(&mut self) -> Vec<Settled> {
        std::mem::take(&mut self.settled)
    }

    pub(super) fn take_wakes(&mut self) -> bool {
        std::mem::take(&mut self.wakes)
    }

    pub(super) fn take_meetings(&mut self) -> Vec<Rank> {
        std::mem::take(&mut self.meetings)
    }

    pub(super) fn settle(&mut self, job: Transfer, outcome: Result<Output, EngineError>) {
        self.settled.push(Settled { job, outcome });
    }

    /// A message fails with the engine.
    pub(super) fn fail(&mut self, job: Transfer, reason: &CommError) {
        let error = EngineError::Failed { tensor: job.label.clone(), reason: reason.clone() };
        self.settle(job, Err(error));
    }

    /// The other end; met first if this is the first message.
    pub(super) fn peer(&mut self, rank: Rank) -> &mut Peer {
        let Self { peers, meetings, wakes, .. } = self;
        peers.entry(rank).or_insert_with(|| {
            meetings.push(rank);
            *wakes = true;
            Peer::default()
        })
    }

    fn put(&mut self, rank: Rank, frame: &ChannelFrame, parcel: Option<Parcel>) {
        self.changed.insert(rank);
        self.peer(rank).pipe.put(frame, parcel);
    }

    /// This rank sends.
    pub(super) fn send(&mut self, shared: &Shared, to: Rank, parcel: Parcel) {
        let (tag, form) = (parcel.job.tag, parcel.form.clone());
        let all = self.peer(to).outgoing.send(tag, form, parcel);
        self.dispatch(shared, to, all);
        self.miss_if_gone(shared, to);
    }

    /// This rank receives.
    pub(super) fn receive(&mut self, shared: &Shared, form: Option<MessageForm>, receiving: Receiving) {
        let (tag, peer) = (receiving.job.tag, receiving.job.peer);
        let (rank, size) = (shared.group.rank(), shared.group.size());
        let from: Vec<Rank> = match peer {
            Some(peer) => vec![peer],
            None => (0..size).filter(|&other| other != rank && !self.is_gone(other)).collect(),
        };
        for (to, frame) in self.incoming.ask(&from, peer.is_none(), tag, form, receiving) {
            self.put(to, &frame, None);
        }
        peer.into_iter().for_each(|peer| self.miss_if_gone(shared, peer));
        if let (None, Some(&rank)) = (peer, self.left.first())
            && from.is_empty()
        {
            self.miss(shared, rank);
        }
    }

    /// Writes what there is to write, as far as links take it.
    pub(super) fn flush_changed(&mut self) {
        for rank in std::mem::take(&mut self.changed) {
            self.flush(rank);
        }
    }

    fn flush(&mut self, rank: Rank) {
        let Some(peer) = self.peers.get_mut(&rank) else { return };
        let sent = peer.pipe.flush();
        self.wakes |= !peer.pipe.is_clear();
        for Parcel { tensor, form, job } in sent {
            self.settle(job, Ok(Output::Tensor(tensor, form.shape)));
        }
    }

    /// Reads and writes on all links; says whether anything came.
    pub(super) fn turn(&mut self, shared: &Shared) -> bool {
        let ranks: Vec<Rank> = self.peers.keys().copied().collect();
        let came = ranks.iter().filter(|&&rank| self.listen(shared, rank)).count();
        self.flush_changed();
        ranks.iter().for_each(|&rank| self.flush(rank));
        came > 0
    }

    fn listen(&mut self, shared: &Shared, rank: Rank) -> bool {
        let mut budget = budget();
        let before = budget;
        let mut came = false;
        let connected = self.peers.get(&rank).is_some_and(|peer| peer.pipe.is_connected());
        while let Some(peer) = self.peers.get_mut(&rank) {
            let Some(arrival) = peer.pipe.next(&mut budget) else { break };
            came = true;
            let understood = match arrival {
                Arrival::Frame(frame) => self.hear(shared, rank, frame),
                Arrival::Body(body) => self.arrived(body),
            };
            if understood.is_none() {
                self.peer(rank).pipe.garbage();
            }
        }
        if connected && !self.peers.get(&rank).is_some_and(|peer| peer.pipe.is_connected()) {
            self.links += 1;
        }
        self.miss_if_gone(shared, rank);
        // Nobody is told again of what was left unread.
        self.wakes |= budget == 0;
        came || budget < before
    }

    /// `None` if it makes no sense.
    fn hear(&mut self, shared: &Shared, rank: Rank, frame: ChannelFrame) -> Option<()> {
        if matches!(frame, ChannelFrame::Ask { .. } | ChannelFrame::Take(_) | ChannelFrame::Cancel(_)) {
            let peer = self.peer(rank);
            let all = peer.outgoing.hear(frame).filter(|_| peer.outgoing.asks() <= ASKS)?;
            self.dispatch(shared, rank, all);
            return Some(());
        }
        match self.incoming.hear(rank, frame)? {
            Receipt::Say(frames) => frames.iter().for_each(|(other, frame)| self.put(*other, frame, None)),
            Receipt::Refused(receiving, text) => self.settle(receiving.job, Err(EngineError::Mismatch(text))),
            Receipt::Message(Receiving { mut job, tensor }, form) => {
                let bytes = form.bytes().filter(|_| form.shape.len() <= super::DIMENSIONS)?;
                if tensor.as_ref().is_some_and(|tensor| tensor.byte_len() != bytes || tensor.dtype() != form.dtype) {
                    return None;
                }
                (job.peer, job.began) = (Some(rank), now());
                let tensor = tensor.or_else(|| memory(form.dtype, bytes));
                self.peer(rank).pipe.expect(Body { from: rank, tensor, form, job, bytes, at: 0 });
            }
        }
        Some(())
    }

    fn arrived(&mut self, body: Body) -> Option<()> {
        let Body { from, tensor, form, job, bytes, .. } = body;
        let outcome = match tensor {
            Some(tensor) => Ok(Output::Message { from, tensor, shape: form.shape }),
            None => {
                let problem = format!("there is no memory for the {bytes} bytes that rank {from} sent");
                Err(EngineError::Invalid { tensor: job.label.clone(), problem })
            }
        };
        self.settle(job, outcome);
        Some(())
    }

    fn dispatch(&mut self, shared: &Shared, to: Rank, all: Vec<Dispatch<Parcel>>) {
        for dispatch in all {
            match dispatch {
                Dispatch::Say(frame) => self.put(to, &frame, None),
                Dispatch::Send(id, form, mut parcel) => {
                    parcel.job.began = now();
                    self.put(to, &ChannelFrame::Message(id, form), Some(parcel));
                }
                Dispatch::Refuse(id, Parcel { job, .. }, text) => {
                    let (label, tag, from) = (&job.label, job.tag, shared.group.rank());
                    let text = format!("message \"{label}\" (tag {tag}) from rank {from} to rank {to}: {text}");
                    self.put(to, &ChannelFrame::Refuse(id, text.clone()), None);
                    self.settle(job, Err(EngineError::Mismatch(text)));
                }
            }
        }
    }

    /// A link is there.
    pub(super) fn connect(&mut self, rank: Rank, link: Box<dyn Link>) {
        if self.closing || self.failure.is_some() {
            return;
        }
        self.peer(rank).pipe.connect(link);
        self.changed.insert(rank);
        (self.wakes, self.links) = (true, self.links + 1);
    }

    /// There will be no link.
    pub(super) fn not_connected(&mut self, shared: &Shared, rank: Rank, error: &CommError) {
        self.peer(rank).pipe.fail(error.to_string());
        let needed = self.needs(shared, rank) && self.failure.is_none() && !self.closing;
        if needed && !std::mem::replace(&mut self.peer(rank).missed, true) {
            shared.complain(error.to_alarm());
        }
    }

    /// A rank has left in good order. What it sent before is still read.
    pub(super) fn someone_left(&mut self, shared: &Shared, rank: Rank) {
        self.left.insert(rank);
        self.miss_if_gone(shared, rank);
    }

    /// Whether nothing can come from a rank any more.
    fn is_gone(&self, rank: Rank) -> bool {
        match self.peers.get(&rank) {
            None => self.left.contains(&rank),
            Some(peer) => peer.pipe.ended.is_some() || (self.left.contains(&rank) && !peer.pipe.is_connected()),
        }
    }

    /// Everything ends if a rank is gone that a message needs.
    fn miss_if_gone(&mut self, shared: &Shared, rank: Rank) {
        let gone = self.failure.is_none() && !self.closing && self.is_gone(rank);
        if gone && self.needs(shared, rank) {
            self.miss(shared, rank);
        }
    }

    fn needs(&self, shared: &Shared, rank: Rank) -> bool {
        let under_way = |peer: &Peer| peer.outgoing.held().next().is_some() || peer.pipe.jobs().next().is_some();
        let me = shared.group.rank();
        let alone = || (0..shared.group.size()).all(|other| other == me || self.is_gone(other));
        self.peers.get(&rank).is_some_and(under_way)
            || self.incoming.open().any(|(from, _)| from.map_or_else(alone, |from| from == rank))
    }

    fn miss(&mut self, shared: &Shared, rank: Rank) {
        let left = self.left.contains(&rank);
        let peer = self.peer(rank);
        if std::mem::replace(&mut peer.missed, true) {
            return;
        }
        let how = match &peer.pipe.ended {
            Some(how) if !left => how.clone(),
            _ => "it left the engine in good order, and others still need it".into(),
        };
        let (rank, who) = (shared.group.world_rank(rank), shared.group.describe(rank));
        shared.complain(CommError::PeerLost { rank, who, how }.to_alarm());
    }

    /// Nothing is sent or received any more.
    pub(super) fn fail_all(&mut self, reason: &CommError) {
        self.failure.get_or_insert_with(|| reason.clone());
        let mut jobs: Vec<Transfer> = self.incoming.drain().into_iter().map(|receiving| receiving.job).collect();
        for peer in self.peers.values_mut() {
            jobs.extend(peer.outgoing.drain().into_iter().map(|parcel| parcel.job));
            jobs.extend(peer.pipe.drain());
        }
        jobs.into_iter().for_each(|job| self.fail(job, reason));
        self.wakes |= !self.peers.is_empty();
    }

    /// Handles to sleep on.
    pub(super) fn sockets(&self) -> Vec<(OwnedFd, bool)> {
        let socket = |peer: &Peer| Some((peer.pipe.descriptor()?.try_clone_to_owned().ok()?, false));
        self.peers.values().filter_map(socket).collect()
    }

    /// Notes which of these handles also wait for room to write.
    pub(super) fn note_writes(&self, sockets: &mut [(OwnedFd, bool)]) {
        let connected = self.peers.values().filter(|peer| peer.pipe.descriptor().is_some());
        for (socket, peer) in sockets.iter_mut().zip(connected) {
            socket.1 = peer.pipe.waits_for_room();
        }
    }
}
