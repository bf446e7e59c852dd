//! Coarser levels of an image, each half as fine as the one before along the axes of space.
//!
//! Computed piece by piece from the level before, when that is complete. The image names a level only when all of it is
//! written.

use super::{array::ZarrArray, metadata::Metadata, ome, write_json};
use crate::{
    Extent, Region, VolumeError,
    format::{
        Coarsen, Volume,
        dtype::Dtype,
        layout::{Axis, AxisKind, VolumeLayout, ZarrStyle},
        place::OutputPlace,
        value::{push_value, value},
        window::{copy_shared, each_position, try_each_cell},
    },
};

/// Adds levels to an image until it has so many, or until one is a single chunk.
pub(super) fn add(finest: &ZarrArray, place: &OutputPlace, levels: usize, how: Coarsen) -> Result<(), VolumeError> {
    let root = place.unfinished();
    let mut axes = vec![finest.layout().axes.clone()];
    let style = ZarrStyle { ome: true, ..finest.layout().zarr.unwrap_or_default() };
    let mut coarser: Option<ZarrArray> = None;
    while axes.len() < levels {
        let source = coarser.as_ref().unwrap_or(finest);
        let Some((layout, factors)) = halved(source.layout())? else { break };
        let folder = root.join(axes.len().to_string());
        let metadata = Metadata::new(&VolumeLayout { attributes: serde_json::Map::new(), ..layout.clone() }, style)?;
        write_json(place, &folder, metadata.files())?;
        axes.push(layout.axes.clone());
        let target = ZarrArray::new(folder, metadata, layout, Some(place.clone()));
        fill(source, &target, &factors, how)?;
        coarser = Some(target);
    }
    write_json(place, root, ome::files(style.version, &finest.layout().attributes, &axes))
}

/// The next level, and by how much each axis is divided; nothing if a chunk holds all of it already.
fn halved(layout: &VolumeLayout) -> Result<Option<(VolumeLayout, Vec<u64>)>, VolumeError> {
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
    Ok(Some((VolumeLayout { shape, axes, ..layout.clone() }, factors)))
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

/// One voxel of the result for those that it comes from, of which there are fewer at the end of an axis.
fn reduce(voxels: &[u8], fine: &[u64], coarse: &[u64], factors: &[u64], (dtype, how): (Dtype, Coarsen)) -> Vec<u8> {
    let width = dtype.size();
    let place = |at: &[u64]| at.iter().zip(fine).fold(0, |place, (at, size)| place * size + at) as usize * width;
    let mut neighbours = Vec::new();
    each_position(factors, |offset| neighbours.push((offset.to_vec(), place(offset))));
    let mut out = Vec::with_capacity(coarse.iter().product::<u64>() as usize * width);
    let mut first = vec![0; fine.len()];
    each_position(coarse, |position| {
        (0..first.len()).for_each(|axis| first[axis] = position[axis] * factors[axis]);
        let base = place(&first);
        if how == Coarsen::First {
            return out.extend_from_slice(&voxels[base..base + width]);
        }
        let inside = |offset: &[u64]| (0..first.len()).all(|axis| first[axis] + offset[axis] < fine[axis]);
        let whole = inside(&neighbours[neighbours.len() - 1].0);
        let (mut sum, mut count) = (0.0, 0.0);
        for (offset, behind) in &neighbours {
            if whole || inside(offset) {
                sum += value(&voxels[base + behind..][..width], dtype);
                count += 1.0;
            }
        }
        push_value(sum / count, dtype, &mut out);
    });
    out
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
