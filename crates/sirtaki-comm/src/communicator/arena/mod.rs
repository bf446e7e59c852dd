//! All ranks of one host over one piece of shared memory.
//!
//! Large all-reduces go through [`chain`], small ones travel in the announcements ([`enter`]), data that lies in shared
//! memory already is reduced where it is ([`shared`]), everything else goes through [`windows`]. Point-to-point messages
//! and the algorithms a user may force run over streams in the same segment.

mod chain;
mod enter;
mod layout;
mod memory;
#[cfg(all(test, loom))]
pub(crate) mod model;
mod operations;
mod participant;
mod post;
mod room;
mod shared;
mod small;
#[cfg(all(test, not(loom)))]
mod tests;
mod windows;

use std::{
    ops::Range,
    sync::{Arc, Weak, atomic::Ordering},
};

use serde::{Deserialize, Serialize};

pub(crate) use self::{layout::Counters, room::Room};
use self::{
    layout::Layout,
    memory::Memory,
    participant::{Count, Participant},
};
use super::{check, mesh::MeshCommunicator};
use crate::{
    CommError, Group, Rank, Settings, Stopper,
    buffer::{Buffer, SharedMemory},
    collective::Algorithm,
    link::{Link, ShmLink},
    mesh::Mesh,
    rendezvous::{Exchange, split_with},
    shm::Segment,
};

/// The shared-memory communicator.
pub struct Arena {
    me: Participant,
    forced: Option<Algorithm>,
    /// Bytes of a block of the chain, where that was chosen.
    block: Option<usize>,
    streams: MeshCommunicator,
    buffers: Vec<Weak<SharedMemory>>,
    buffers_made: u64,
    settings: Settings,
}

/// How the others find a segment.
#[derive(Serialize, Deserialize)]
struct Invitation {
    pid: u32,
    descriptor: i32,
    nonce: u64,
}

impl Arena {
    /// Most ranks that one segment serves.
    pub const MOST_RANKS: usize = 256;

    /// Shared memory a host needs for `ranks` ranks, beyond the users' own buffers.
    pub fn memory(ranks: usize) -> usize {
        Layout::new(ranks).total()
    }

    /// Meets the other members of `group`, all on this host. All of them call it.
    pub fn connect(group: Group, exchange: &mut dyn Exchange, settings: &Settings) -> Result<Self, CommError> {
        Self::counting_from(Count::default(), group, exchange, settings)
    }

    fn counting_from(
        count: Count,
        group: Group,
        exchange: &mut dyn Exchange,
        settings: &Settings,
    ) -> Result<Self, CommError> {
        let memory = Arc::new(Memory::new(meet(&group, exchange)?, Layout::new(group.size())));
        let stopper = Stopper::new();
        let room = Arc::new(Room::new(memory, group.clone(), settings.timeout, stopper.clone())?);
        let me = Participant::new(room.clone(), count);
        // No rank may go on before all have begun to count and watch each other.
        exchange.all(&[])?;
        let links = (0..group.size())
            .map(|peer| {
                let link = || Box::new(ShmLink::new(room.clone(), peer)) as Box<dyn Link>;
                (peer != group.rank()).then(link)
            })
            .collect();
        // Groups are split off the arena, never off its streams.
        let connector = Arc::new(|_: &Group, _: &mut dyn Exchange| {
            Err(CommError::Invalid { problem: "streams are not split".into() })
        });
        let streams = MeshCommunicator::new(Mesh::new(group, links, settings.timeout, stopper)?, None, connector)?;
        Ok(Self {
            me,
            forced: None,
            block: None,
            streams,
            buffers: Vec::new(),
            buffers_made: 0,
            settings: settings.clone(),
        })
    }

    /// Runs `work` on the streams; an error there is an error of the arena.
    fn stream(&mut self, work: impl FnOnce(&mut MeshCommunicator) -> Result<(), CommError>) -> Result<(), CommError> {
        self.me.check()?;
        work(&mut self.streams).map_err(|error| match error {
            CommError::Invalid { .. } => error,
            other => self.me.fail(other),
        })
    }

