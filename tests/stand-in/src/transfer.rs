//! What single ranks send each other. All transfers of a group make progress side by side, except that those between the
//! same two ranks in the same direction keep their order.

use std::sync::atomic::Ordering;

use crate::{
    comm::{Comm, Interruption},
    segment::PIECE,
};

/// Bytes to or from another rank.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer {
    pub(crate) sends: bool,
    pub(crate) peer: usize,
    pub(crate) address: u64,
    pub(crate) bytes: usize,
}

/// Executes all of them, on the thread of a stream.
pub(crate) fn run(comm: &Comm, transfers: &[Transfer]) -> Result<(), Interruption> {
    let mut left: Vec<(Transfer, usize)> = transfers.iter().map(|transfer| (*transfer, 0)).collect();
    left.retain(|(transfer, _)| transfer.bytes > 0);
    while !left.is_empty() {
        let mut problem = None;
        comm.segment.wait(&comm.aborted, || match advance(comm, &mut left) {
            Ok(moved) => moved,
            Err(text) => {
                problem = Some(text);
                true
            }
        })?;
        if let Some(problem) = problem {
            return Err(Interruption::Failed(problem));
        }
        comm.segment.tell();
        left.retain(|(transfer, done)| *done < transfer.bytes);
    }
    Ok(())
}

/// Moves one piece of every transfer that can proceed; returns whether any could.
fn advance(comm: &Comm, left: &mut [(Transfer, usize)]) -> Result<bool, String> {
    let mut moved = false;
    let mut begun: Vec<(bool, usize)> = Vec::new();
    for (transfer, done) in left {
        let way = (transfer.sends, transfer.peer);
        if begun.contains(&way) {
            continue;
        }
        begun.push(way);
        let piece = step(comm, transfer, *done)?;
        *done += piece;
        moved |= piece > 0;
    }
    Ok(moved)
}

/// Moves a piece if the mailbox is empty (for the sender) or full (for the receiver); returns how many bytes.
fn step(comm: &Comm, transfer: &Transfer, done: usize) -> Result<usize, String> {
    let (from, to) = if transfer.sends { (comm.rank, transfer.peer) } else { (transfer.peer, comm.rank) };
    let mailbox = comm.segment.mailbox(from, to);
    let full = mailbox.sent.load(Ordering::SeqCst) != mailbox.received.load(Ordering::SeqCst);
    let length = PIECE.min(transfer.bytes - done);
    let own = (transfer.address + done as u64) as *mut u8;
    if transfer.sends && !full {
        // SAFETY: an empty mailbox belongs to the sender; the caller keeps the memory until the stream is past this.
        unsafe { mailbox.data.copy_from(own, length) };
        mailbox.total.store(transfer.bytes as u64, Ordering::SeqCst);
        mailbox.sent.fetch_add(1, Ordering::SeqCst);
        return Ok(length);
    }
    if !transfer.sends && full {
        let total = mailbox.total.load(Ordering::SeqCst);
        if total != transfer.bytes as u64 {
            return Err(format!("rank {to} receives {} bytes from rank {from}, which sends {total}", transfer.bytes));
        }
        // SAFETY: a full mailbox belongs to the receiver; the caller keeps the memory until the stream is past this.
        unsafe { mailbox.data.copy_to(own, length) };
        mailbox.received.fetch_add(1, Ordering::SeqCst);
        return Ok(length);
    }
    Ok(0)
}
