//! Zarr, versions 2 and 3, with shards and OME-Zarr.
//!
//! Written here on top of crates for the compressions. The crate `zarrs` would bring 36 packages that nothing else here
//! needs, among them a cache, parts of an asynchronous runtime, and Blosc and Snappy in C and C++; with all that it
//! depends on it takes 145 seconds of a processor to compile in the development profile and 202 in release. Its store
//! also writes chunks in place, and half a chunk looks like a whole one to whoever reads it next.
//!
//! # Layout
//!
//! - `metadata` is what an array says of itself, read and written by `v2` and `v3`; `number` has the JSON of fill values.
//! - `codec` leads from voxels to bytes; `blosc` with `shuffle` is the one codec that is more than a call.
//! - `array` is the volume; `shard` finds chunks inside of files.
//! - `ome` has levels, axes and voxel sizes; `pyramid` computes levels.

mod array;
mod blosc;
mod codec;
mod metadata;
mod number;
mod ome;
mod pyramid;
mod shard;
mod shuffle;
mod v2;
mod v3;

use std::path::{Path, PathBuf};

use array::ZarrArray;
use metadata::{Metadata, read_json};
use serde_json::Value;

use super::{
    Choices, Opened,
    layout::{VolumeLayout, ZarrStyle},
    place::OutputPlace,
};
use crate::VolumeError;

/// Files that make a folder an array or a group.
const MARKS: [&str; 4] = ["zarr.json", ".zarray", ".zgroup", ".zattrs"];

/// Whether a folder is an array or a group.
pub(super) fn recognise(path: &Path) -> bool {
    MARKS.iter().any(|mark| path.join(mark).exists())
}

pub(super) fn open(path: &Path, choices: &Choices) -> Opened {
    let (folder, metadata, layout) = find(path, choices.level)?;
    Ok(Box::new(ZarrArray::new(folder, metadata, layout, None)))
}

pub(super) fn create(place: OutputPlace, layout: VolumeLayout) -> Opened {
    let mut layout = layout.with_some_chunks();
    let name = place.path().to_string_lossy().to_lowercase();
    let usual = |axis: &super::Axis| axis.scale == 1.0 && axis.offset == 0.0 && axis.unit.is_none();
    // The voxel size of other formats has no other place in zarr.
    let ome = name.ends_with(".ome.zarr") || layout.zarr.is_none() && !layout.axes.iter().all(usual);
    let mut style = layout.zarr.unwrap_or_default();
    style.ome = (style.ome || ome) && ome::allows(&layout.axes);
    style.levels = 1;
    ome::strip(&mut layout.attributes);
    let folder = if style.ome { place.unfinished().join("0") } else { place.unfinished().to_owned() };
    let array = match style.ome {
        true => VolumeLayout { attributes: serde_json::Map::new(), ..layout.clone() },
        false => layout.clone(),
    };
    write_json(&place, &folder, Metadata::new(&array, style)?.files())?;
    if style.ome {
        write_json(&place, place.unfinished(), ome::files(style.version, &layout.attributes, &[layout.axes]))?;
    }
    resume(place, &Choices::default())
}

pub(super) fn resume(place: OutputPlace, _choices: &Choices) -> Opened {
    let (folder, metadata, layout) = find(place.unfinished(), 0)?;
    Ok(Box::new(ZarrArray::new(folder, metadata, layout, Some(place))))
}

/// Writes files of JSON into a folder of an output.
fn write_json(place: &OutputPlace, folder: &Path, files: Vec<(&'static str, Value)>) -> Result<(), VolumeError> {
    let write = |(name, json): (&str, Value)| place.write_file(&folder.join(name), format!("{json:#}\n").as_bytes());
    files.into_iter().try_for_each(write)
}

/// The array at this place, or that level of the image there.
fn find(path: &Path, level: usize) -> Result<(PathBuf, Metadata, VolumeLayout), VolumeError> {
    if let Some(metadata) = Metadata::read(path)? {
        let mut layout = metadata.layout();
        let name = path.file_name().and_then(|name| name.to_str());
        if let (Some(name), Some(parent)) = (name, path.parent())
            && let Some(level) = levels(parent)?.iter().flatten().find(|level| level.path == name)
        {
            level.describe(&mut layout);
        }
        return Ok((path.to_owned(), metadata, layout));
    }
    let Some(levels) = levels(path)? else { return Err(nothing_here(path)) };
    let Some(chosen) = levels.get(level) else {
        let problem = format!("this image has no level {level}");
        return Err(VolumeError::format(path, problem, format!("choose one of 0 to {}", levels.len() - 1)));
    };
    let folder = path.join(&chosen.path);
    let Some(metadata) = Metadata::read(&folder)? else {
        return Err(VolumeError::format(&folder, "level of an image without an array", super::DAMAGED));
    };
    let mut layout = metadata.layout();
    chosen.describe(&mut layout);
    layout.attributes = attributes(path)?.and_then(|attributes| attributes.as_object().cloned()).unwrap_or_default();
    ome::strip(&mut layout.attributes);
    let style = layout.zarr.unwrap_or_default();
    layout.zarr = Some(ZarrStyle { ome: true, levels: levels.len() - level, ..style });
    Ok((folder, metadata, layout))
}

/// The attributes of a group.
fn attributes(folder: &Path) -> Result<Option<Value>, VolumeError> {
    match read_json(&folder.join("zarr.json"))? {
        Some(mut group) => Ok(group.get_mut("attributes").map(Value::take)),
        None => read_json(&folder.join(".zattrs")),
    }
}

/// The levels of the image that a group is.
fn levels(folder: &Path) -> Result<Option<Vec<ome::Level>>, VolumeError> {
    Ok(attributes(folder)?.as_ref().and_then(ome::parse))
}

/// Says what could have been meant by a folder without an array.
fn nothing_here(path: &Path) -> VolumeError {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut inside: Vec<String> = entries
        .map(|entry| entry.path())
        .filter(|path| recognise(path))
        .map(|path| path.display().to_string())
        .collect();
    inside.sort();
    match inside.is_empty() {
        true => VolumeError::format(path, "there is no array of zarr here", super::DAMAGED),
        false => {
            let hint = format!("name what is meant, one of {}", inside.join(", "));
            VolumeError::format(path, "this is a group of zarr and neither an array nor an image", hint)
        }
    }
}
