//! One peer as the mesh sees it: its link, the header being read, small frames waiting to be sent, and what it told.

use std::{io::IoSlice, time::Instant};

use crate::{
    CommError,
    link::{Link, LinkError},
};

use super::frame::{Data, FAREWELL_LIMIT, Farewell, Frame, HEADER, Marker, NotAFrame, Waiting};

/// What can go wrong with one peer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The link no longer works.
    Link(LinkError),
    /// The peer does not speak our protocol.
    Garbage(NotAFrame),
    /// The peer has sent its last words.
    Farewell(Farewell),
    /// The peer's next payload is not the one we need: another call, or not as many bytes as `expected`.
    Differs { theirs: Data, expected: Option<u64> },
    /// Something that is not about this peer's link.
    Error(CommError),
}

impl From<LinkError> for Trouble {
    fn from(error: LinkError) -> Self {
        Trouble::Link(error)
    }
}

/// What arrived from one peer and is not payload.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    header: Header,
    /// A header whose payload nobody has asked for yet.
    pub(super) pending: Option<Data>,
    /// What the peer said while it waited, and when we heard it.
    pub(super) waiting: Option<(Waiting, Instant)>,
    /// From now on nothing that arrives is a payload that is wanted; only the end matters.
    pub(super) ending: bool,
    marker: Option<Marker>,
    tail: Vec<u8>,
}

#[derive(Debug)]
struct Header {
    bytes: [u8; HEADER],
    filled: usize,
}

impl Default for Header {
    fn default() -> Self {
        Self { bytes: [0; HEADER], filled: 0 }
    }
}

impl Inbox {
    /// Bytes the header being read still needs.
    pub(super) fn missing(&self) -> usize {
        HEADER - self.header.filled
    }

    /// Takes header bytes from the beginning of `piece`; returns how many.
    pub(super) fn header(&mut self, piece: &[u8]) -> Result<usize, NotAFrame> {
        let count = piece.len().min(self.missing());
        let Header { bytes, filled } = &mut self.header;
        bytes[*filled..*filled + count].copy_from_slice(&piece[..count]);
        *filled += count;
        self.complete()?;
        Ok(count)
    }

    /// Acts on the header once it is whole.
    fn complete(&mut self) -> Result<(), NotAFrame> {
        if self.header.filled < HEADER {
            return Ok(());
        }
        self.header.filled = 0;
        let bytes = self.header.bytes;
        let frame = Frame::parse(&bytes).inspect_err(|_| {
            self.ending = true;
            self.keep(&bytes);
        })?;
        match frame {
            Frame::Hello(marker) => self.marker = Some(marker),
            Frame::Waiting(waiting) => self.waiting = Some((waiting, Instant::now())),
            Frame::Farewell => self.ending = true,
            Frame::Data(data) => {
                self.waiting = None;
                self.pending = Some(data);
            }
        }
        Ok(())
    }

    /// Remembers bytes that may contain the end of a farewell.
    pub(super) fn keep(&mut self, piece: &[u8]) {
        let piece = &piece[piece.len().saturating_sub(FAREWELL_LIMIT)..];
        let room = FAREWELL_LIMIT - piece.len();
        if self.tail.len() > room {
            self.tail.drain(..self.tail.len() - room);
        }
        self.tail.extend_from_slice(piece);
    }

    fn farewell(&self) -> Option<Farewell> {
        Farewell::find(&self.tail, self.marker.as_ref()?)
    }
}

/// Small frames on their way out, before the payload if there is one.
#[derive(Debug)]
pub(super) struct Head {
    bytes: [u8; Self::ROOM * HEADER],
    start: usize,
    end: usize,
}

impl Head {
    /// At most a greeting, a notice of waiting and the header of a payload come together.
    const ROOM: usize = 3;

    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Whether a notice may be added without taking the place of a payload's header.
    fn has_room_for_notice(&self) -> bool {
        self.rest().len() <= HEADER
    }

    pub(super) fn add(&mut self, frame: &Frame) {
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        self.bytes[self.end..self.end + HEADER].copy_from_slice(&frame.encode());
        self.end += HEADER;
    }

    pub(super) fn advance(&mut self, count: usize) {
        self.start += count;
    }
}

/// What the end of a stream tells.
#[derive(Debug)]
pub(super) enum End {
    /// The peer's last words.
    Words(Farewell),
    /// The stream ended without any.
    Cut,
    /// It has not ended.
    Open,
}

/// One peer.
pub(super) struct Peer {
    pub(super) link: Box<dyn Link>,
    pub(super) inbox: Inbox,
    pub(super) head: Head,
    /// Payloads received and sent so far.
    pub(super) steps: (u32, u32),
    /// Calls of receive and send so far.
    pub(super) points: (u32, u32),
    /// The peer left in good order.
    pub(super) left: bool,
    /// When the link was first seen closed without a farewell.
    pub(super) hung: Option<Instant>,
}

impl Peer {
    pub(super) fn new(link: Box<dyn Link>, marker: Marker) -> Self {
        let mut head = Head { bytes: [0; Head::ROOM * HEADER], start: 0, end: 0 };
        head.add(&Frame::Hello(marker));
        Self { link, inbox: Inbox::default(), head, steps: (0, 0), points: (0, 0), left: false, hung: None }
    }

    /// Reads notices and at most one payload's header, without waiting.
    pub(super) fn look(&mut self) -> Result<(), Trouble> {
        while self.inbox.pending.is_none() && !self.inbox.ending {
            let Header { bytes, filled } = &mut self.inbox.header;
            let count = self.link.fill(&mut bytes[*filled..])?;
            if count == 0 {
                return Ok(());
            }
            *filled += count;
            self.inbox.complete().map_err(Trouble::Garbage)?;
        }
        if self.inbox.ending {
            return match self.end() {
                End::Words(words) => Err(Trouble::Farewell(words)),
                End::Cut => Err(Trouble::Link(LinkError::Closed("its connection was cut".into()))),
                End::Open => Ok(()),
            };
        }
        Ok(())
    }

    /// Reads towards the end of the stream, without waiting, and looks for last words there.
    pub(super) fn end(&mut self) -> End {
        /// A peer that goes on sending is not at its end; come back later.
        const AT_ONCE: usize = 64 << 20;
        let Peer { link, inbox, .. } = self;
        inbox.ending = true;
        let mut over = false;
        let mut seen = 0;
        while seen < AT_ONCE {
            match link.pull(1 << 20, &mut |piece| inbox.keep(piece)) {
                Ok(0) => break,
                Ok(count) => seen += count,
                Err(_) => {
                    over = true;
                    break;
                }
            }
        }
        match inbox.farewell() {
            Some(words) => End::Words(words),
            None if over => End::Cut,
            None => End::Open,
        }
    }

    /// What the peer has to say now that our group is failing: reads frames where possible, then only the end.
    pub(super) fn last_words(&mut self) -> End {
        match self.look() {
            Err(Trouble::Farewell(words)) => End::Words(words),
            Err(_) => match self.end() {
                End::Open => End::Cut,
                end => end,
            },
            Ok(()) if self.inbox.pending.is_some() || self.inbox.ending => self.end(),
            Ok(()) => End::Open,
        }
    }

    /// Sends a notice if the link is between frames, or what is left of an earlier one.
    pub(super) fn notify(&mut self, frame: &Frame) {
        if self.left || self.inbox.ending {
            return;
        }
        if self.head.has_room_for_notice() {
            self.head.add(frame);
        }
        // A link that does not work is noticed where it is read.
        if let Ok(count) = self.link.push(&[IoSlice::new(self.head.rest())]) {
            self.head.advance(count);
        }
    }
}
