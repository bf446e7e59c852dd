//! A process's place in a job, and taking it.
//!
//! ```text
//! variables → discover → connect → join
//! ```
//!
//! Nothing here reads the environment: variables come in as a [`Lookup`], which a program makes from its own
//! environment and a test from a table.
//!
//! - [`variables`]: every `SIRTAKI_*` variable, in one table, from which `docs/environment.md` is generated.
//! - [`parse`], [`settings`]: values, and the settings for communication and engine that they make.
//! - [`discover`] with `starter`: the place that `sirtaki run`, `mpirun`, `srun` or `torchrun` gave.
//! - [`Job`] with `folder`: from a place to a [`World`] with a running engine.
//! - [`JobServers`]: servers beside the ranks.
//! - [`RoundMember`] with `rounds`: the same for a process of an elastic job, which joins one round after the other.

mod ending;
mod error;
mod folder;
mod join;
mod member;
pub mod parse;
mod place;
mod rounds;
mod servers;
pub mod settings;
mod starter;
mod variable_names;
pub mod variables;

pub use ending::{ending, exit_key};
pub use error::JobError;
pub use join::{Job, Met, World};
pub use member::RoundMember;
pub use parse::Lookup;
pub use place::{Meeting, Place, Position, discover};
pub use rounds::{Call, LISTENED, RoundAnswer, answer_key, change_key, round_prefix, void_key};
pub use servers::{JobServers, count as server_count, is_server};
