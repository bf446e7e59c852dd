//! Stacks in TIFF, BigTIFF and OME-TIFF files.
//!
//! Directories are read here, without a library, because a volume needs what libraries for images do not offer: any
//! number of threads that read pieces of any page at once, one read for each, and files without compression as if they
//! were plain arrays. What is written has one page for the last two axes, in OME-XML where that has names for the rest.
//!
//! # Layout
//!
//! - `ifd` reads pages, `piece` their strips and tiles, `describe` the order of axes; `stack` is the volume.
//! - `pages` writes directories; `staged` is a new file with compression. One without is a flat file from the start.

mod describe;
mod ifd;
mod pages;
mod piece;
mod stack;
mod staged;

use std::path::Path;

pub(super) use ifd::recognise;
use pages::PagePlan;
use stack::{Examined, examine};
use staged::StagedTiff;

use super::{
    Choices, Dtype, Opened, Volume,
    flat::Flat,
    layout::{Compression, VolumeLayout},
    place::OutputPlace,
};
use crate::VolumeError;

pub(super) fn open(path: &Path, _choices: &Choices) -> Opened {
    Ok(match examine(path)? {
        Examined::Flat(layout, arrangement) => Box::new(Flat::open(path, layout, arrangement)?),
        Examined::Stack(stack) => Box::new(stack),
    })
}

pub(super) fn create(place: OutputPlace, layout: VolumeLayout) -> Opened {
    // TIFF has no truth values of a byte each.
    let layout = if layout.dtype == Dtype::Bool { layout.with_dtype(Dtype::UInt8) } else { layout };
    let fill = vec![0; layout.dtype.size()];
    let layout = VolumeLayout { shard: None, checksum: false, fill, ..layout };
    if layout.compression != Compression::None {
        return Ok(Box::new(StagedTiff::create(place, layout)?));
    }
    let plan = PagePlan::new(&layout).ok_or_else(|| too_few_axes(place.path()))?;
    if plan.width.max(plan.height) > u64::from(u32::MAX) || plan.samples > u64::from(u16::MAX) {
        return Err(VolumeError::format(place.path(), "an axis is too long for TIFF", "choose zarr"));
    }
    let big = plan.is_big(layout.bytes());
    let head = plan.header(big, 0).len() as u64;
    let end = head.saturating_add(layout.bytes());
    // Directories begin at an even place.
    let gap = end % 2;
    let page = layout.bytes() / plan.pages;
    let mut behind = vec![0; gap as usize];
    behind.extend(plan.directories(big, end + gap, |number, _| (head + number * page, page)));
    let layout = VolumeLayout { chunk: None, ..layout };
    Ok(Box::new(Flat::create(place, layout, &plan.header(big, end + gap), &behind)?))
}

/// What one writer of a new file must write as a whole.
pub(super) fn unit(place: OutputPlace, layout: VolumeLayout) -> Result<Vec<u64>, VolumeError> {
    match layout.compression {
        Compression::None => Ok(vec![1; layout.shape.axes()]),
        _ => Ok(StagedTiff::new(place, VolumeLayout { shard: None, ..layout })?.layout().unit()),
    }
}

pub(super) fn resume(place: OutputPlace, _choices: &Choices) -> Opened {
    if place.unfinished().is_dir() {
        return Ok(Box::new(StagedTiff::resume(place)?));
    }
    match examine(place.unfinished())? {
        Examined::Flat(layout, arrangement) => Ok(Box::new(Flat::resume(place, layout, arrangement)?)),
        Examined::Stack(_) => Err(VolumeError::format(place.unfinished(), "this was not begun here", super::DAMAGED)),
    }
}

fn too_few_axes(path: &Path) -> VolumeError {
    VolumeError::format(path, "a volume needs two axes or more to be written as pages", "choose zarr or npy")
}
