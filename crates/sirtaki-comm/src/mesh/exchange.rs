//! Sending to one rank and receiving from another at the same time.
//!
//! Both directions are tried in turn and neither ever blocks, so two ranks that send to each other cannot deadlock,
//! however large the payloads. A small payload leaves in one push together with its header and is read in one pull.

use std::io::IoSlice;

use crate::{CommError, Rank};

use super::{
    Call, Mesh, Receive,
    frame::{Data, Frame},
    peer::{Inbox, Peer, Trouble},
    receive::Arrival,
    scratch::Scratch,
    survey::Failure,
    wait::{Awaited, Wait},
};

/// Payload bytes asked for together with the header.
const EAGER: usize = 64 << 10;
/// Bytes folded between two looks at the sending side.
const PIECE: usize = 256 << 10;

/// A payload on its way out.
pub(super) struct Departure<'a> {
    pub(super) rank: Rank,
    payload: &'a [u8],
    sent: usize,
}

impl<'a> Departure<'a> {
    pub(super) fn rest(&self) -> &'a [u8] {
        &self.payload[self.sent..]
    }

    fn advance(&mut self, peer: &mut Peer) -> Result<usize, Trouble> {
        let head = peer.head.rest();
        let count = peer.link.push(&[IoSlice::new(head), IoSlice::new(&self.payload[self.sent..])])?;
        let of_head = count.min(head.len());
        peer.head.advance(of_head);
        self.sent += count - of_head;
        Ok(count)
    }

    fn is_done(&self, peer: &Peer) -> bool {
        self.sent == self.payload.len() && peer.head.rest().is_empty()
    }
}

/// A payload on its way in, with the header it must have.
pub(super) struct Incoming<'a> {
    pub(super) rank: Rank,
    expected: Data,
    pub(super) started: bool,
    pub(super) arrival: Arrival<'a>,
    trouble: Option<Trouble>,
}

impl Incoming<'_> {
    fn is_done(&self) -> bool {
        self.started && self.arrival.left() == 0
    }

    /// Checks the header if it is there.
    fn begin(&mut self, inbox: &mut Inbox) {
        match inbox.pending.take() {
            None => {}
            Some(data) if data == self.expected => self.started = true,
            Some(theirs) => {
                // Behind a payload that we cannot use there may be the words that explain it.
                inbox.ending = true;
                self.trouble = Some(Trouble::Differs { theirs, expected: Some(self.expected.length) });
            }
        }
    }

    /// Takes bytes that may still contain headers.
    fn feed(&mut self, inbox: &mut Inbox, mut piece: &[u8], stage: &mut Scratch) {
        while !piece.is_empty() {
            if inbox.ending {
                return inbox.keep(piece);
            }
            if self.started {
                return self.take(inbox, piece, stage);
            }
            match inbox.header(piece) {
                Ok(count) => piece = &piece[count..],
                Err(error) => self.trouble = Some(Trouble::Garbage(error)),
            }
            self.begin(inbox);
        }
    }

    /// Takes payload. If more is expected, this may instead be part of the farewell of a failing sender.
    fn take(&mut self, inbox: &mut Inbox, piece: &[u8], stage: &mut Scratch) {
        let piece = &piece[..piece.len().min(self.arrival.left())];
        self.arrival.take(piece, stage);
        if self.arrival.left() > 0 {
            inbox.keep(piece);
        }
    }

    fn advance(&mut self, peer: &mut Peer, stage: &mut Scratch) -> Result<usize, Trouble> {
        let Peer { link, inbox, .. } = peer;
        if !self.started {
            self.begin(inbox);
        }
        let count = if self.trouble.is_some() {
            0
        } else if !self.started {
            let limit = inbox.missing() + self.arrival.length().min(EAGER);
            let count = link.pull(limit, &mut |piece| self.feed(inbox, piece, stage))?;
            if inbox.ending && self.trouble.is_none() {
                peer.look()?;
            }
            count
        } else if let Some(into) = self.arrival.direct() {
            let count = link.fill(into)?;
            self.arrival.advance(count);
            count
        } else {
            link.pull(self.arrival.left().min(PIECE), &mut |piece| self.take(inbox, piece, stage))?
        };
        match self.trouble.take() {
            Some(trouble) => Err(trouble),
            // Notices do not count as progress.
            None => Ok(if self.started { count } else { 0 }),
        }
    }
}

impl Mesh {
    /// Sends a payload to one rank and receives one from another, or the same; either may be absent.
    /// Any error ends the use of this mesh, and all other ranks are told.
    ///
    /// # Panics
    /// If a rank is my own or outside the group.
    pub fn exchange(
        &mut self,
        call: &Call,
        send: Option<(Rank, &[u8])>,
        receive: Option<(Rank, Receive<'_>)>,
    ) -> Result<(), CommError> {
        if let Some(error) = &self.poison {
            return Err(error.clone());
        }
        let mut departure = send.map(|(rank, payload)| self.depart(call, rank, payload));
        let mut incoming = receive.map(|(rank, receive)| self.expect(call, rank, receive));
        match self.carry(call, &mut departure, &mut incoming) {
            Ok(()) => Ok(()),
            Err(failure) => Err(self.fail(call, failure, departure.as_ref(), incoming.as_ref())),
        }
    }

    fn depart<'a>(&mut self, call: &Call, rank: Rank, payload: &'a [u8]) -> Departure<'a> {
        let peer = self.peer(rank);
        let step = peer.steps.1;
        peer.steps.1 = step.wrapping_add(1);
        let length = payload.len() as u64;
        peer.head.add(&Frame::Data(Data { sequence: call.sequence, step, length, signature: call.signature }));
        Departure { rank, payload, sent: 0 }
    }

    fn expect<'a>(&mut self, call: &Call, rank: Rank, receive: Receive<'a>) -> Incoming<'a> {
        let peer = self.peer(rank);
        let step = peer.steps.0;
        peer.steps.0 = step.wrapping_add(1);
        let length = receive.len() as u64;
        let expected = Data { sequence: call.sequence, step, length, signature: call.signature };
        Incoming { rank, expected, started: false, arrival: Arrival::new(receive), trouble: None }
    }

    fn carry(
        &mut self,
        call: &Call,
        departure: &mut Option<Departure<'_>>,
        incoming: &mut Option<Incoming<'_>>,
    ) -> Result<(), Failure> {
        let mut wait = Wait::default();
        loop {
            let mut moved = 0;
            if let Some(out) = departure {
                let rank = out.rank;
                let peer = self.peer(rank);
                moved += out.advance(peer).map_err(|trouble| Failure { rank, trouble })?;
                if out.is_done(peer) {
                    *departure = None;
                }
            }
            if let Some(arriving) = incoming {
                let rank = arriving.rank;
                let Mesh { peers, stage, .. } = self;
                let peer = peers[rank].as_mut().expect("there is a link to every other rank");
                moved += arriving.advance(peer, stage).map_err(|trouble| Failure { rank, trouble })?;
                if arriving.is_done() {
                    *incoming = None;
                }
            }
            if departure.is_none() && incoming.is_none() {
                return Ok(());
            }
            if moved > 0 {
                wait = Wait::default();
                continue;
            }
            let awaited = Awaited {
                send: departure.as_ref().map(|out| out.rank),
                receive: incoming.as_ref().map(|arriving| arriving.rank),
            };
            self.wait(&mut wait, awaited, call)?;
        }
    }
}
