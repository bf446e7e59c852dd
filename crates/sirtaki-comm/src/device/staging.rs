//! Memory of each rank that the others of its host read, and the order in which that is safe.
//!
//! Each rank has two halves, used in turn. A round: fill my half, record my event `filled`, meet the others on the host,
//! wait for their events on the stream, read their halves, record my event `read`. Nothing but the meeting blocks, and the
//! streams never wait for the host.
//!
//! Why that is enough: a stream that is told to wait for an event waits for its latest recording at that time, so what
//! matters is the order of these calls on the hosts. Round *k* waits for `filled` of round *k*, which all ranks
//! recorded before they met in it, and which they record again in round *k + 2*, after the meeting of *k + 1*, to which
//! I come later. Before it fills its half again, round *k* waits for `read` of round *k - 2*: all ranks recorded that
//! before the meeting of *k - 1*, which I have left, and record it again only after the meeting of *k*, to which I have
//! not come. One meeting and one half would not do.
//!
//! Rejected: values in device memory that streams wait for, without any meeting. A rank that never comes would not be
//! found, since meetings provide the deadline and the name of the missing rank.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    IpcHandle, View,
    gpu::{Event, Gpu, Stream},
    leavers::Leavers,
    memory::DeviceMemory,
    proof,
};
use crate::{CommError, Communicator, DType, Rank, SliceMut, Stopper};

/// Bytes of a half. Larger tensors go through it in several rounds.
pub(super) const HALF: usize = 64 << 20;
/// What a rank shares: its memory, two events for each half, and who has left.
const SHARED: usize = 6;
const HANDLE: usize = size_of::<IpcHandle>();
/// A byte that says whether sharing worked, then handles or a text.
const MESSAGE: usize = 1 + SHARED * HANDLE;
/// The pause between two looks at a stream that has to finish.
const PAUSE: Duration = Duration::from_micros(100);
/// How long a rank that leaves waits for the others to leave, too.
const LEAVING: Duration = Duration::from_secs(10);

/// What one rank shares.
struct Peer {
    memory: DeviceMemory,
    filled: [Event; 2],
    read: [Event; 2],
    leavers: Leavers,
}

/// The halves of all ranks, as one of them sees them.
pub(super) struct Staging {
    rank: Rank,
    peers: Vec<Peer>,
    rounds: usize,
    failure: Option<CommError>,
}

impl Staging {
    /// Shares memory with all ranks of this group. Either all succeed, or all report on which rank it failed and why,
    /// and the communicator stays usable.
    pub(super) fn connect(comm: &mut dyn Communicator, gpu: &Arc<Gpu>) -> Result<Self, CommError> {
        let rank = comm.group().rank();
        let made = Peer::new(gpu, rank);
        let offer = made.as_ref().map(|(_, handles)| *handles).map_err(ToString::to_string);
        let offers = tell(comm, &encode(&offer))?;
        let unavailable = |reason| CommError::Unavailable { what: "device memory that ranks share".into(), reason };
        let refusal =
            |comm: &dyn Communicator, rank, why| unavailable(format!("{}: {why}", comm.group().describe(rank)));
        let mut handles = Vec::new();
        for (rank, offer) in offers.iter().enumerate() {
            handles.push(decode(offer).map_err(|why| refusal(comm, rank, why))?);
        }
        let (own, _) = made?;
        let opened: Result<Vec<_>, CommError> = (0..handles.len())
            .map(|peer| if peer == rank { Ok(None) } else { Peer::open(gpu, &handles[peer], peer).map(Some) })
            .collect();
        let verdict = opened.as_ref().map(|_| [[0; HANDLE]; SHARED]).map_err(ToString::to_string);
        let verdicts = tell(comm, &encode(&verdict))?;
        let failed = verdicts.iter().enumerate().find_map(|(rank, verdict)| Some((rank, decode(verdict).err()?)));
        if let Some((rank, why)) = failed {
            drop(opened);
            comm.barrier()?;
            return Err(refusal(comm, rank, why));
        }
        let mut own = Some(own);
        let peers = opened?.into_iter().filter_map(|peer| peer.or_else(|| own.take())).collect();
        Ok(Self { rank, peers, rounds: 0, failure: None })
    }

    /// How many ranks there are.
    pub(super) fn size(&self) -> usize {
        self.peers.len()
    }

    /// Which one I am.
    pub(super) fn rank(&self) -> Rank {
        self.rank
    }

