//! Collectives, in rounds: all ranks show a piece of their data, all come to a barrier, all read what they need, and all
//! come to a second barrier. What they are about to do is compared first, because ranks that do different things would read
//! nonsense.

use std::sync::atomic::Ordering;

use crate::{
    comm::{Comm, Interruption},
    number::{Operation, Type, reduce},
    segment::{PIECE, SIGNATURE},
    transfer::Transfer,
};

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    AllReduce(Operation),
    Broadcast(usize),
    AllGather,
    ReduceScatter(Operation),
    Reduce(Operation, usize),
    Send(usize),
    Receive(usize),
}

/// A call with its arguments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Elements of one part.
    pub(crate) count: usize,
    pub(crate) dtype: Type,
    /// Whether the call is to fail at its end.
    pub(crate) fails: bool,
}

impl Call {
    /// The call as a transfer between two ranks, if it is one.
    pub(crate) fn transfer(&self) -> Option<Transfer> {
        let bytes = self.count * self.dtype.size();
        match self.kind {
            Kind::Send(peer) => Some(Transfer { sends: true, peer, address: self.from, bytes }),
            Kind::Receive(peer) => Some(Transfer { sends: false, peer, address: self.to, bytes }),
            _ => None,
        }
    }

    fn signature(&self) -> [u8; SIGNATURE] {
        let (kind, operation, root) = match self.kind {
            Kind::AllReduce(operation) => (1, operation, 0),
            Kind::Broadcast(root) => (2, Operation::Sum, root),
            Kind::AllGather => (3, Operation::Sum, 0),
            Kind::ReduceScatter(operation) => (4, operation, 0),
            Kind::Reduce(operation, root) => (5, operation, root),
            Kind::Send(_) | Kind::Receive(_) => (0, Operation::Sum, 0),
        };
        let mut bytes = [0; SIGNATURE];
        bytes[0] = kind;
        bytes[1] = self.dtype as u8;
        bytes[8..16].copy_from_slice(&(self.count as u64).to_ne_bytes());
        bytes[16..24].copy_from_slice(&(root as u64).to_ne_bytes());
        bytes[24..33].copy_from_slice(&operation.identity());
        bytes
    }
}

/// Executes the call, on the thread of a stream.
pub(crate) fn run(comm: &Comm, call: &Call) -> Result<(), Interruption> {
    if call.count == 0 {
        return Ok(());
    }
    compare(comm, call)?;
    let bytes = call.count * call.dtype.size();
    let sources = if matches!(call.kind, Kind::ReduceScatter(_)) { comm.size } else { 1 };
    for part in 0..sources {
        for start in (0..bytes).step_by(PIECE) {
            let length = PIECE.min(bytes - start);
            let from = call.from + (part * bytes + start) as u64;
            if !matches!(call.kind, Kind::Broadcast(root) if root != comm.rank) {
                // SAFETY: the caller keeps the memory until the stream is past this; the area is ours until the barrier.
                unsafe { comm.segment.data(comm.rank).copy_from(from as *const u8, length) };
            }
            barrier(comm)?;
            read(comm, call, part, start, length);
            barrier(comm)?;
        }
    }
    Ok(())
}

/// Reads what this rank needs from the data that all ranks show.
fn read(comm: &Comm, call: &Call, part: usize, start: usize, length: usize) {
    // SAFETY: all ranks have filled their areas and leave them alone until the next barrier.
    let shown = |rank: usize| unsafe { std::slice::from_raw_parts(comm.segment.data(rank), length) };
    let copy = |from: &[u8], offset: usize| {
        let to = (call.to + offset as u64) as *mut u8;
        // SAFETY: the caller keeps the memory until the stream is past this.
        unsafe { to.copy_from(from.as_ptr(), length) };
    };
    let combine = |operation| {
        let inputs: Vec<&[u8]> = (0..comm.size).map(shown).collect();
        let mut out = vec![0; length];
        reduce(call.dtype, operation, &inputs, &mut out);
        copy(&out, start);
    };
    match call.kind {
        Kind::AllReduce(operation) => combine(operation),
        Kind::Reduce(operation, root) if root == comm.rank => combine(operation),
        Kind::ReduceScatter(operation) if part == comm.rank => combine(operation),
        Kind::Broadcast(root) => copy(shown(root), start),
        Kind::AllGather => {
            let whole = call.count * call.dtype.size();
            (0..comm.size).for_each(|rank| copy(shown(rank), rank * whole + start));
        }
        _ => {}
    }
}

/// An error unless all ranks are about to do the same.
fn compare(comm: &Comm, call: &Call) -> Result<(), Interruption> {
    let own = call.signature();
    // SAFETY: the place is ours until the barrier.
    unsafe { comm.segment.signature(comm.rank).copy_from(own.as_ptr(), SIGNATURE) };
    barrier(comm)?;
    let differs = (0..comm.size).find(|rank| {
        let mut theirs = [0; SIGNATURE];
        // SAFETY: it is filled, and its rank does not change it before the next barrier.
        unsafe { comm.segment.signature(*rank).copy_to(theirs.as_mut_ptr(), SIGNATURE) };
        theirs != own
    });
    match differs {
        None => Ok(()),
        Some(other) => {
            let problem = format!("rank {other} does something else than rank {}, which does {call:?}", comm.rank);
            Err(Interruption::Failed(problem))
        }
    }
}

/// Waits until all ranks have come here.
fn barrier(comm: &Comm) -> Result<(), Interruption> {
    let round = comm.round.fetch_add(1, Ordering::SeqCst) + 1;
    comm.segment.round(comm.rank).store(round, Ordering::SeqCst);
    comm.segment.tell();
    let all = || (0..comm.size).all(|rank| comm.segment.round(rank).load(Ordering::SeqCst) >= round);
    Ok(comm.segment.wait(&comm.aborted, all)?)
}
