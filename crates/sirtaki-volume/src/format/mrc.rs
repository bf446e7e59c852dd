//! MRC files of electron microscopy, as of 2014: 1024 bytes of header, maybe more for a symmetry, voxels.

use std::{fs::File, path::Path};

use serde_json::json;

use super::{
    Choices, DAMAGED, Opened,
    dtype::Dtype,
    flat::{Arrangement, Flat},
    layout::{Axis, Compression, VolumeLayout},
    place::OutputPlace,
};
use crate::{Extent, VolumeError};

const HEADER: usize = 1024;
const MODES: [(i32, Dtype); 5] =
    [(0, Dtype::Int8), (1, Dtype::Int16), (2, Dtype::Float32), (6, Dtype::UInt16), (12, Dtype::Float16)];
/// The space group of a stack of volumes.
const VOLUMES: i32 = 401;

/// Whether a file starts like an MRC file.
pub(super) fn recognise(head: &[u8]) -> bool {
    head.get(208..212) == Some(b"MAP ")
}

pub(super) fn open(path: &Path, _choices: &Choices) -> Opened {
    let (layout, arrangement) = examine(path)?;
    Ok(Box::new(Flat::open(path, layout, arrangement)?))
}

pub(super) fn resume(place: OutputPlace, _choices: &Choices) -> Opened {
    let (layout, arrangement) = examine(place.unfinished())?;
    Ok(Box::new(Flat::resume(place, layout, arrangement)?))
}

pub(super) fn create(place: OutputPlace, layout: VolumeLayout) -> Opened {
    let header = describe(&layout, place.path())?;
    let fill = vec![0; layout.dtype.size()];
    let layout =
        VolumeLayout { chunk: None, shard: None, compression: Compression::None, checksum: false, fill, ..layout };
    Ok(Box::new(Flat::create(place, layout, &header, &[])?))
}

fn examine(path: &Path) -> Result<(VolumeLayout, Arrangement), VolumeError> {
    let refuse = |problem: String| VolumeError::format(path, problem, DAMAGED);
    let file = File::open(path).map_err(VolumeError::io(path))?;
    let mut header = [0; HEADER];
    let read = super::read_up_to(&file, &mut header, 0).map_err(VolumeError::io(path))?;
    if read < HEADER || !recognise(&header) {
        return Err(refuse("this is not an MRC file of 2014 or later".to_owned()));
    }
    let big_endian = header[212] == 0x11;
    let word = |number: usize| {
        let bytes = [0, 1, 2, 3].map(|byte| header[4 * number + byte]);
        if big_endian { i32::from_be_bytes(bytes) } else { i32::from_le_bytes(bytes) }
    };
    let float = |number: usize| f64::from(f32::from_bits(word(number) as u32));
    let mode = word(3);
    let Some((_, dtype)) = MODES.iter().find(|(known, _)| *known == mode) else {
        return Err(super::unknown_dtype(path, &format!("MRC mode {mode}")));
    };
    let order = [word(16), word(17), word(18)];
    if order != [1, 2, 3] && order != [0, 0, 0] {
        let hint = "save it with columns along x, rows along y and sections along z";
        return Err(VolumeError::format(path, format!("its axes have the order {order:?}"), hint));
    }
    let size = |number: usize| u64::try_from(word(number)).unwrap_or(0);
    let (z, per_volume) = (size(2), size(9));
    let mut shape = vec![z, size(1), size(0)];
    if word(22) >= VOLUMES && per_volume > 0 && z % per_volume == 0 {
        shape = vec![z / per_volume, per_volume, size(1), size(0)];
    }
    let mut layout = VolumeLayout::new(Extent::new(shape).map_err(|error| refuse(error.to_string()))?, *dtype);
    let space = layout.axes.len() - 3;
    for (axis, known) in layout.axes[space..].iter_mut().rev().enumerate() {
        let (intervals, cell) = (word(7 + axis), float(10 + axis));
        if intervals > 0 && cell > 0.0 {
            known.scale = cell / f64::from(intervals);
            known.unit = Some("angstrom".to_owned());
            known.offset = float(49 + axis);
        }
    }
    if space > 0 {
        layout.axes[0] = Axis::named("t");
    }
    layout.attributes.insert("space_group".to_owned(), json!(word(22)));
    let offset = HEADER as u64 + size(23);
    Ok((layout, Arrangement { offset, big_endian, first_fastest: false }))
}

fn describe(layout: &VolumeLayout, path: &Path) -> Result<Vec<u8>, VolumeError> {
    let Some((mode, _)) = MODES.iter().find(|(_, dtype)| *dtype == layout.dtype) else {
        let hint = "write zarr, or voxels of int8, int16, uint16, float16 or float32";
        return Err(VolumeError::format(path, format!("MRC has no voxels of {}", layout.dtype), hint));
    };
    let sizes = layout.shape.sizes();
    let too_large = || VolumeError::format(path, format!("MRC has no volumes of {}", layout.shape), "write zarr");
    let sizes: Vec<i32> =
        sizes.iter().map(|size| i32::try_from(*size)).collect::<Result<_, _>>().map_err(|_| too_large())?;
    let (volumes, z, y, x) = match sizes[..] {
        [y, x] => (1, 1, y, x),
        [z, y, x] => (1, z, y, x),
        [volumes, z, y, x] => (volumes, z, y, x),
        _ => return Err(too_large()),
    };
    let sections = z.checked_mul(volumes).ok_or_else(too_large)?;
    let mut header = vec![0; HEADER];
    let mut put = |number: usize, bytes: [u8; 4]| header[4 * number..4 * number + 4].copy_from_slice(&bytes);
    let space_group = if sizes.len() == 4 { VOLUMES } else { i32::from(z > 1) };
    let words = [
        (0, x),
        (1, y),
        (2, sections),
        (3, *mode),
        (7, x),
        (8, y),
        (9, z),
        (16, 1),
        (17, 2),
        (18, 3),
        (22, space_group),
    ];
    words.into_iter().for_each(|(number, value)| put(number, value.to_le_bytes()));
    for (axis, (known, size)) in layout.axes.iter().rev().zip([x, y, z]).enumerate() {
        // Lengths are in angstrom, whatever they are elsewhere.
        let angstroms = match known.unit.as_deref() {
            Some("nanometer") => 10.0,
            Some("micrometer") => 1e4,
            Some("millimeter") => 1e7,
            _ => 1.0,
        };
        put(10 + axis, ((known.scale * angstroms * f64::from(size)) as f32).to_le_bytes());
        put(49 + axis, ((known.offset * angstroms) as f32).to_le_bytes());
    }
    (13..16).for_each(|angle| put(angle, 90_f32.to_le_bytes()));
    // Statistics that contradict each other say that they were not computed.
    [(19, 0.0_f32), (20, -1.0), (21, -2.0), (54, -1.0)]
        .into_iter()
        .for_each(|(number, value)| put(number, value.to_le_bytes()));
    put(27, 20141_i32.to_le_bytes());
    put(52, *b"MAP ");
    put(53, [0x44, 0x44, 0, 0]);
    Ok(header)
}
