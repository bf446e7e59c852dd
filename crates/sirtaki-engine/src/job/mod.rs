//! A process's place in a job, from variables that whoever starts it has set.
//!
//! Nothing here reads the environment: variables come in as a [`Lookup`], which a program makes of its own environment
//! and a test of a table.
//!
//! - [`variables`]: every `SIRTAKI_*` variable, in one table, from which `docs/environment.md` is generated.
//! - [`parse`]: values of all kinds, and what is said about those that cannot be understood.
//! - [`settings`]: the choices about communication and engine that variables make.
//! - [`discover`]: the place that they give.

mod error;
pub mod parse;
mod place;
pub mod settings;
pub mod variables;

pub use error::JobError;
pub use parse::Lookup;
pub use place::{Meeting, Place, Position, discover};
