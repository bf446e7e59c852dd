//! How ranks find each other: a small key/value store, and what is built on it.
//!
//! - [`Store`] and its three kinds: [`MemoryStore`] for threads, [`FileStore`] for a shared directory, [`TcpStore`].
//! - [`Exchange`]: every rank says something, every rank hears all.
//! - [`this_member`]: what a process tells the others about itself.
//! - [`connect`]: all of it, from rank, size and store to a communicator; [`connect_over_mpi`]: the same without a store.
//! - [`choose_network`]: which of a host's addresses the others should call.

mod assemble;
mod file;
mod host;
mod interface;
mod memory;
mod network;
mod parent;
mod probe;
mod sharing;
mod store;
mod tcp;
pub mod wire;

pub use assemble::{Connected, connect, connect_over_mpi, connect_with_report, introduce};
pub use file::{FileStore, not_private};
pub use host::this_member;
pub use interface::{Candidate, candidates, select};
pub use memory::MemoryStore;
pub use network::{Network, choose_network, measure_network};
pub use parent::split_with;
pub(crate) use sharing::obstacle;
pub use store::{Exchange, Store, StoreExchange};
pub use tcp::{TcpStore, TcpStoreServer};

#[cfg(test)]
mod tests;
