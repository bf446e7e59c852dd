//! The bytes between two ranks: a fixed header before everything, and a farewell that can be found from the end.
//!
//! A rank that fails may be in the middle of a payload. What it has to say then comes at the very end of its stream,
//! closed by a random marker that the peer knows from the first frame, so no payload can be taken for it. Reading is a
//! pure function over bytes; whatever arrives, it answers with a value or with [`NotAFrame`].

use crate::{Alarm, Rank, signature::Signature};

/// Bytes before every payload.
pub const HEADER: usize = 48;
/// Bytes after a farewell's payload: its length and the marker.
pub const TRAILER: usize = 8 + MARKER;
/// Bytes of a marker.
pub const MARKER: usize = 16;
/// Most bytes of a farewell.
pub const FAREWELL_LIMIT: usize = HEADER + 1 + 4 + Alarm::LIMIT + TRAILER;

const MAGIC: [u8; 3] = *b"sk1";
const NOBODY: u32 = u32::MAX;

const HELLO: u8 = 1;
const DATA: u8 = 2;
const WAITING: u8 = 3;
const FAREWELL: u8 = 4;

/// Random bytes that close one side's stream.
pub type Marker = [u8; MARKER];

/// What a header announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame {
    /// First on every stream: how its end will be marked.
    Hello(Marker),
    /// `length` bytes of an operation follow.
    Data(Data),
    /// The sender has been waiting for a while. Nothing follows.
    Waiting(Waiting),
    /// A farewell follows, and nothing after it.
    Farewell,
}

/// The header of a payload: which operation it belongs to, as its sender sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data {
    /// Number of the call; see [`super::Call`].
    pub sequence: u32,
    /// Number of the payload on this link in this direction.
    pub step: u32,
    /// Bytes that follow.
    pub length: u64,
    /// The call itself.
    pub signature: Signature,
}

/// What a waiting rank tells the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Number of its call.
    pub sequence: u32,
    /// The ranks of the group it waits for.
    pub ranks: [Option<Rank>; 2],
    /// Its call.
    pub signature: Signature,
}

/// Bytes that are not a header of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it sent bytes that no rank of this version would send")]
pub struct NotAFrame;

fn number(bytes: &[u8; HEADER], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

impl Frame {
    /// The header as bytes.
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[1..4].copy_from_slice(&MAGIC);
        match self {
            Frame::Hello(marker) => {
                bytes[0] = HELLO;
                bytes[24..24 + MARKER].copy_from_slice(marker);
            }
            Frame::Data(data) => {
                bytes[0] = DATA;
                bytes[4..8].copy_from_slice(&data.sequence.to_le_bytes());
                bytes[8..12].copy_from_slice(&data.step.to_le_bytes());
                bytes[16..24].copy_from_slice(&data.length.to_le_bytes());
                bytes[24..].copy_from_slice(&data.signature.encode());
            }
            Frame::Waiting(waiting) => {
                bytes[0] = WAITING;
                bytes[4..8].copy_from_slice(&waiting.sequence.to_le_bytes());
                for (slot, rank) in bytes[8..16].chunks_exact_mut(4).zip(waiting.ranks) {
                    slot.copy_from_slice(&rank.map_or(NOBODY, |rank| rank as u32).to_le_bytes());
                }
                bytes[24..].copy_from_slice(&waiting.signature.encode());
            }
            Frame::Farewell => bytes[0] = FAREWELL,
        }
        bytes
    }

    /// What these bytes announce.
    pub fn parse(bytes: &[u8; HEADER]) -> Result<Frame, NotAFrame> {
        if bytes[1..4] != MAGIC {
            return Err(NotAFrame);
        }
        let signature = || Signature::decode(&std::array::from_fn(|i| bytes[24 + i]));
        match bytes[0] {
            HELLO => Ok(Frame::Hello(std::array::from_fn(|i| bytes[24 + i]))),
            DATA => Ok(Frame::Data(Data {
                sequence: number(bytes, 4),
                step: number(bytes, 8),
                length: u64::from(number(bytes, 16)) | u64::from(number(bytes, 20)) << 32,
                signature: signature(),
            })),
            WAITING => {
                let rank = |at| Some(number(bytes, at)).filter(|&rank| rank != NOBODY).map(|rank| rank as Rank);
                let ranks = [rank(8), rank(12)];
                Ok(Frame::Waiting(Waiting { sequence: number(bytes, 4), ranks, signature: signature() }))
            }
            FAREWELL => Ok(Frame::Farewell),
            _ => Err(NotAFrame),
        }
    }
}

