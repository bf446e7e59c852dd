//! Checkpoints: tensors by name and a manifest, on disk completely or not at all.
//!
//! ```text
//! checkpoints/
//!   checkpoint-000007/
//!     manifest.json          what it is, where training was
//!     tensors.safetensors    all tensors by name
//!     SHA256SUMS             of both; `sha256sum -c SHA256SUMS` checks them too
//!   checkpoint-000008/
//! ```
//!
//! A checkpoint is written into a hidden folder, forced to the disk, and only then given its name, which is an atomic
//! operation of the file system. A crash at any time therefore leaves all earlier checkpoints as they were, and at
//! worst a hidden folder that the next [`save`] removes. Numbers only grow and a name is never used again, so nothing
//! is ever overwritten. What cannot be read, does not belong here or comes from a newer version is refused with the
//! reason and never removed. Rejected: a single file, which could not hold its own checksum and remain a safetensors
//! file.

mod disk;
mod load;
mod manifest;
mod save;
mod tensors;

pub(crate) use load::hex;
pub use load::{Checkpoint, Found, load, newest};
pub use manifest::Manifest;
pub use save::save;
#[cfg(feature = "burn")]
pub(crate) use save::save_made;
#[cfg(feature = "burn")]
pub(crate) use tensors::Content;
pub use tensors::{Description, Dtype, Tensor};

const MANIFEST: &str = "manifest.json";
const TENSORS: &str = "tensors.safetensors";
const SUMS: &str = "SHA256SUMS";

/// What to do about a checkpoint that cannot be used.
const DAMAGED: &str = "continue from another checkpoint; this one is left as it is";

#[cfg(test)]
mod tests;
