//! What servers, workers and the head decide, without sockets and clocks: messages in, messages out.
//!
//! - [`ring`]: which server has which block.
//! - [`view`]: who takes part, in numbered views, and the head that numbers them.
//! - [`clock`]: how far each worker is, and who may go on.
//! - [`table`]: tables of rows, cut into blocks.
//! - [`message`]: everything that is said.
//! - [`block`]: the contents of a block, and how pushes change it; `sums`: gradients added along one tree.
//! - [`core`]: a server; `change`: how it gets from one view to the next.
//! - [`client`]: a worker's side.

pub mod block;
mod change;
pub mod client;
pub mod clock;
pub mod core;
pub mod message;
pub mod ring;
#[cfg(test)]
mod simulation;
mod sums;
pub mod table;
pub mod view;

/// A member of a service: the head, a server or a worker. Numbers are never used twice.
pub type Id = u32;

/// The head.
pub const HEAD: Id = 0;
