//! Volumes larger than any memory, computed tile by tile with the result of the whole.
//!
//! A network sees a bounded neighbourhood of each voxel. A tile that is read with at least that much around it, begins
//! on a multiple of the network's stride and ends where the volume ends gives, inside its core, the bits that the
//! whole volume would give. Everything here serves that: nothing is blended unless somebody asks for it, and no two
//! workers ever write one chunk of the output.
//!
//! The crate knows no framework and no process but its own: a network is a description of its operators, and what
//! computes it is the caller's business.
//!
//! # Layout
//!
//! - [`grid`]: regions of a volume, tiles with core and halo, their cost and their order.
//! - [`reach`]: how far a network looks, from its graph.
//! - [`mod@format`]: volumes in files: zarr, HDF5, npy, raw, TIFF, NIfTI, MRC.
//! - [`ledger`]: which tiles are done, in a file that survives everything.
//! - [`stitch`]: labels of tiles turned into labels of the volume.
//! - [`normalise`]: percentiles, mean and standard deviation of a whole volume.
//! - [`blend`]: overlapping windows, for networks that cannot be exact.
//! - [`checksum`]: of what was written.

pub mod blend;
pub mod checksum;
mod error;
pub mod format;
pub mod grid;
pub mod ledger;
pub mod normalise;
pub mod reach;
pub mod stitch;

pub use error::VolumeError;
pub use grid::region::{Extent, Region};