    /// One round: `fill` queues what goes into my half, `read` what is done with all halves. A failure is reported to
    /// the others, and every later round fails with it.
    pub(super) fn round(
        &mut self,
        comm: &mut dyn Communicator,
        stream: &Stream,
        fill: impl FnOnce(View) -> Result<(), CommError>,
        read: impl FnOnce(&[View]) -> Result<(), CommError>,
    ) -> Result<(), CommError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let done = self.attempt(comm, stream, fill, read);
        if let Err(error) = &done {
            self.failure = Some(error.clone());
            comm.abort(error);
        }
        done
    }

    fn attempt(
        &mut self,
        comm: &mut dyn Communicator,
        stream: &Stream,
        fill: impl FnOnce(View) -> Result<(), CommError>,
        read: impl FnOnce(&[View]) -> Result<(), CommError>,
    ) -> Result<(), CommError> {
        let half = self.rounds % 2;
        let halves = self.peers.iter().map(|peer| peer.memory.view(half * HALF, DType::U8, HALF));
        let halves = halves.collect::<Result<Vec<_>, _>>()?;
        let own = &self.peers[self.rank];
        if self.rounds >= 2 {
            // My own event too: the last round may have been on another stream.
            self.peers.iter().try_for_each(|peer| stream.wait(&peer.read[half]))?;
        }
        fill(halves[self.rank])?;
        stream.record_in(&own.filled[half])?;
        comm.barrier()?;
        let others = self.peers.iter().enumerate().filter(|(rank, _)| *rank != self.rank);
        others.map(|(_, peer)| peer).try_for_each(|peer| stream.wait(&peer.filled[half]))?;
        read(&halves)?;
        stream.record_in(&own.read[half])?;
        self.rounds += 1;
        Ok(())
    }

    /// Leaves the memory of the others, and gives mine back if they leave it soon. Otherwise it stays reserved until the
    /// process ends. Says whether it was given back.
    pub(super) fn leave(mut self, stopper: &Stopper) -> Result<bool, CommError> {
        while !self.has_read()? {
            stopper.check()?;
            std::thread::sleep(PAUSE);
        }
        let (own, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.peers).into_iter().enumerate().partition(|(rank, _)| *rank == self.rank);
        let readers = others.len() as u32;
        for (_, Peer { memory, leavers, .. }) in others {
            drop(memory);
            leavers.leave();
        }
        let deadline = Instant::now() + LEAVING;
        let left = |peer: &Peer| peer.leavers.count() >= readers;
        while !own.iter().all(|(_, peer)| left(peer)) {
            if stopper.check().is_err() || Instant::now() >= deadline {
                std::mem::forget(own);
                return Ok(false);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(true)
    }

    /// Whether everything that this rank reads has been read.
    fn has_read(&self) -> Result<bool, CommError> {
        let own = &self.peers[self.rank];
        Ok(own.read[0].is_past()? && own.read[1].is_past()?)
    }
}

impl Drop for Staging {
    /// After a failure it is unknown whether the others still read my memory, so it stays until the process ends.
    /// Theirs is closed unless work that reads it is still queued, which would fail and take the whole process with it.
    fn drop(&mut self) {
        if self.peers.is_empty() {
            return;
        }
        let finished = self.has_read().unwrap_or(false);
        for (rank, peer) in self.peers.drain(..).enumerate() {
            if rank == self.rank || !finished {
                std::mem::forget(peer);
            }
        }
    }
}

impl Peer {
    /// My own.
    fn new(gpu: &Arc<Gpu>, rank: Rank) -> Result<(Self, [IpcHandle; SHARED]), CommError> {
        let memory = DeviceMemory::new(gpu, 2 * HALF)?;
        let handle = memory.share()?;
        let [a, b, c, d] = [gpu.shared_event()?, gpu.shared_event()?, gpu.shared_event()?, gpu.shared_event()?];
        proof::write(gpu, &memory, rank, &a.0)?;
        let (leavers, counter) = Leavers::create();
        let handles = [handle, a.1, b.1, c.1, d.1, counter];
        Ok((Self { memory, filled: [a.0, b.0], read: [c.0, d.0], leavers }, handles))
    }

    /// Another rank's, which has come so far as to share it.
    fn open(gpu: &Arc<Gpu>, handles: &[IpcHandle; SHARED], rank: Rank) -> Result<Self, CommError> {
        let [memory, a, b, c, d, counter] = handles;
        let event = |handle: &IpcHandle| gpu.open_event(*handle);
        let (memory, filled) = (DeviceMemory::open(gpu, *memory, 2 * HALF)?, [event(a)?, event(b)?]);
        proof::read(gpu, &memory, rank, &filled[0])?;
        Ok(Self { memory, filled, read: [event(c)?, event(d)?], leavers: Leavers::open(counter) })
    }
}

/// Sends something to all ranks; returns what they sent.
fn tell(comm: &mut dyn Communicator, mine: &[u8; MESSAGE]) -> Result<Vec<[u8; MESSAGE]>, CommError> {
    let (rank, size) = (comm.group().rank(), comm.group().size());
    let mut all = vec![[0; MESSAGE]; size];
    all[rank] = *mine;
    comm.all_gather(SliceMut::new(DType::U8, all.as_flattened_mut())?, &vec![MESSAGE; size])?;
    Ok(all)
}

fn encode(said: &Result<[IpcHandle; SHARED], String>) -> [u8; MESSAGE] {
    let mut message = [0; MESSAGE];
    match said {
        Ok(handles) => {
            message[0] = 1;
            message[1..].copy_from_slice(handles.as_flattened());
        }
        Err(why) => {
            let text = why.as_bytes();
            let length = text.len().min(MESSAGE - 1);
            message[1..=length].copy_from_slice(&text[..length]);
        }
    }
    message
}

fn decode(message: &[u8; MESSAGE]) -> Result<[IpcHandle; SHARED], String> {
    let (handles, _) = message[1..].as_chunks::<HANDLE>();
    match <[IpcHandle; SHARED]>::try_from(handles) {
        Ok(handles) if message[0] == 1 => Ok(handles),
        _ => Err(String::from_utf8_lossy(&message[1..]).trim_end_matches('\0').to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_carry_handles_or_a_reason() {
        let handles: [IpcHandle; SHARED] = std::array::from_fn(|i| [i as u8 + 1; HANDLE]);
        assert_eq!(decode(&encode(&Ok(handles))), Ok(handles));
        assert_eq!(decode(&encode(&Err("no memory left".into()))), Err("no memory left".into()));
        assert_eq!(decode(&encode(&Err("ä".repeat(500)))).unwrap_err().chars().next(), Some('ä'));
    }
}
