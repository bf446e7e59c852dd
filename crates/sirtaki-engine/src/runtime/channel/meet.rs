//! How two ranks get a link when they first need one.
//!
//! The lower rank listens and the higher one calls. Both find out through the control links, on which rank 0 passes short
//! letters on: the higher rank knocks if it was the first to need the link, and the lower one answers with an invitation,
//! which says where it listens and, on one host, which memory to share. Listening begins with the first invitation, so a
//! rank that exchanges no messages has neither sockets nor threads for them.

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use sirtaki_comm::{
    CommError, Rank,
    link::{Link, RingLink, RingSide, link_over},
    secure::{
        Access, Gate, SecureStream, fresh_id,
        handshake::{Acceptor, Claim, Purpose},
    },
    shm::Segment,
};

use crate::{
    decide::{
        message::{decode, encode},
        waits::MessageWait,
    },
    runtime::shared::Shared,
};

/// How long the address of an invitation may refuse connections.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(2);
/// How long a proven caller may take to say how bytes will travel.
const WORD_LIMIT: Duration = Duration::from_secs(5);

/// What ranks write to each other about their channel.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Post {
    /// Invite me.
    Knock,
    /// Call me.
    Invite {
        /// Where.
        address: SocketAddr,
        /// The number of the listener's group.
        id: [u8; 16],
        /// Process and descriptor of memory to share.
        memory: Option<(u32, i32)>,
    },
    /// To rank 0: what the writer has waited for long, if anything.
    Waits(Option<MessageWait>),
}

/// How far two ranks have come.
#[derive(Default)]
pub(crate) enum LinkState {
    /// Nothing was done yet.
    #[default]
    Not,
    /// The invitation is out, with this memory.
    Invited(Option<Segment>),
    /// The invitation was accepted.
    Called,
}

/// The listeners of a rank: for its own host and for others.
#[derive(Default)]
pub(crate) struct Gates([Option<(Gate, [u8; 16])>; 2]);

impl Shared {
    /// Sees to it that there will be a link to `rank`.
    pub(super) fn meet(self: &Arc<Self>, rank: Rank) {
        let outcome = match rank < self.group.rank() {
            true => {
                self.star().post(rank, encode(&Post::Knock));
                Ok(())
            }
            false => self.invite(rank),
        };
        if let Err(error) = outcome {
            self.complain(error.to_alarm());
        }
    }

    /// Reads a letter.
    pub(crate) fn read_post(self: &Arc<Self>, from: Rank, bytes: &[u8]) {
        let known = from < self.group.size() && from != self.group.rank();
        match decode::<Post>(bytes).filter(|_| known) {
            Some(Post::Knock) if from > self.group.rank() => {
                // Whoever invites has a place for the other.
                self.with_state(|state| {
                    state.peer(from);
                });
            }
            Some(Post::Invite { address, id, memory }) if from < self.group.rank() => {
                self.with_state(|state| {
                    state.peer(from);
                });
                self.accept(from, (address, id), memory);
            }
            Some(Post::Waits(wait)) => {
                self.channel.reports.lock().unwrap_or_else(PoisonError::into_inner).note(from, wait);
            }
            _ => self.complain(garbled(self, from)),
        }
    }

    /// Invites a higher rank, once.
    fn invite(self: &Arc<Self>, rank: Rank) -> Result<(), CommError> {
        let here = self.is_here(rank);
        let memory = match here && self.comm.shared_memory {
            // Without memory the socket carries everything.
            true => Segment::create(RingLink::BYTES).ok(),
            false => None,
        };
        let mut state = self.channel.state();
        if state.closing || !matches!(state.peer(rank).link_state, LinkState::Not) {
            return Ok(());
        }
        let place = memory.as_ref().map(Segment::address);
        state.peer(rank).link_state = LinkState::Invited(memory);
        let gate = &mut state.gates.0[usize::from(here)];
        let (address, id) = match gate {
            Some((gate, id)) => (gate.address(), *id),
            None => {
                let made = self.listen_for_ranks(here)?;
                let known = (made.0.address(), made.1);
                *gate = Some(made);
                known
            }
        };
        self.star().post(rank, encode(&Post::Invite { address, id, memory: place }));
        Ok(())
    }

