//! Collectives through an MPI library that is found and loaded at run time.
//!
//! Two families of libraries cover what is installed: Open MPI, and MPICH with those that promise its binary interface.
//! They differ in constants and in the width of handles only, so [`raw::Mpi`] is one interface with one implementation
//! and two tables of constants; no header file, compiler wrapper or binding generator is involved.
//!
//! - [`choice`](Choice): which family fits the launcher; [`find`] and [`load`]: the libraries of this machine.
//! - `session`: MPI's start and end in this process.
//! - `core`: how ranks meet before an operation, with deadline, mismatch and absence; `control`: messages alongside.
//! - `moves`, `reduce`, `pair`: the operations.
//!
//! All ranks use one family: a launcher and its library belong together, and a rank with another library would not
//! find its group at all.

mod abi_mpich;
mod abi_open;
mod choice;
mod communicator;
mod control;
mod core;
mod lent;
mod library;
mod members;
mod moves;
mod ordered;
mod pace;
mod pair;
pub mod raw;
mod reduce;
mod session;
mod table;

pub use choice::{Choice, Family};
pub use communicator::MpiCommunicator;
pub use library::{Found, Loaded, find, load};
