//! Voxels and nothing else: shape and type, and a header to be skipped, must be told.

use std::path::Path;

use super::{
    Choices, Opened,
    flat::{Arrangement, Flat},
    layout::{Compression, VolumeLayout},
    place::OutputPlace,
};
use crate::{Extent, VolumeError};

pub(super) fn open(path: &Path, choices: &Choices) -> Opened {
    let (layout, arrangement) = told(path, choices)?;
    let needed = arrangement.offset.saturating_add(layout.bytes());
    let length = path.metadata().map_err(VolumeError::io(path))?.len();
    if length != needed {
        let VolumeLayout { shape, dtype, .. } = &layout;
        let problem = format!("{length} bytes, but {shape} voxels of {dtype} end at byte {needed}");
        return Err(VolumeError::format(path, problem, "look whether shape, type and offset are right"));
    }
    Ok(Box::new(Flat::open(path, layout, arrangement)?))
}

pub(super) fn create(place: OutputPlace, layout: VolumeLayout) -> Opened {
    let layout = VolumeLayout { chunk: None, shard: None, compression: Compression::None, checksum: false, ..layout };
    Ok(Box::new(Flat::create(place, layout, &[], &[])?))
}

pub(super) fn resume(place: OutputPlace, choices: &Choices) -> Opened {
    let (layout, arrangement) = told(place.path(), choices)?;
    Ok(Box::new(Flat::resume(place, layout, arrangement)?))
}

fn told(path: &Path, choices: &Choices) -> Result<(VolumeLayout, Arrangement), VolumeError> {
    let (Some(shape), Some(dtype)) = (&choices.shape, choices.dtype) else {
        let hint = "give its shape and type, as in `512,1024,1024` and `uint16`";
        return Err(VolumeError::format(path, "a raw file does not say what is in it", hint));
    };
    let arrangement = Arrangement { offset: choices.offset, big_endian: choices.big_endian, first_fastest: false };
    Ok((VolumeLayout::new(Extent::new(shape.clone())?, dtype), arrangement))
}
