//! The links that carry words and verdicts: a star around rank 0, over TCP whatever carries the data.

use std::{
    collections::VecDeque,
    io::IoSlice,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::fd::OwnedFd,
    sync::mpsc,
    time::{Duration, Instant},
};

use serde::Serialize;
use sirtaki_comm::{
    CommError, Communicator, Group, Rank, Settings,
    link::{Bell, Link, LinkError, link_over},
    rendezvous::{Exchange, choose_network, split_with},
    secure::{
        Access, Gate, fresh_id,
        handshake::{Claim, Purpose},
    },
};

use crate::message::{MESSAGE_LIMIT, decode, encode};

/// Bytes read at a time.
const PIECE: usize = 64 << 10;
/// How long rank 0's address may answer "nobody listens here".
const REFUSAL_PATIENCE: Duration = Duration::from_secs(2);

/// One link with what is half sent and half received.
struct Wire {
    link: Box<dyn Link>,
    incoming: Vec<u8>,
    outgoing: VecDeque<u8>,
}

/// This rank's links: to everybody on rank 0, to rank 0 elsewhere.
pub struct Star {
    wires: Vec<Option<Wire>>,
}

/// A link that is gone, and how.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Lost {
    pub(crate) rank: Rank,
    pub(crate) how: String,
}

impl Star {
    /// Connects the ranks of `world`, which all call it.
    pub fn connect(world: &mut dyn Communicator, settings: &Settings) -> Result<Star, CommError> {
        let made = split_with(world, Some(0), |group, exchange| join(group, exchange, settings))?;
        made.ok_or_else(|| CommError::Invalid { problem: "a star needs a group".into() })
    }

    /// Puts a message on its way.
    pub(crate) fn send(&mut self, to: Rank, message: &impl Serialize) -> Result<(), Lost> {
        self.put(to, &frame(message))
    }

    /// Puts a message on its way to all others, also when one of them is gone.
    pub(crate) fn send_all(&mut self, message: &impl Serialize) -> Result<(), Lost> {
        let bytes = frame(message);
        (0..self.wires.len()).map(|rank| self.put(rank, &bytes)).fold(Ok(()), Result::and)
    }

    fn put(&mut self, to: Rank, bytes: &[u8]) -> Result<(), Lost> {
        let Some(Some(wire)) = self.wires.get_mut(to) else { return Ok(()) };
        wire.outgoing.extend(bytes);
        wire.flush().map_err(|how| Lost { rank: to, how })
    }

    /// Sends on what did not fit before; says whether everything is sent.
    pub(crate) fn flush(&mut self) -> Result<bool, Lost> {
        let mut outcome = Ok(true);
        for (rank, wire) in self.wires.iter_mut().enumerate() {
            if let Some(wire) = wire.as_mut().filter(|wire| !wire.outgoing.is_empty()) {
                let flushed = wire.flush().map(|()| wire.outgoing.is_empty()).map_err(|how| Lost { rank, how });
                outcome = outcome.and_then(|clear| flushed.map(|now_clear| clear && now_clear));
            }
        }
        outcome
    }

    /// Messages that have arrived whole, and who is gone.
    pub(crate) fn receive<T: serde::de::DeserializeOwned>(&mut self) -> (Vec<(Rank, T)>, Option<Lost>) {
        let mut messages = Vec::new();
        let mut lost = None;
        for (rank, wire) in self.wires.iter_mut().enumerate() {
            let Some(wire) = wire else { continue };
            let outcome = wire.fill();
            // What somebody said before it went counts.
            let parsed = wire.drain(|bytes| match decode(bytes) {
                Some(message) => {
                    messages.push((rank, message));
                    true
                }
                None => false,
            });
            if let Err(how) = outcome.and(parsed) {
                lost = lost.or(Some(Lost { rank, how }));
            }
        }
        (messages, lost)
    }

    /// Closes the link to a rank.
    pub(crate) fn drop_link(&mut self, rank: Rank) {
        if let Some(wire) = self.wires.get_mut(rank) {
            *wire = None;
        }
    }

    /// Handles to sleep on, by rank, and whether there is something to write.
    pub(crate) fn sockets(&self) -> Result<Vec<(OwnedFd, bool)>, CommError> {
        let wires = self.wires.iter().flatten();
        wires
            .filter_map(|wire| match wire.link.bell() {
                Bell::Descriptor(descriptor) => Some((descriptor.try_clone_to_owned(), !wire.outgoing.is_empty())),
                _ => None,
            })
            .map(|(handle, writes)| match handle {
                Ok(handle) => Ok((handle, writes)),
                Err(error) => Err(CommError::io("cannot watch a control link", error)),
            })
            .collect()
    }
}

