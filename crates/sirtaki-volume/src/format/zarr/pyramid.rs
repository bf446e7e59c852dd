//! Coarser levels of an image, each half as fine as the one before along the axes of space.
//!
//! Computed piece by piece from the level before, when that is complete. The image names a level only when all of it is
//! written.

use half::f16;

use super::{array::ZarrArray, metadata::Metadata, ome, write_json};
use crate::{
    Extent, Region, VolumeError,
    format::{
        Coarsen, Volume,
        dtype::Dtype,
        layout::{Axis, AxisKind, Layout, ZarrStyle},
        place::Place,
        window::{copy_shared, each_position, try_each_cell},
    },
};

/// Adds levels to an image until it has so many, or until one is a single chunk.
pub(super) fn add(finest: &ZarrArray, place: &Place, levels: usize, how: Coarsen) -> Result<(), VolumeError> {
    let root = place.unfinished();
    let mut axes = vec![finest.layout().axes.clone()];
    let style = ZarrStyle { ome: true, ..finest.layout().zarr.unwrap_or_default() };
    let mut coarser: Option<ZarrArray> = None;
    while axes.len() < levels {
        let source = coarser.as_ref().unwrap_or(finest);
        let Some((layout, factors)) = halved(source.layout())? else { break };
        let folder = root.join(axes.len().to_string());
        let metadata = Metadata::new(&Layout { attributes: serde_json::Map::new(), ..layout.clone() }, style)?;
        write_json(&folder, metadata.files())?;
        axes.push(layout.axes.clone());
        let target = ZarrArray::new(folder, metadata, layout, Some(place.clone()));
        fill(source, &target, &factors, how)?;
        coarser = Some(target);
    }
    write_json(root, ome::files(style.version, &finest.layout().attributes, &axes))
}

/// The next level, and by how much each axis is divided; nothing if a chunk holds all of it already.
fn halved(layout: &Layout) -> Result<Option<(Layout, Vec<u64>)>, VolumeError> {
    let chunk = layout.chunk.as_ref().unwrap_or(&layout.shape).sizes();
    let sizes = layout.shape.sizes();
    let space = |axis: usize| layout.axes[axis].kind == AxisKind::Space;
    if (0..sizes.len()).filter(|axis| space(*axis)).all(|axis| sizes[axis] <= chunk[axis]) {
        return Ok(None);
    }
    let factors: Vec<u64> = (0..sizes.len()).map(|axis| if space(axis) && sizes[axis] > 1 { 2 } else { 1 }).collect();
    let shape =
        Extent::new(sizes.iter().zip(&factors).map(|(size, factor)| size.div_ceil(*factor)).collect::<Vec<_>>())?;
    let coarser = |(axis, factor): (&Axis, &u64)| {
        // The first voxel's centre is in the middle of those that it comes from.
        let offset = axis.offset + axis.scale * (*factor as f64 - 1.0) / 2.0;
        Axis { scale: axis.scale * *factor as f64, offset, ..axis.clone() }
    };
    let axes = layout.axes.iter().zip(&factors).map(coarser).collect();
    Ok(Some((Layout { shape, axes, ..layout.clone() }, factors)))
}

/// Computes all of a level. Memory is needed for one unit of it and for what one of its chunks comes from.
fn fill(source: &dyn Volume, target: &dyn Volume, factors: &[u64], how: Coarsen) -> Result<(), VolumeError> {
    let layout = target.layout();
    let (dtype, width) = (layout.dtype, layout.dtype.size());
    let chunk = layout.chunk.as_ref().unwrap_or(&layout.shape).sizes();
    let scaled = |place: &[u64]| place.iter().zip(factors).map(|(at, factor)| at * factor).collect::<Vec<_>>();
    try_each_cell(&Region::whole(&layout.shape), &layout.unit(), |_, unit| {
        let mut bytes = vec![0; unit.voxels() as usize * width];
        try_each_cell(unit, chunk, |_, piece| {
            let fine = Region::between(&scaled(piece.start()), &scaled(&piece.end()));
            let fine = fine.intersection(&Region::whole(&source.layout().shape));
            let mut voxels = vec![0; fine.voxels() as usize * width];
            source.read(&fine, &mut voxels)?;
            let coarse = reduce(&voxels, fine.size(), piece.size(), factors, (dtype, how));
            copy_shared(piece, width, (&coarse, piece), (&mut bytes, unit));
            Ok::<_, VolumeError>(())
        })?;
        target.write(unit, &bytes)
    })
}

