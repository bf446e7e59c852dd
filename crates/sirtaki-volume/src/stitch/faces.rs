//! Which labels on both sides of a cut through the volume touch.
//!
//! Two voxels of different tiles that touch lie on both sides of a plane between tiles, in the two layers next to it. So
//! stitching reads two layers for each plane, a small part of the volume. A plane may be looked at in pieces, each one
//! voxel longer than the piece at its far ends: over edges and corners a voxel touches others that are not across from it.

use super::Connectivity;
use crate::VolumeError;

/// One side of a face: a layer of labels with their classes, slowest axis first.
#[derive(Debug, Clone, Copy)]
pub struct Layer<'a> {
    /// The label of each voxel; 0 is no object.
    pub labels: &'a [u64],
    /// The class of each voxel. Only voxels of one class belong together.
    pub classes: &'a [u32],
}

/// The pairs of labels that touch across a face of these sizes, each once, in ascending order.
pub fn touching(
    low: Layer<'_>,
    high: Layer<'_>,
    sizes: &[usize],
    connectivity: Connectivity,
) -> Result<Vec<(u64, u64)>, VolumeError> {
    let count = sizes.iter().product::<usize>();
    if [low.labels.len(), low.classes.len(), high.labels.len(), high.classes.len()] != [count; 4] {
        return Err(VolumeError::Invalid(format!("the two sides of a face are not {sizes:?} voxels")));
    }
    let mut pairs = Vec::new();
    let mut meet = |one: usize, two: usize| {
        let pair = (low.labels[one], high.labels[two]);
        let new = pair.0 != 0 && pair.1 != 0 && low.classes[one] == high.classes[two] && pairs.last() != Some(&pair);
        if new {
            pairs.push(pair);
        }
    };
    let moves = around(sizes.len(), connectivity);
    for voxel in 0..count {
        if low.labels[voxel] == 0 {
            continue;
        }
        for step in &moves {
            if let Some(other) = moved(voxel, step, sizes) {
                meet(voxel, other);
            }
        }
    }
    pairs.sort_unstable();
    pairs.dedup();
    Ok(pairs)
}

/// Moves within the layer that lead to a voxel that touches the one across.
fn around(axes: usize, connectivity: Connectivity) -> Vec<Vec<isize>> {
    let mut moves: Vec<Vec<isize>> = vec![vec![]];
    for _ in 0..axes {
        let steps: &[isize] = if connectivity == Connectivity::Faces { &[0] } else { &[-1, 0, 1] };
        moves = moves.iter().flat_map(|rest| steps.iter().map(|step| [rest.as_slice(), &[*step]].concat())).collect();
    }
    moves
}

fn moved(voxel: usize, step: &[isize], sizes: &[usize]) -> Option<usize> {
    let (mut rest, mut stride, mut to) = (voxel, 1, 0);
    for (size, step) in sizes.iter().zip(step).rev() {
        let at = (rest % size).checked_add_signed(*step).filter(|at| at < size)?;
        to += at * stride;
        rest /= size;
        stride *= size;
    }
    Some(to)
}