fn frame(message: &impl Serialize) -> Vec<u8> {
    let body = encode(message);
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend(body);
    bytes
}

impl Wire {
    fn new(link: Box<dyn Link>) -> Self {
        Self { link, incoming: Vec::new(), outgoing: VecDeque::new() }
    }

    fn flush(&mut self) -> Result<(), String> {
        while !self.outgoing.is_empty() {
            let (front, back) = self.outgoing.as_slices();
            match self.link.push(&[IoSlice::new(front), IoSlice::new(back)]) {
                Ok(0) => break,
                Ok(count) => drop(self.outgoing.drain(..count)),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    /// Reads what there is; `Err` says that nothing more will come.
    fn fill(&mut self) -> Result<(), String> {
        loop {
            let incoming = &mut self.incoming;
            match self.link.pull(PIECE, &mut |piece| incoming.extend_from_slice(piece)) {
                Ok(PIECE) => {}
                Ok(_) => return Ok(()),
                Err(LinkError::Closed(how)) => return Err(how),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    fn drain(&mut self, mut take: impl FnMut(&[u8]) -> bool) -> Result<(), String> {
        let mut at = 0;
        while let Some(head) = self.incoming.get(at..at + 4) {
            let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
            if length > MESSAGE_LIMIT {
                return Err(format!("it sent a message of {length} bytes, which cannot be right"));
            }
            let Some(body) = self.incoming.get(at + 4..at + 4 + length) else { break };
            if !take(body) {
                return Err("it sent a message that cannot be read; is it of another version?".into());
            }
            at += 4 + length;
        }
        self.incoming.drain(..at);
        Ok(())
    }
}

fn join(group: &Group, exchange: &mut dyn Exchange, settings: &Settings) -> Result<Star, CommError> {
    let deadline = Instant::now() + settings.start_timeout;
    let access = Access::from_settings(settings)?;
    let bind = match group.hosts().len() {
        1 => IpAddr::V4(Ipv4Addr::LOCALHOST),
        _ => choose_network(group, exchange, settings)?.address,
    };
    let mut wires: Vec<Option<Wire>> = (0..group.size()).map(|_| None).collect();
    if group.rank() == 0 {
        let (listener, address) = Gate::bind(bind)?;
        let id = fresh_id()?;
        let (sender, arrivals) = mpsc::channel();
        let gate = Gate::open(listener, access, (Purpose::Link, id), move |stream, claim| {
            let _ = sender.send((stream, claim));
        })?;
        exchange.all(&encode(&(address, id)))?;
        while let Some(missing) = (1..group.size()).find(|&rank| wires[rank].is_none()) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok((stream, claim)) = arrivals.recv_timeout(left) else {
                return Err(absent(group, missing, &gate, settings.start_timeout));
            };
            if let Some(place) = wires.get_mut(claim.rank as usize).filter(|_| claim.rank != 0) {
                *place = Some(Wire::new(link_over(stream, settings)?));
            }
        }
        return Ok(Star { wires });
    }
    let said = exchange.all(&[])?;
    let (address, id): (SocketAddr, [u8; 16]) = decode(&said[0]).ok_or_else(|| CommError::Refused {
        peer: group.describe(0),
        reason: "its address cannot be read; do all ranks run the same version?".into(),
    })?;
    let claim = Claim { purpose: Purpose::Link, rank: group.rank() as u32, group: id };
    let patience = Instant::now() + REFUSAL_PATIENCE;
    let stream = access.call_patiently(address, &claim, patience, deadline)?;
    wires[0] = Some(Wire::new(link_over(stream, settings)?));
    Ok(Star { wires })
}

fn absent(group: &Group, rank: Rank, gate: &Gate, waited: Duration) -> CommError {
    let refused = gate.refusals().join("; ");
    let refused = if refused.is_empty() { refused } else { format!("; meanwhile: {refused}") };
    CommError::Timeout {
        rank: group.world_rank(rank),
        who: group.describe(rank),
        operation: format!("connecting to {} at {}{refused}", group.describe(0), gate.address()),
        waited,
    }
}
