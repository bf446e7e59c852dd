//! A network applied to a volume larger than any memory, tile by tile, with the result of the whole.
//!
//! [`sirtaki_volume`] knows what tiles are and how volumes lie in files; a [`Model`] computes. This crate brings them
//! together: it decides on tiles, and any number of processes take them from one ledger, read, compute and write them.
//! Processes need nothing from each other but the folder in which they work, so it makes no difference who started them,
//! on which hosts, or when.
//!
//! # Layout
//!
//! - [`model`]: the trait of models; [`onnx`]: models in ONNX files; [`told`]: those whose graph nobody can read.
//! - [`settings`]: what is asked for; [`decide`]: what is done about it, as a [`Job`]; [`memory`]: what it takes.
//! - [`source`] and `sink`: voxels as the network wants them, and what becomes of its output; `apply` is what is between.
//! - [`gather`]: statistics of the whole input, to scale it by; [`norms`]: those that networks themselves normalise with; `labels`: objects numbered over the whole output.
//! - [`place`]: the folder that all processes of a job share, from its beginning to its end.
//! - [`mod@work`]: one process at work; [`verify`]: random places computed once more. [`function`]: all of it for a network that
//!   is a function of the process.

mod apply;
pub mod decide;
mod error;
pub mod function;
pub mod gather;
pub mod job;
mod labels;
pub mod memory;
pub mod model;
pub mod norms;
pub mod onnx;
pub mod place;
pub mod settings;
mod sink;
pub mod source;
pub mod told;
pub mod verify;
pub mod work;

pub use error::InferError;
pub use job::Job;
pub use model::{Facts, Model, Network};
pub use settings::{Content, Normalise, Settings};
