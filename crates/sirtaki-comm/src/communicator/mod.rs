//! All ranks of one group doing collectives together: the trait and its back ends.
//!
//! In place is the primitive: results appear where the inputs were, which needs no second buffer. Forms with separate
//! buffers are one copy away ([`Communicator::all_gather`] documents where to put what).
//! Only forms with counts per rank exist; equal counts are a special case, not a second method.
//! Calls take `&mut self`: one thread owns a communicator, so there are no locks inside. Concurrency comes from
//! [`Communicator::split`], whose groups are independent of each other and of their parent.

mod arena;
pub(crate) mod call;
pub(crate) mod check;
mod layered;
mod mesh;
pub mod mpi;
mod solo;
mod waits;

pub use arena::Arena;
#[cfg(loom)]
#[cfg(test)]
pub(crate) use arena::model;
pub(crate) use arena::{Counters, Room};
pub use layered::{Layered, settle};
pub use mesh::{Connector, MeshCommunicator};
pub use solo::Solo;
pub use waits::{Blame, WaitObserver};

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    Buffer, CommError, DType, Group, Plan, Rank, Reduction, Slice, SliceMut, Stopper,
    collective::Algorithm,
    signature::{Kind, Signature},
};

/// Collectives over one group. Every member makes the same calls in the same order.
pub trait Communicator: Send {
    /// All members, and which of them I am.
    fn group(&self) -> &Group;

    /// The back end's name, such as `arena`.
    fn name(&self) -> &'static str;

    /// Replaces `data` on every rank by the reduction over all ranks. The bits are the same everywhere.
    fn all_reduce(&mut self, data: SliceMut<'_>, reduction: Reduction) -> Result<(), CommError>;

    /// Replaces `data` on every rank by that of `root`.
    fn broadcast(&mut self, data: SliceMut<'_>, root: Rank) -> Result<(), CommError>;

    /// Collects all ranks' parts. `all` holds the parts one after another in rank order, `counts[r]` elements of rank
    /// `r`; before the call only my own part has to be filled.
    fn all_gather(&mut self, all: SliceMut<'_>, counts: &[usize]) -> Result<(), CommError>;

    /// Reduces parts. `all` is laid out as in [`Communicator::all_gather`] and filled everywhere; afterwards my own
    /// part holds the reduction over all ranks and the other parts are unspecified.
    fn reduce_scatter(&mut self, all: SliceMut<'_>, counts: &[usize], reduction: Reduction) -> Result<(), CommError>;

    /// Sends `sent[r]` elements of `out` to each rank `r` and fills `into` with `received[r]` elements from each, both
    /// in rank order without gaps.
    fn all_to_all(
        &mut self,
        out: Slice<'_>,
        sent: &[usize],
        into: SliceMut<'_>,
        received: &[usize],
    ) -> Result<(), CommError>;

    /// Replaces `data` on `root` by the reduction over all ranks; elsewhere `data` is unspecified afterwards.
    fn reduce(&mut self, data: SliceMut<'_>, reduction: Reduction, root: Rank) -> Result<(), CommError>;

    /// Collects all ranks' parts on `root`, where `data` is laid out as in [`Communicator::all_gather`] with the root's
    /// own part filled. Elsewhere `data` is the rank's own part.
    fn gather(&mut self, data: SliceMut<'_>, counts: &[usize], root: Rank) -> Result<(), CommError>;

    /// Hands out parts from `root`, where `data` is laid out as in [`Communicator::all_gather`]. Elsewhere `data`
    /// receives the rank's own part.
    fn scatter(&mut self, data: SliceMut<'_>, counts: &[usize], root: Rank) -> Result<(), CommError>;

    /// Returns once every rank has called it with the same `call`, and with [`CommError::Mismatch`] if one has not.
    fn agree(&mut self, call: Signature) -> Result<(), CommError>;

    /// Returns once every rank has called it.
    fn barrier(&mut self) -> Result<(), CommError> {
        self.agree(Signature::new(Kind::Barrier, DType::U8, 0))
    }

    /// Sends to one rank, which must call [`Communicator::receive`] with the same type and count.
    fn send(&mut self, data: Slice<'_>, to: Rank) -> Result<(), CommError>;

    /// Receives from one rank, which must call [`Communicator::send`].
    fn receive(&mut self, data: SliceMut<'_>, from: Rank) -> Result<(), CommError>;

    /// Makes one group of all ranks that give the same colour, in their present order; a rank that gives `None` is in
    /// no group. All ranks of this group call it. The new groups may be used from other threads at the same time.
    fn split(&mut self, colour: Option<u64>) -> Result<Option<Box<dyn Communicator>>, CommError>;

    /// Carries out all-reduces by this algorithm from now on, whatever their size; `None` lets size and topology
    /// decide. All ranks call it. [`CommError::Invalid`] if this back end does not have the algorithm.
    fn force(&mut self, algorithm: Option<Algorithm>) -> Result<(), CommError>;

    /// Works through large all-reduces in pieces of about this many bytes from now on; `None` leaves the choice to the
    /// back end. All ranks call it. Has no effect in a back end without pieces.
    fn set_piece(&mut self, _bytes: Option<usize>) {}

    /// How an all-reduce of this many bytes is carried out; `None` where the back end cannot know.
    fn algorithm(&self, _bytes: usize, _plan: &Plan) -> Option<Algorithm> {
        None
    }

    /// Round-trip times of packets to ranks of other hosts, queues on the way included, by rank in the world, where
    /// known: measured on the TCP connections that carry most.
    fn round_trips(&self) -> Vec<(Rank, Duration)> {
        Vec::new()
    }

    /// Zeroed memory in which collectives are fastest: where ranks share a host, they work on it in place, without
    /// copying. All ranks call it with the same length.
    fn buffer(&mut self, bytes: usize) -> Result<Buffer, CommError> {
        Buffer::private(bytes)
    }

    /// Makes this communicator tell `observer` whom its calls wait for, and ask it whom to blame. For communicators
    /// that are made of several others; a back end that cannot do so works without it.
    fn observe_waits(&mut self, _observer: Arc<dyn WaitObserver>) {}

    /// Tells the others of this group, now and then and where the back end can, that this rank has been waiting for
    /// these ranks since that time, in another communicator over the same ranks.
    fn tell_wait(&mut self, _awaited: &[Rank], _since: Instant) {}

    /// Whom to blame for a wait for these ranks in another communicator, from what the ranks of this group have told.
    fn blame(&mut self, _awaited: &[Rank]) -> Option<Blame> {
        None
    }

    /// Makes this communicator fail: tells the other ranks why, where it can, and returns `error` from later calls.
    fn abort(&mut self, error: &CommError);

    /// A handle to end this communicator's calls from another thread.
    fn stopper(&self) -> Stopper;
}
