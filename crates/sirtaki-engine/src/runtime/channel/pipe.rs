//! One link between two ranks that carries frames, and behind some of them the bytes of a tensor.
//!
//! Frames wait here until the link takes them, and before there is a link at all. Bytes of tensors go straight between
//! their memory and the link.

use std::{collections::VecDeque, io::IoSlice, os::fd::BorrowedFd};

use sirtaki_comm::{
    DType, Rank,
    link::{Bell, Link},
};

use crate::{
    decide::{
        channel::{ChannelFrame, MessageForm},
        message::{decode, encode},
    },
    runtime::{channel::Transfer, memory::Tensor},
};

/// Most bytes of an encoded frame: shapes and texts are short.
const FRAME_LIMIT: usize = 64 << 10;
/// Bytes before a frame: its length.
const HEAD: usize = 4;
/// Bytes read at a time while no tensor's bytes are expected.
const PIECE: usize = 8 << 10;
/// Bytes of a tensor moved before other links get their turn.
const TURN: usize = 1 << 20;

/// A tensor on its way out.
pub(super) struct Parcel {
    pub(super) tensor: Tensor,
    pub(super) form: MessageForm,
    pub(super) job: Transfer,
}

/// A tensor on its way in. Without memory, its bytes are dropped.
pub(super) struct Body {
    pub(super) from: Rank,
    pub(super) tensor: Option<Tensor>,
    pub(super) form: MessageForm,
    pub(super) job: Transfer,
    /// Bytes of it, and how many have arrived.
    pub(super) bytes: usize,
    pub(super) at: usize,
}

struct Piece {
    head: Vec<u8>,
    parcel: Option<Parcel>,
    /// Bytes that the link has taken.
    at: usize,
}

/// What has arrived.
pub(super) enum Arrival {
    /// A frame; if it is a message, [`Pipe::expect`] says where its bytes go.
    Frame(ChannelFrame),
    /// All bytes of a message.
    Body(Body),
}

/// The link, what is half sent and half received, and the numbers for the deadlock proof.
#[derive(Default)]
pub(super) struct Pipe {
    link: Option<Box<dyn Link>>,
    out: VecDeque<Piece>,
    incoming: Vec<u8>,
    body: Option<Body>,
    /// Frames handed in.
    pub(super) handed_in: u64,
    /// Frames dealt with, a message's once all its bytes are there.
    pub(super) dealt_with: u64,
    /// Writing no longer works.
    broken: Option<String>,
    /// Nothing comes any more, and why.
    pub(super) ended: Option<String>,
}

impl Pipe {
    /// The link is there.
    pub(super) fn connect(&mut self, link: Box<dyn Link>) {
        self.link = Some(link);
    }

    pub(super) fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    /// Queues a frame.
    pub(super) fn put(&mut self, frame: &ChannelFrame, parcel: Option<Parcel>) {
        let content = encode(frame);
        let mut head = (content.len() as u32).to_le_bytes().to_vec();
        head.extend(content);
        self.handed_in += 1;
        self.out.push_back(Piece { head, parcel, at: 0 });
    }

    /// Sends what the link takes; returns the tensors that are sent.
    pub(super) fn flush(&mut self) -> Vec<Parcel> {
        let mut sent = Vec::new();
        let Some(link) = self.link.as_mut().filter(|_| self.broken.is_none()) else { return sent };
        while let Some(piece) = self.out.front_mut() {
            let payload = piece.parcel.as_ref().map_or(&[][..], |parcel| parcel.tensor.bytes());
            let (head, rest) = (piece.head.len(), piece.head.len() + payload.len());
            if piece.at < rest {
                let parts = [
                    IoSlice::new(&piece.head[piece.at.min(head)..]),
                    IoSlice::new(&payload[piece.at.saturating_sub(head)..]),
                ];
                match link.push(&parts) {
                    Ok(0) => break,
                    Ok(count) => piece.at += count,
                    Err(error) => {
                        self.broken = Some(error.to_string());
                        break;
                    }
                }
            }
            if piece.at >= rest {
                sent.extend(self.out.pop_front().and_then(|piece| piece.parcel));
            }
        }
        sent
    }

    /// Whether there is something to write that the link has not taken.
    pub(super) fn is_clear(&self) -> bool {
        self.out.is_empty() || self.broken.is_some() || self.link.is_none()
    }

    /// Whether room to write shows on the descriptor.
    pub(super) fn waits_for_room(&self) -> bool {
        !self.is_clear() && self.link.as_ref().is_some_and(|link| !link.rings_for_room())
    }

