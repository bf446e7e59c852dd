//! Samples: where they come from, which worker reads which, and reading them ahead of time.
//!
//! ```text
//! files ──► reader ──► Samples ─┐
//!                               ├─► Loader ──► Batch, Batch, …
//!       (seed, epoch) ──► Plan ─┘
//! ```
//!
//! - Readers: [`mnist`], [`cifar`], [`folder`] give [`Samples`]; [`idx`], [`npy`], [`npz`] give an [`Array`]; two
//!   arrays make [`Memory`]. [`table`] reads lines of numbers. [`text`] reads what [`Text`] cuts into sequences;
//!   [`grammar`] makes a text up. [`Pairs`] of volumes are drawn from as [`Patches`]. [`Subset`] splits off a test set.
//! - [`Plan`]: which samples a batch holds, a pure function of its number. [`Partition`] gives every sample once per
//!   epoch over all workers, [`FixedShards`] does so in pieces that do not depend on the number of workers, [`Draws`]
//!   draws at random.
//! - [`Loader`]: threads that make batches ahead, in the order of the plan.
//!
//! Files come from anywhere and are treated as potentially malicious: sizes are compared with the file's
//! length before memory is allocated, labels with the number of classes, and whatever is wrong becomes an error that
//! names the file and the field.

mod array;
pub mod cifar;
mod draws;
pub mod folder;
pub mod grammar;
pub mod idx;
mod loader;
mod memory;
pub mod mnist;
pub mod npy;
pub mod npz;
pub(crate) mod pairs;
mod partition;
mod patches;
mod samples;
mod shards;
mod source;
mod subset;
pub mod table;
pub mod text;

pub use array::{Array, Values};
pub use draws::Draws;
pub use loader::{Ahead, Batch, Loader};
pub use memory::Memory;
pub use pairs::Pairs;
pub use partition::{Partition, Position};
pub use patches::Patches;
pub use samples::{Normalise, Plan, Samples, Split, Worker};
#[cfg(feature = "burn")]
pub(crate) use shards::shards_of;
pub use shards::{FixedShards, Shard};
pub use source::Source;
pub use subset::Subset;
pub use text::Text;