    /// A listener for this host or for others.
    fn listen_for_ranks(self: &Arc<Self>, here: bool) -> Result<(Gate, [u8; 16]), CommError> {
        let bind = if here { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { self.star().bind() };
        let id = fresh_id()?;
        let me = Acceptor { purpose: Purpose::Link, group: id, rank: self.group.rank() as u32 };
        let shared: Weak<Shared> = Arc::downgrade(self);
        let deliver = move |stream: SecureStream, claim: Claim| {
            if let Some(shared) = shared.upgrade() {
                shared.admit(stream, claim.rank as Rank);
            }
        };
        let gate = Gate::open(Gate::bind(bind)?.0, self.channel_access(here)?, me, deliver)?;
        Ok((gate, id))
    }

    /// Encrypted wherever control links would be.
    fn channel_access(&self, here: bool) -> Result<Access, CommError> {
        Access::for_control(&self.comm, if here { 1 } else { 2 })
    }

    /// An invited rank calls. It says first whether it can share the memory.
    fn admit(self: &Arc<Self>, mut stream: SecureStream, rank: Rank) {
        let mut word = [0];
        stream.set_deadline(Some(Instant::now() + WORD_LIMIT));
        let heard = stream.read_exact(&mut word).is_ok();
        stream.set_deadline(None);
        let mut state = self.channel.state();
        let invited = state.peers.get_mut(&rank).filter(|peer| matches!(peer.link_state, LinkState::Invited(_)));
        let invited = invited.map(|peer| std::mem::replace(&mut peer.link_state, LinkState::Called));
        drop(state);
        let Some(LinkState::Invited(memory)) = invited.filter(|_| heard) else { return };
        let memory = memory.filter(|_| word == [1]).map(|memory| (memory, RingSide::Maker));
        self.connected(rank, link_over(stream, &self.comm).and_then(|link| through(link, memory)));
    }

    /// Accepts an invitation, in a thread: the other side may take its time.
    fn accept(self: &Arc<Self>, rank: Rank, (address, id): (SocketAddr, [u8; 16]), memory: Option<(u32, i32)>) {
        let mut state = self.channel.state();
        if state.closing || !matches!(state.peer(rank).link_state, LinkState::Not) {
            return;
        }
        state.peer(rank).link_state = LinkState::Called;
        drop(state);
        let shared = self.clone();
        let work = move || {
            let link = shared.call_rank(rank, (address, id), memory);
            shared.connected(rank, link);
        };
        if let Err(error) = thread::Builder::new().name("sirtaki-meet".into()).spawn(work) {
            self.complain(CommError::io("cannot start a thread", error).to_alarm());
        }
    }

    fn call_rank(
        &self,
        rank: Rank,
        (address, id): (SocketAddr, [u8; 16]),
        memory: Option<(u32, i32)>,
    ) -> Result<Box<dyn Link>, CommError> {
        let (begin, here) = (Instant::now(), self.is_here(rank));
        let claim = Claim { purpose: Purpose::Link, rank: self.group.rank() as u32, group: id, to: rank as u32 };
        let access = self.channel_access(here)?;
        let (patience, deadline) = (begin + REFUSAL_PATIENCE, begin + self.comm.start_timeout);
        let mut stream = access.call_patiently(address, &claim, patience, deadline)?;
        let memory = memory.filter(|_| here && self.comm.shared_memory);
        // A container may hide processes from each other.
        let memory = memory.and_then(|(pid, descriptor)| Segment::open(pid, descriptor, RingLink::BYTES).ok());
        let said = stream.write_all(&[u8::from(memory.is_some())]).and_then(|()| stream.flush());
        said.map_err(|error| CommError::io(format!("cannot greet {}", self.group.describe(rank)), error))?;
        through(link_over(stream, &self.comm)?, memory.map(|memory| (memory, RingSide::Guest)))
    }

    fn connected(self: &Arc<Self>, rank: Rank, link: Result<Box<dyn Link>, CommError>) {
        self.with_state(|state| match link {
            Ok(link) => state.connect(rank, link),
            Err(error) => state.not_connected(self, rank, &error),
        });
    }
}

/// The link, through memory if there is some.
fn through(link: Box<dyn Link>, memory: Option<(Segment, RingSide)>) -> Result<Box<dyn Link>, CommError> {
    match memory {
        Some((memory, side)) => Ok(Box::new(RingLink::new(link, memory, side)?)),
        None => Ok(link),
    }
}

fn garbled(shared: &Shared, rank: Rank) -> sirtaki_comm::Alarm {
    let (world, who) = (shared.group.world_rank(rank.min(shared.group.size() - 1)), format!("rank {rank}"));
    let how = "it wrote a letter that cannot be read; is it of another version?".into();
    CommError::PeerLost { rank: world, who, how }.to_alarm()
}