    /// The next thing that has arrived; `None` if there is nothing more for now. `budget` is how many bytes of tensors
    /// may still be moved.
    pub(super) fn next(&mut self, budget: &mut usize) -> Option<Arrival> {
        while self.ended.is_none() && self.link.is_some() && *budget > 0 {
            match &self.body {
                Some(body) if body.at == body.bytes => {
                    self.dealt_with += 1;
                    return self.body.take().map(Arrival::Body);
                }
                Some(_) => {
                    if !self.fill_body(budget) {
                        break;
                    }
                }
                None => match self.frame() {
                    Some(frame) => return Some(Arrival::Frame(frame)),
                    None if self.ended.is_some() || !self.pull() => break,
                    None => {}
                },
            }
        }
        None
    }

    /// A whole frame out of what has arrived.
    fn frame(&mut self) -> Option<ChannelFrame> {
        let head = self.incoming.get(..HEAD)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if length > FRAME_LIMIT {
            self.garbage();
            return None;
        }
        let frame = decode(self.incoming.get(HEAD..HEAD + length)?);
        self.incoming.drain(..HEAD + length);
        match &frame {
            None => self.garbage(),
            Some(ChannelFrame::Message(..)) => {}
            Some(_) => self.dealt_with += 1,
        }
        frame
    }

    /// The bytes of the message whose frame came last go here.
    pub(super) fn expect(&mut self, mut body: Body) {
        let early = self.incoming.len().min(body.bytes);
        if let Some(tensor) = &mut body.tensor {
            tensor.bytes_mut()[..early].copy_from_slice(&self.incoming[..early]);
        }
        self.incoming.drain(..early);
        body.at = early;
        self.body = Some(body);
    }

    /// Reads bytes of a tensor; says whether there were any.
    fn fill_body(&mut self, budget: &mut usize) -> bool {
        let (Some(link), Some(body)) = (&mut self.link, &mut self.body) else { return false };
        let most = (body.bytes - body.at).min(*budget);
        let read = match &mut body.tensor {
            Some(tensor) => link.fill(&mut tensor.bytes_mut()[body.at..body.at + most]),
            None => link.pull(most, &mut |_| ()),
        };
        match read {
            Ok(count) => {
                body.at += count;
                *budget -= count;
                self.settle(count)
            }
            Err(error) => self.end(error.to_string()),
        }
    }

    /// Reads bytes of frames; says whether there were any.
    fn pull(&mut self) -> bool {
        let Self { link: Some(link), incoming, .. } = self else { return false };
        match link.pull(PIECE, &mut |piece| incoming.extend_from_slice(piece)) {
            Ok(count) => self.settle(count),
            Err(error) => self.end(error.to_string()),
        }
    }

    /// After everything that was sent has been read, a link that takes nothing any more is over.
    fn settle(&mut self, count: usize) -> bool {
        if count == 0
            && let Some(how) = self.broken.take()
        {
            return self.end(how);
        }
        count > 0
    }

    fn end(&mut self, how: String) -> bool {
        self.ended.get_or_insert(how);
        self.link = None;
        false
    }

    /// There will be no link.
    pub(super) fn fail(&mut self, how: String) {
        self.end(how);
    }

    /// The other side does not speak our protocol.
    pub(super) fn garbage(&mut self) {
        self.end("it sent a message that cannot be read; is it of another version?".into());
    }

    /// Nothing more is sent; the other side reads what was sent and then the end.
    pub(super) fn close(&mut self) {
        self.link.iter_mut().for_each(|link| link.close());
    }

    /// The tensors on their way, in both directions.
    pub(super) fn jobs(&self) -> impl Iterator<Item = &Transfer> {
        let out = self.out.iter().filter_map(|piece| piece.parcel.as_ref().map(|parcel| &parcel.job));
        out.chain(self.body.as_ref().map(|body| &body.job))
    }

    /// Gives up all tensors on their way.
    pub(super) fn drain(&mut self) -> Vec<Transfer> {
        let out = self.out.drain(..).filter_map(|piece| piece.parcel.map(|parcel| parcel.job));
        out.chain(self.body.take().map(|body| body.job)).collect()
    }

    /// What to sleep on.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self.link.as_ref()?.bell() {
            Bell::Descriptor(descriptor) => Some(descriptor),
            _ => None,
        }
    }
}

/// How many bytes of tensors a link may move in one turn.
pub(super) fn budget() -> usize {
    TURN
}

/// Memory for a message that fits no place prepared for it; `None` if there is not that much.
pub(super) fn memory(dtype: DType, bytes: usize) -> Option<Tensor> {
    Tensor::try_zeros(dtype, bytes / dtype.size())
}
