//! One ordered byte stream to one peer, never blocking.
//!
//! Received bytes are *pushed* to a callback instead of being handed out, so no borrowed buffer outlives a call: shared
//! memory is reduced where it is, and TCP reduces one piece while the kernel receives the next.

mod connect;
pub(crate) mod path;
mod ring;
mod shm;
mod tcp;
mod tls;

use std::{
    io::{self, IoSlice},
    os::fd::BorrowedFd,
};

use crate::shm::Signal;

pub use connect::{connect_links, link_over};
pub use ring::{RingLink, RingSide};
pub use shm::ShmLink;
pub use tcp::TcpLink;
pub use tls::TlsLink;

/// What to sleep on until a link may have something new.
#[derive(Debug, Clone, Copy)]
pub enum Bell<'a> {
    /// Nothing; sleep a little and look again (in-memory links of tests).
    Nothing,
    /// A descriptor for `poll(2)`.
    Descriptor(BorrowedFd<'a>),
    /// A word in shared memory, the same for all shared-memory links of one rank.
    Word(&'a Signal),
}

/// Why a link no longer works.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The peer closed the connection or its process is gone.
    #[error("{0}")]
    Closed(String),
    /// The peer's host does not answer. The peer may be well.
    #[error("{0}")]
    Unreachable(String),
    /// The system reported an error.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A byte stream to one peer.
pub trait Link: Send {
    /// Queues as many bytes of `parts` as fit now, in order, and returns how many; 0 means full.
    fn push(&mut self, parts: &[IoSlice<'_>]) -> Result<usize, LinkError>;

    /// Shows at most `limit` arrived bytes to `sink`, in order and in one or more pieces, and returns how many; 0 means
    /// nothing yet.
    fn pull(&mut self, limit: usize, sink: &mut dyn FnMut(&[u8])) -> Result<usize, LinkError>;

    /// Moves arrived bytes into `into` from its beginning and returns how many; 0 means nothing yet.
    fn fill(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        let mut at = 0;
        self.pull(into.len(), &mut |piece| {
            into[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        })
    }

    /// What to sleep on.
    fn bell(&self) -> Bell<'_> {
        Bell::Nothing
    }

    /// Whether the bell also shows that there is room to write again; otherwise a descriptor becomes writable then.
    fn rings_for_room(&self) -> bool {
        false
    }

    /// An error if the peer is known to be gone, even when bytes it sent before are still unread.
    fn check(&mut self) -> Result<(), LinkError> {
        Ok(())
    }

    /// Nothing more will be pushed. Once the peer has read everything pushed before, its reads give
    /// [`LinkError::Closed`]. Reading continues. Without this call a peer that is waiting for the rest of a payload
    /// hears of a failure only when the link is dropped.
    fn close(&mut self) {}
}
