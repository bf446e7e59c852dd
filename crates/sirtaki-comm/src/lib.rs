//! Collectives between processes: shared memory, TCP, MPI and GPUs, with errors that name the rank.
//!
//! # Layout
//!
//! Bottom up:
//! - [`dtype`](DType), [`slice`](Slice), [`reduction`](Reduction), [`kernel`]: elements and their arithmetic.
//! - [`group`](Group), [`signature`], [`error`](CommError), [`settings`](Settings), [`stop`](Stopper): the vocabulary
//!   that all parts share.
//! - [`sum_tree`]: the order in which parts of a sum are added, whoever has them.
//! - `library`: loading MPI, the CUDA driver and NCCL at run time.
//! - [`shm`]: memory between the processes of one host, and sleeping on it.
//! - [`secure`]: the job's secret, the proof of knowing it, TLS.
//! - [`link`]: one ordered byte stream to one peer.
//! - [`mesh`]: all links of a group; deadlines, alarms and mismatches, written once for all links.
//! - [`collective`]: the algorithms, as functions, and the rule that picks one.
//! - [`device`]: memory of GPUs and collectives in it, through libraries that are found at run time.
//! - [`communicator`]: the trait users see and its back ends.
//! - [`rendezvous`]: how ranks find each other and agree on a back end.

mod buffer;
pub mod collective;
pub mod communicator;
pub mod device;
mod dtype;
mod error;
mod group;
pub mod kernel;
mod library;
pub mod link;
pub mod mesh;
mod reduction;
pub mod rendezvous;
pub mod secure;
mod settings;
pub mod shm;
pub mod signature;
mod slice;
mod stop;
pub mod sum_tree;

pub use buffer::Buffer;
pub use communicator::Communicator;
pub use dtype::{DType, Element};
pub use error::{Alarm, CommError};
pub use group::{Group, Member, Rank};
pub use reduction::{Plan, ReduceOp, Reduction};
pub use settings::{STANDSTILL, Settings};
pub use slice::{Slice, SliceMut};
pub use stop::Stopper;