/// The last words of a rank on one link.
#[derive(Debug, Clone, PartialEq)]
pub enum Farewell {
    /// The rank is done and leaves in good order.
    Leave,
    /// The rank failed, and this is why.
    Alarm {
        /// Number of the first call of the whole group that it has not completed. Earlier ones may still be completed by
        /// others, because it has done its part in them.
        sequence: u32,
        /// Why.
        alarm: Alarm,
    },
    /// The rank heard of calls that differ, and this was its own.
    Dispute {
        /// Number of its call.
        sequence: u32,
        /// Its call.
        signature: Signature,
    },
}

impl Farewell {
    /// Header, payload and trailer, as bytes.
    pub fn encode(&self, marker: &Marker) -> Vec<u8> {
        let mut bytes = Frame::Farewell.encode().to_vec();
        match self {
            Farewell::Leave => bytes.push(0),
            Farewell::Alarm { sequence, alarm } => {
                bytes.push(1);
                bytes.extend_from_slice(&sequence.to_le_bytes());
                bytes.extend_from_slice(&alarm.encode());
            }
            Farewell::Dispute { sequence, signature } => {
                bytes.push(2);
                bytes.extend_from_slice(&sequence.to_le_bytes());
                bytes.extend_from_slice(&signature.encode());
            }
        }
        let length = (bytes.len() - HEADER) as u64;
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(marker);
        bytes
    }

    /// The farewell at the very end of `tail`, if a whole one stands there.
    pub fn find(tail: &[u8], marker: &Marker) -> Option<Farewell> {
        let rest = tail.strip_suffix(marker)?;
        let (rest, length) = rest.split_last_chunk::<8>()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let payload = &rest[rest.len().checked_sub(length)?..];
        match payload.split_first()? {
            (0, []) => Some(Farewell::Leave),
            (1, rest) => {
                let (sequence, alarm) = rest.split_first_chunk::<4>()?;
                Some(Farewell::Alarm { sequence: u32::from_le_bytes(*sequence), alarm: Alarm::decode(alarm)? })
            }
            (2, dispute) => {
                let (sequence, call) = dispute.split_first_chunk::<4>()?;
                let call: &[u8; Signature::SIZE] = call.try_into().ok()?;
                Some(Farewell::Dispute { sequence: u32::from_le_bytes(*sequence), signature: Signature::decode(call) })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{DType, signature::Kind};

    #[test]
    fn headers_survive_the_trip() {
        let signature = Signature::new(Kind::AllReduce, DType::F32, 7);
        for frame in [
            Frame::Hello([9; MARKER]),
            Frame::Data(Data { sequence: 3, step: 1 << 30, length: u64::MAX - 5, signature }),
            Frame::Waiting(Waiting { sequence: 9, ranks: [Some(3), None], signature }),
            Frame::Farewell,
        ] {
            assert_eq!(Frame::parse(&frame.encode()), Ok(frame));
        }
    }

    #[test]
    fn farewells_are_found_behind_a_broken_payload() {
        let signature = Signature::new(Kind::Barrier, DType::U8, 0);
        let alarm = Alarm::Stopped { reason: "enough".into() };
        let alarm = Farewell::Alarm { sequence: 7, alarm };
        for farewell in [Farewell::Leave, alarm, Farewell::Dispute { sequence: 8, signature }] {
            let mut stream = vec![0xAB; 1000];
            stream.extend(farewell.encode(&[5; MARKER]));
            assert_eq!(Farewell::find(&stream, &[5; MARKER]), Some(farewell));
            assert_eq!(Farewell::find(&stream, &[6; MARKER]), None);
            assert_eq!(Farewell::find(&stream[..stream.len() - 1], &[5; MARKER]), None);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(header: [u8; HEADER], mut tail: Vec<u8>, length: u64, marker: Marker) {
            let _ = Frame::parse(&header);
            tail.extend(length.to_le_bytes());
            tail.extend(marker);
            let _ = Farewell::find(&tail, &marker);
        }
    }
}
