//! Objects of one tile: connected voxels of equal class.
//!
//! One pass gives every voxel the label of a neighbour before it and notes which labels meet; a second pass replaces labels
//! by the numbers of their sets. Both are linear.

use super::{Connectivity, forest::Forest};
use crate::VolumeError;

/// Numbers the objects of an array, slowest axis first, from 1 on, in the order of their first voxels. Class 0 is no
/// object. Gives the label of each voxel, and how many objects there are.
pub fn components(
    classes: &[u32],
    sizes: &[usize],
    connectivity: Connectivity,
) -> Result<(Vec<u64>, u64), VolumeError> {
    let count = sizes.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
    if count != Some(classes.len()) || classes.len() > u32::MAX as usize {
        return Err(VolumeError::Invalid(format!("{} voxels are no array of {sizes:?}", classes.len())));
    }
    let steps = before(sizes, connectivity);
    let mut forest = Forest::default();
    // One more than a number of the forest; 0 is no object.
    let mut labels = vec![0_u32; classes.len()];
    let mut at = vec![0_usize; sizes.len()];
    for voxel in 0..classes.len() {
        if classes[voxel] != 0 {
            for (moves, back) in &steps {
                if !inside(&at, moves, sizes) {
                    continue;
                }
                let neighbour = voxel.wrapping_sub(*back);
                if classes[neighbour] == classes[voxel] {
                    let label = labels[neighbour];
                    match labels[voxel] {
                        0 => labels[voxel] = label,
                        own if own != label => forest.join(own - 1, label - 1),
                        _ => {}
                    }
                }
            }
            if labels[voxel] == 0 {
                labels[voxel] = forest.add() + 1;
            }
        }
        advance(&mut at, sizes);
    }
    let (names, objects) = forest.names();
    let name = |label: u32| if label == 0 { 0 } else { names[label as usize - 1].into() };
    Ok((labels.into_iter().map(name).collect(), objects.into()))
}

/// Neighbours that come before a voxel: the move along each axis, and how many voxels back that is.
fn before(sizes: &[usize], connectivity: Connectivity) -> Vec<(Vec<i8>, usize)> {
    let strides: Vec<isize> =
        (0..sizes.len()).map(|axis| sizes[axis + 1..].iter().product::<usize>().cast_signed()).collect();
    let mut moves: Vec<Vec<i8>> = vec![vec![]];
    for _ in sizes {
        moves = moves.iter().flat_map(|rest| [-1, 0, 1].map(|step| [rest.as_slice(), &[step]].concat())).collect();
    }
    let is_before = |moves: &Vec<i8>| moves.iter().find(|step| **step != 0).is_some_and(|step| *step < 0);
    let faces = |moves: &Vec<i8>| moves.iter().filter(|step| **step != 0).count() == 1;
    moves.retain(|moves| is_before(moves) && (connectivity == Connectivity::Corners || faces(moves)));
    let back =
        |moves: &[i8]| moves.iter().zip(&strides).map(|(step, stride)| -isize::from(*step) * stride).sum::<isize>();
    moves.into_iter().map(|moves| (moves.clone(), back(&moves).cast_unsigned())).collect()
}

fn inside(at: &[usize], moves: &[i8], sizes: &[usize]) -> bool {
    at.iter().zip(moves).zip(sizes).all(|((at, step), size)| match step {
        -1 => *at > 0,
        1 => at + 1 < *size,
        _ => true,
    })
}

fn advance(at: &mut [usize], sizes: &[usize]) {
    for (at, size) in at.iter_mut().zip(sizes).rev() {
        *at += 1;
        if *at < *size {
            return;
        }
        *at = 0;
    }
}
