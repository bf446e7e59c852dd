//! All links of a group, and exchanges over them.
//!
//! What every transport needs is written once here: sending and receiving at the same time, waiting, time limits,
//! noticing dead ranks, telling all ranks why one fails, and finding out that ranks call different things. A link only
//! moves bytes.

mod elsewhere;
mod exchange;
mod fail;
pub mod frame;
mod peer;
mod receive;
mod scratch;
mod survey;
#[cfg(all(test, not(loom)))]
mod tests;
mod wait;

use std::{sync::Arc, thread, time::Duration};

pub use receive::Receive;
pub use scratch::Scratch;

use crate::{
    CommError, Group, Rank, Stopper,
    communicator::WaitObserver,
    link::{
        Bell, Link,
        path::{Path, path},
    },
    signature::Signature,
};

use frame::{Farewell, Marker};
use peer::Peer;

/// One call of this rank, as announced before every payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    signature: Signature,
    sequence: u32,
}

impl Call {
    /// Marks the numbers of calls between two ranks, which the other ranks do not count.
    const POINT: u32 = 1 << 31;

    /// Whether another rank calls something else at the same point of the program.
    fn differs(&self, sequence: u32, signature: Signature) -> bool {
        self.sequence & Self::POINT == 0 && self.sequence == sequence && self.signature != signature
    }
}

/// The links of one rank to all others of its group. One thread owns it.
pub struct Mesh {
    group: Group,
    peers: Vec<Option<Peer>>,
    timeout: Duration,
    stopper: Stopper,
    /// Closes what this rank sends; see [`frame`].
    marker: Marker,
    /// The first error; there is no way back from it.
    poison: Option<CommError>,
    sequence: u32,
    /// More ranks than cores on this host.
    crowded: bool,
    /// Told of waits, where this is one layer of several.
    observer: Option<Arc<dyn WaitObserver>>,
    /// A wait in another layer.
    elsewhere: Option<elsewhere::Told>,
    stage: Scratch,
    scratch: Scratch,
}

impl Mesh {
    /// The mesh of `group` over `links`, by rank, with `None` for myself.
    pub fn new(
        group: Group,
        links: Vec<Option<Box<dyn Link>>>,
        timeout: Duration,
        stopper: Stopper,
    ) -> Result<Self, CommError> {
        let complete = links.iter().enumerate().all(|(rank, link)| link.is_some() != (rank == group.rank()));
        if links.len() != group.size() || !complete {
            let problem = "a mesh needs one link to every other rank of its group".into();
            return Err(CommError::Invalid { problem });
        }
        let mut marker = Marker::default();
        getrandom::fill(&mut marker)
            .map_err(|error| CommError::io("drawing random bytes", std::io::Error::other(error.to_string())))?;
        let crowded = group.is_crowded();
        Ok(Self {
            peers: links.into_iter().map(|link| Some(Peer::new(link?, marker))).collect(),
            group,
            timeout,
            stopper,
            marker,
            poison: None,
            sequence: 0,
            crowded,
            observer: None,
            elsewhere: None,
            stage: Scratch::default(),
            scratch: Scratch::default(),
        })
    }

    /// Who takes part.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// A handle to end calls from another thread.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Round-trip times of packets to ranks of other hosts, by rank in the world, on the connections that carry most.
    /// On others the kernel sees little but delayed acknowledgements.
    pub fn round_trips(&self) -> Vec<(Rank, Duration)> {
        let members = self.group.members();
        let far = |rank: &Rank| members[*rank].host_id != members[self.group.rank()].host_id;
        let way = |rank: Rank| match self.peers[rank].as_ref()?.link.bell() {
            Bell::Descriptor(socket) => Some((self.group.world_rank(rank), path(socket)?)),
            _ => None,
        };
        let ways: Vec<(Rank, Path)> = (0..self.peers.len()).filter(far).filter_map(way).collect();
        let most = ways.iter().map(|(_, path)| path.sent).max().unwrap_or(0);
        let busy = ways.into_iter().filter(|(_, path)| path.sent >= most / 2);
        busy.map(|(rank, path)| (rank, path.round_trip)).collect()
    }

    /// How long a rank may wait without progress.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Begins the next call of the whole group.
    pub fn begin(&mut self, signature: Signature) -> Result<Call, CommError> {
        self.sequence = self.next();
        let call = Call { signature, sequence: self.sequence };
        self.ready(&call)?;
        Ok(call)
    }

    /// The number of the next call of the whole group.
    fn next(&self) -> u32 {
        self.sequence.wrapping_add(1) & !Call::POINT
    }

    /// From now on `observer` is told of waits, and asked whom to blame for them.
    pub fn observe_waits(&mut self, observer: Arc<dyn WaitObserver>) {
        self.observer = Some(observer);
    }

    /// Begins the next send to (or, if `receives`, receive from) `peer`, of which only the two of us know.
    pub fn begin_point(&mut self, signature: Signature, peer: Rank, receives: bool) -> Result<Call, CommError> {
        let points = &mut self.peer(peer).points;
        let count = if receives { &mut points.0 } else { &mut points.1 };
        *count = count.wrapping_add(1);
        let call = Call { signature, sequence: *count | Call::POINT };
        self.ready(&call)?;
        Ok(call)
    }

    fn ready(&mut self, call: &Call) -> Result<(), CommError> {
        if let Some(error) = &self.poison {
            return Err(error.clone());
        }
        self.stopper.check().map_err(|error| {
            let failure = survey::Failure { rank: self.group.rank(), trouble: peer::Trouble::Error(error) };
            self.fail(call, failure, None, None)
        })
    }

    /// Lends the reusable memory, for use alongside the mesh itself, while `work` runs.
    pub fn with_scratch<T>(&mut self, work: impl FnOnce(&mut Mesh, &mut Scratch) -> T) -> T {
        let mut scratch = std::mem::take(&mut self.scratch);
        let result = work(self, &mut scratch);
        scratch.trim();
        self.scratch = scratch;
        result
    }

    fn peer(&mut self, rank: Rank) -> &mut Peer {
        self.peers[rank].as_mut().expect("there is a link to every other rank")
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        if self.poison.is_none() {
            let me = self.group.rank();
            let words = if thread::panicking() {
                let how = "its thread panicked; see its output".into();
                let (rank, who) = (self.group.world_rank(me), self.group.describe(me));
                Farewell::Alarm { sequence: self.sequence, alarm: crate::Alarm::PeerLost { rank, who, how } }
            } else {
                Farewell::Leave
            };
            self.say(&words, None);
        }
        // Unread bytes would make the system reset a connection, and the peer would lose what was sent last.
        self.peers.iter_mut().flatten().for_each(|peer| drop(peer.end()));
    }
}