/// One voxel of the result for those that it comes from.
fn reduce(voxels: &[u8], fine: &[u64], coarse: &[u64], factors: &[u64], (dtype, how): (Dtype, Coarsen)) -> Vec<u8> {
    let width = dtype.size();
    let mut out = Vec::with_capacity(coarse.iter().product::<u64>() as usize * width);
    let place =
        |position: &[u64]| position.iter().zip(fine).fold(0, |at, (position, size)| at * size + position) as usize;
    let voxel = |position: &[u64]| &voxels[place(position) * width..][..width];
    each_position(coarse, |position| {
        let first: Vec<u64> = position.iter().zip(factors).map(|(at, factor)| at * factor).collect();
        if how == Coarsen::First {
            return out.extend_from_slice(voxel(&first));
        }
        let there: Vec<u64> = (0..first.len()).map(|axis| factors[axis].min(fine[axis] - first[axis])).collect();
        let mut sum = 0.0;
        each_position(&there, |offset| {
            let at: Vec<u64> = first.iter().zip(offset).map(|(first, offset)| first + offset).collect();
            sum += value(voxel(&at), dtype);
        });
        write_value(sum / there.iter().product::<u64>() as f64, dtype, &mut out);
    });
    out
}

/// Eight bytes that start with those of a voxel.
fn wide(bytes: &[u8]) -> [u8; 8] {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    wide
}

fn value(bytes: &[u8], dtype: Dtype) -> f64 {
    let wide = wide(bytes);
    let [a, b, c, d, ..] = wide;
    match dtype {
        Dtype::Bool | Dtype::UInt8 => f64::from(a),
        Dtype::Int8 => f64::from(a as i8),
        Dtype::Int16 => f64::from(i16::from_ne_bytes([a, b])),
        Dtype::Int32 => f64::from(i32::from_ne_bytes([a, b, c, d])),
        Dtype::Int64 => i64::from_ne_bytes(wide) as f64,
        Dtype::UInt16 => f64::from(u16::from_ne_bytes([a, b])),
        Dtype::UInt32 => f64::from(u32::from_ne_bytes([a, b, c, d])),
        Dtype::UInt64 => u64::from_ne_bytes(wide) as f64,
        Dtype::Float16 => f16::from_ne_bytes([a, b]).to_f64(),
        Dtype::Float32 => f64::from(f32::from_ne_bytes([a, b, c, d])),
        Dtype::Float64 => f64::from_ne_bytes(wide),
    }
}

fn write_value(value: f64, dtype: Dtype, out: &mut Vec<u8>) {
    let whole = value.round();
    match dtype {
        Dtype::Bool | Dtype::UInt8 => out.push(whole as u8),
        Dtype::Int8 => out.extend((whole as i8).to_ne_bytes()),
        Dtype::Int16 => out.extend((whole as i16).to_ne_bytes()),
        Dtype::Int32 => out.extend((whole as i32).to_ne_bytes()),
        Dtype::Int64 => out.extend((whole as i64).to_ne_bytes()),
        Dtype::UInt16 => out.extend((whole as u16).to_ne_bytes()),
        Dtype::UInt32 => out.extend((whole as u32).to_ne_bytes()),
        Dtype::UInt64 => out.extend((whole as u64).to_ne_bytes()),
        Dtype::Float16 => out.extend(f16::from_f64(value).to_ne_bytes()),
        Dtype::Float32 => out.extend((value as f32).to_ne_bytes()),
        Dtype::Float64 => out.extend(value.to_ne_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn voxels_become_their_mean_or_the_first() {
        let voxels = [1, 2, 3, 5, 6, 7];
        let mean = reduce(&voxels, &[2, 3], &[1, 2], &[2, 2], (Dtype::UInt8, Coarsen::Mean));
        assert_eq!(mean, [4, 5]);
        let first = reduce(&voxels, &[2, 3], &[1, 2], &[2, 2], (Dtype::UInt8, Coarsen::First));
        assert_eq!(first, [1, 3]);
    }
}