    /// The shared buffer that `bytes` are part of, and where in it.
    fn shared(&mut self, bytes: &[u8]) -> Option<(Arc<SharedMemory>, usize)> {
        if self.buffers.is_empty() {
            return None;
        }
        self.buffers.retain(|buffer| buffer.strong_count() > 0);
        self.buffers.iter().filter_map(Weak::upgrade).find_map(|buffer| {
            let offset = buffer.offset_of(bytes)?;
            Some((buffer, offset))
        })
    }

    /// Memory that all ranks of the host see. All of them call it with the same length.
    fn shared_buffer(&mut self, length: usize) -> Result<Buffer, CommError> {
        self.buffers_made += 1;
        let id = self.buffers_made;
        let made = split_with(self, Some(0), |group, exchange| share(group, exchange, id, length))?;
        let memory = Arc::new(made.ok_or_else(|| CommError::Invalid { problem: "a buffer needs a group".into() })?);
        self.buffers.push(Arc::downgrade(&memory));
        Ok(Buffer::shared(memory, length))
    }
}

/// Every rank makes a segment and opens the others'.
fn share(group: &Group, exchange: &mut dyn Exchange, id: u64, length: usize) -> Result<SharedMemory, CommError> {
    let length = length.max(1);
    let mut mine = Some(Segment::create(length)?);
    let (pid, descriptor) = mine.as_ref().map_or((0, 0), Segment::address);
    let invitations = exchange.all(&encode(&Invitation { pid, descriptor, nonce: id })?)?;
    let open = |rank: Rank| match mine.take_if(|_| rank == group.rank()) {
        Some(segment) => Ok(segment),
        None => {
            let Invitation { pid, descriptor, .. } = decode(group, rank, &invitations[rank])?;
            Segment::open(pid, descriptor, length)
        }
    };
    let segments = (0..group.size()).map(open).collect::<Result<_, _>>()?;
    Ok(SharedMemory::new(id, group.rank(), segments))
}

/// The first rank makes a segment, the others open it.
fn meet(group: &Group, exchange: &mut dyn Exchange) -> Result<Segment, CommError> {
    let bytes = Layout::new(group.size()).total();
    let made = if group.rank() == 0 { Some(Segment::create(bytes)?) } else { None };
    let mut invitation = Vec::new();
    if let Some(segment) = &made {
        let nonce = getrandom::u64()
            .map_err(|error| CommError::io("cannot draw random bytes", std::io::Error::other(error)))?;
        nonce_of(segment).store(nonce, Ordering::Release);
        let (pid, descriptor) = segment.address();
        invitation = encode(&Invitation { pid, descriptor, nonce })?;
    }
    let invitations = exchange.all(&invitation)?;
    let segment = match made {
        Some(segment) => segment,
        None => {
            let invitation: Invitation = decode(group, 0, &invitations[0])?;
            let segment = Segment::open(invitation.pid, invitation.descriptor, bytes)?;
            if nonce_of(&segment).load(Ordering::Acquire) != invitation.nonce {
                let problem = format!("{} shares memory of another job", group.describe(0));
                return Err(CommError::Invalid { problem });
            }
            segment
        }
    };
    // The first rank may close its descriptor only after all others have opened it.
    exchange.all(&[])?;
    Ok(segment)
}

fn nonce_of(segment: &Segment) -> &std::sync::atomic::AtomicU64 {
    // SAFETY: the segment begins with a Board, which consists of atomics.
    &unsafe { &*segment.start().cast::<layout::Board>() }.nonce
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>, CommError> {
    postcard::to_stdvec(value).map_err(|error| CommError::Invalid { problem: error.to_string() })
}

fn decode<'a, T: Deserialize<'a>>(group: &Group, rank: Rank, bytes: &'a [u8]) -> Result<T, CommError> {
    postcard::from_bytes(bytes).map_err(|_| CommError::Refused {
        peer: group.describe(rank),
        reason: "its invitation to shared memory cannot be read; is it of another version?".into(),
    })
}

/// The bytes of each rank's part.
fn parts(counts: &[usize], size: usize) -> Vec<Range<usize>> {
    check::offsets(counts).windows(2).map(|pair| pair[0] * size..pair[1] * size).collect()
}
