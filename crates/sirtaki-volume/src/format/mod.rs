//! Volumes in files and folders, behind one trait.
//!
//! A volume is read by regions and written by whole units, which are chunks or shards where a format has them, so that
//! no two writers ever touch the same one. Everything takes `&self` and keeps no position, so that any number of
//! threads read and write at once.
//!
//! An output grows under a name of its own and takes its final one in [`Volume::finish`]; until then [`resume`] finds
//! it, in this process or another. Files are made from the [`VolumeLayout`] of another volume, so that chunks, compression,
//! voxel size and axes are kept where the format has a place for them.
//!
//! Voxels are rows of bytes with the last axis fastest, in this machine's order. Whether they are numbers that a network
//! should see is not decided here.
//!
//! What files say is not believed: sizes are checked against the length of the file before memory is used for them, and
//! what is damaged is an error with the name of the file and the place in the volume.
//!
//! # Layout
//!
//! - `registry`: the list of formats, by names and first bytes.
//! - `zarr`, `hdf5`, `npy`, `raw`, `tiff`, `mrc`, `nifti`: one format each.
//! - `flat`: what all files have in common that hold their voxels in order.
//! - `place`: the two names of an output. `window`: boxes inside boxes.

mod dtype;
mod flat;
mod hdf5;
mod layout;
mod mrc;
mod nifti;
mod npy;
mod place;
mod raw;
mod registry;
mod tiff;
mod value;
mod window;
mod zarr;
mod zlib;

use std::{fmt::Debug, fs::File, io, os::unix::fs::FileExt, path::Path};

use serde::{Deserialize, Serialize};

pub use dtype::Dtype;
pub use hdf5::{FindPackage, Hdf5Candidates, hdf5_from, hdf5_library};
pub use layout::{Axis, AxisKind, Blosc, BloscInner, Compression, Shuffle, VolumeLayout, ZarrStyle};
pub use place::Existing;
pub use registry::{create, file_of, is_begun, is_hdf5, names, open, resume, unit};

use crate::{Region, VolumeError};

/// What to do about a file that is shorter than it says.
const TRUNCATED: &str = "it was cut short, by a full disk or a copy that ended early; copy or make it again";
/// What to do about a file that makes no sense.
const DAMAGED: &str = "it is damaged or of another kind; make it again, or look whether it is the right file";

/// A volume in a file or folder.
pub trait Volume: Debug + Send + Sync {
    /// What is known about it besides its voxels.
    fn layout(&self) -> &VolumeLayout;

    /// Reads a region, which must lie in the volume, into memory of exactly its size.
    fn read(&self, region: &Region, out: &mut [u8]) -> Result<(), VolumeError>;

    /// Writes a region that consists of whole units, see [`VolumeLayout::unit`]; those at the end of an axis are as short as
    /// the volume makes them. A unit that could not be written whole is not written at all, except in files without
    /// units.
    fn write(&self, region: &Region, bytes: &[u8]) -> Result<(), VolumeError>;

    /// What whoever opened it should know about how it was understood.
    fn note(&self) -> Option<&str> {
        None
    }

    /// Adds coarser levels to an output whose voxels are all written, until it has so many or one is a single chunk.
    /// Formats without levels leave it as it is.
    fn add_levels(&self, levels: usize, how: Coarsen) -> Result<(), VolumeError> {
        let _ = (levels, how);
        Ok(())
    }

    /// Gives an output its own name, once everything is written. One process of those that write it calls this, and
    /// nothing is read or written through any of their values afterwards.
    fn finish(&self) -> Result<(), VolumeError>;
}

/// What opening a volume gives.
type Opened = Result<Box<dyn Volume>, VolumeError>;

/// How several voxels become one of a coarser level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coarsen {
    /// Their mean, for intensities.
    Mean,
    /// The first of them, for labels.
    First,
}

/// What files do not say themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Choices {
    /// The shape of a raw file.
    pub shape: Option<Vec<u64>>,
    /// The type of a raw file.
    pub dtype: Option<Dtype>,
    /// Whether a raw file is big endian.
    pub big_endian: bool,
    /// Bytes before the voxels of a raw file.
    pub offset: u64,
    /// The level of an image that has several, from the finest one, 0.
    pub level: usize,
}

/// Whether a region lies in a volume and memory has its size.
fn check_region(layout: &VolumeLayout, region: &Region, bytes: usize) -> Result<(), VolumeError> {
    if !region.is_within(&layout.shape) {
        return Err(VolumeError::Invalid(format!("{region} does not lie in a volume of {}", layout.shape)));
    }
    let needed = region.voxels().checked_mul(layout.dtype.size() as u64);
    match needed == Some(bytes as u64) {
        true => Ok(()),
        false => {
            let dtype = layout.dtype;
            Err(VolumeError::Invalid(format!("{region} of {dtype} does not fit {bytes} bytes of memory exactly")))
        }
    }
}

/// Whether a region that is to be written consists of whole units.
fn check_units(layout: &VolumeLayout, region: &Region) -> Result<(), VolumeError> {
    let unit = layout.unit();
    let whole = (0..region.axes()).all(|axis| {
        let (start, end) = (region.start()[axis], region.end()[axis]);
        start % unit[axis] == 0 && (end % unit[axis] == 0 || end == layout.shape.sizes()[axis])
    });
    match whole {
        true => Ok(()),
        false => Err(VolumeError::Invalid(format!("{region} does not consist of whole chunks or shards of {unit:?}"))),
    }
}

fn read_only(path: &Path) -> VolumeError {
    VolumeError::format(path, "this volume was opened for reading", "create it, or resume it, to write")
}

fn unknown_dtype(path: &Path, name: &str) -> VolumeError {
    let known = Dtype::ALL.map(Dtype::name).join(", ");
    VolumeError::format(
        path,
        format!("voxels of type {name:?} cannot be used"),
        format!("convert them to one of {known}"),
    )
}

/// Reads until memory is full or the file ends.
fn read_up_to(file: &File, out: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < out.len() {
        match file.read_at(&mut out[done..], at + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
