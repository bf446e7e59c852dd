//! Messages as bytes on a link: two lengths, a header, numbers.
//!
//! ```text
//! header length 4 | bytes of numbers 8 | header (postcard) | numbers (f32)
//! ```
//!
//! All little-endian. Both lengths are checked before anything is allocated. Numbers go between a message and the kernel
//! without a copy.

use std::io::IoSlice;

use sirtaki_comm::link::{Link, LinkError};

use crate::decide::message::{Kind, Message};

/// Bytes of the two lengths.
pub const PREFIX: usize = 12;
/// Most bytes of a header.
const HEADER: usize = 64 << 20;
/// Most bytes of numbers.
const NUMBERS: u64 = 4 << 30;

/// The two lengths: bytes of the header, and how many numbers there are.
pub fn lengths(prefix: &[u8; PREFIX]) -> Result<(usize, usize), String> {
    let [a, b, c, d, rest @ ..] = *prefix;
    let (header, numbers) = (u32::from_le_bytes([a, b, c, d]) as usize, u64::from_le_bytes(rest));
    if header > HEADER || numbers > NUMBERS || !numbers.is_multiple_of(4) {
        return Err(format!("a message with a header of {header} bytes and {numbers} bytes of numbers"));
    }
    Ok((header, (numbers / 4) as usize))
}

/// The header.
pub fn header(bytes: &[u8]) -> Result<Kind, String> {
    postcard::from_bytes(bytes).map_err(|error| format!("a message that cannot be read ({error})"))
}

/// A message on its way out.
pub(crate) struct Outgoing {
    head: Vec<u8>,
    data: Vec<f32>,
    sent: usize,
}

impl Outgoing {
    pub(crate) fn new(message: Message) -> Result<Self, String> {
        let broken = |error: postcard::Error| format!("a message cannot be written ({error})");
        let mut head = postcard::to_extend(&message.kind, vec![0; PREFIX]).map_err(broken)?;
        let (length, numbers) = ((head.len() - PREFIX) as u32, 4 * message.data.len() as u64);
        head[..4].copy_from_slice(&length.to_le_bytes());
        head[4..PREFIX].copy_from_slice(&numbers.to_le_bytes());
        let prefix = std::array::from_fn(|at| head[at]);
        lengths(&prefix).map(|_| Self { head, data: message.data, sent: 0 })
    }

    /// How long it is.
    pub(crate) fn bytes(&self) -> u64 {
        (self.head.len() + 4 * self.data.len()) as u64
    }

    /// Sends what fits; whether that was all.
    pub(crate) fn push(&mut self, link: &mut dyn Link) -> Result<bool, LinkError> {
        let numbers: &[u8] = bytemuck::cast_slice(&self.data);
        loop {
            let head = &self.head[self.sent.min(self.head.len())..];
            let rest = &numbers[self.sent.saturating_sub(self.head.len())..];
            if head.is_empty() && rest.is_empty() {
                return Ok(true);
            }
            match link.push(&[IoSlice::new(head), IoSlice::new(rest)])? {
                0 => return Ok(false),
                count => self.sent += count,
            }
        }
    }
}

/// A message on its way in.
#[derive(Default)]
pub(crate) struct Incoming {
    prefix: [u8; PREFIX],
    head: Vec<u8>,
    data: Vec<f32>,
    got: usize,
}

impl Incoming {
    /// The next message and its length, if all of it is here. A message that makes no sense ends the link.
    pub(crate) fn pull(&mut self, link: &mut dyn Link) -> Result<Option<(Message, u64)>, LinkError> {
        loop {
            let (head, numbers) = (self.head.len(), 4 * self.data.len());
            let into: &mut [u8] = match self.got {
                got if got < PREFIX => &mut self.prefix[got..],
                got if got < PREFIX + head => &mut self.head[got - PREFIX..],
                got => &mut bytemuck::cast_slice_mut(&mut self.data)[got - PREFIX - head..],
            };
            let count = if into.is_empty() { 0 } else { link.fill(into)? };
            self.got += count;
            if self.got == PREFIX && count > 0 {
                let (head, numbers) = lengths(&self.prefix).map_err(LinkError::Closed)?;
                (self.head, self.data) = (vec![0; head], vec![0.0; numbers]);
            } else if self.got >= PREFIX && self.got == PREFIX + head + numbers {
                let Incoming { head, data, got, .. } = std::mem::take(self);
                let kind = header(&head).map_err(LinkError::Closed)?;
                return Ok(Some((Message { kind, data }, got as u64)));
            } else if count == 0 {
                return Ok(None);
            }
        }
    }
}
