//! Boxes inside boxes: copies between arrays in memory, and the runs of a box that lie together in a file.

use crate::Region;

/// An array in memory: its sizes, slowest axis first, and where in it a box starts.
#[derive(Clone, Copy)]
pub(crate) struct ArrayBox<'a> {
    /// The sizes of the whole array.
    pub(crate) shape: &'a [u64],
    /// Where the box starts.
    pub(crate) start: &'a [u64],
}

/// Copies a box of `size` elements of `width` bytes from one array into another. Both must contain it.
pub(crate) fn copy_box(size: &[u64], width: usize, from: (&[u8], ArrayBox<'_>), to: (&mut [u8], ArrayBox<'_>)) {
    let ((source, from), (target, to)) = (from, to);
    if size.contains(&0) {
        return;
    }
    // Axes that are whole in both arrays are one run with the axis before them.
    let mut inner = size.len();
    let mut run = width;
    while inner > 0 {
        inner -= 1;
        run *= size[inner] as usize;
        if from.shape[inner] != size[inner] || to.shape[inner] != size[inner] {
            break;
        }
    }
    let (steps_from, steps_to) = (steps(from.shape, width), steps(to.shape, width));
    let first = |start: &[u64], steps: &[usize]| start.iter().zip(steps).map(|(at, step)| *at as usize * step).sum();
    let (base_from, base_to): (usize, usize) = (first(from.start, &steps_from), first(to.start, &steps_to));
    each_position(&size[..inner], |position| {
        let offset = |steps: &[usize]| position.iter().zip(steps).map(|(at, step)| *at as usize * step).sum::<usize>();
        let (at_from, at_to) = (base_from + offset(&steps_from), base_to + offset(&steps_to));
        target[at_to..at_to + run].copy_from_slice(&source[at_from..at_from + run]);
    });
}

/// Copies what two boxes of the same volume share from the memory of one into that of the other.
pub(crate) fn copy_shared(shared: &Region, width: usize, from: (&[u8], &Region), to: (&mut [u8], &Region)) {
    let (source, target) = (shared.relative_to(from.1), shared.relative_to(to.1));
    let from = (from.0, ArrayBox { shape: from.1.size(), start: source.start() });
    copy_box(shared.size(), width, from, (to.0, ArrayBox { shape: to.1.size(), start: target.start() }));
}

/// The bytes from one element to the next along each axis.
fn steps(shape: &[u64], width: usize) -> Vec<usize> {
    let mut steps = vec![width; shape.len()];
    for axis in (1..shape.len()).rev() {
        steps[axis - 1] = steps[axis] * shape[axis] as usize;
    }
    steps
}

/// Calls `action` with every position of a box, in order. A box without axes has one.
pub(crate) fn each_position(size: &[u64], mut action: impl FnMut(&[u64])) {
    let ended: Result<(), std::convert::Infallible> = try_each_position(size, |position| {
        action(position);
        Ok(())
    });
    let Ok(()) = ended;
}

/// The same, up to the first error.
pub(crate) fn try_each_position<E>(size: &[u64], mut action: impl FnMut(&[u64]) -> Result<(), E>) -> Result<(), E> {
    if size.contains(&0) {
        return Ok(());
    }
    let mut position = vec![0; size.len()];
    loop {
        action(&position)?;
        let mut axis = size.len();
        loop {
            if axis == 0 {
                return Ok(());
            }
            axis -= 1;
            position[axis] += 1;
            if position[axis] < size[axis] {
                break;
            }
            position[axis] = 0;
        }
    }
}

/// Calls `action` with every cell of a grid of boxes of size `cell` that a region touches, and what they share.
pub(crate) fn try_each_cell<E>(
    region: &Region,
    cell: &[u64],
    mut action: impl FnMut(&[u64], &Region) -> Result<(), E>,
) -> Result<(), E> {
    if region.is_empty() {
        return Ok(());
    }
    let first: Vec<u64> = region.start().iter().zip(cell).map(|(start, cell)| start / cell).collect();
    let last: Vec<u64> = region.end().iter().zip(cell).map(|(end, cell)| (end - 1) / cell).collect();
    let count: Vec<u64> = first.iter().zip(&last).map(|(first, last)| last - first + 1).collect();
    try_each_position(&count, |position| {
        let at: Vec<u64> = position.iter().zip(&first).map(|(position, first)| position + first).collect();
        let from: Vec<u64> = at.iter().zip(cell).map(|(at, cell)| at * cell).collect();
        let to: Vec<u64> = from.iter().zip(cell).map(|(from, cell)| from.saturating_add(*cell)).collect();
        action(&at, &region.intersection(&Region::between(&from, &to)))
    })
}

/// The array with its axes in another order: axis `n` of the result is axis `order[n]` of the source.
pub(crate) fn transpose(source: &[u8], shape: &[u64], order: &[usize], width: usize) -> Vec<u8> {
    let source_steps = steps(shape, width);
    let size: Vec<u64> = order.iter().map(|&axis| shape[axis]).collect();
    let step: Vec<usize> = order.iter().map(|&axis| source_steps[axis]).collect();
    let mut target = Vec::with_capacity(source.len());
    each_position(&size, |position| {
        let at: usize = position.iter().zip(&step).map(|(at, step)| *at as usize * step).sum();
        target.extend_from_slice(&source[at..at + width]);
    });
    target
}

/// The order that undoes another one.
pub(crate) fn inverse(order: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; order.len()];
    for (to, &from) in order.iter().enumerate() {
        inverse[from] = to;
    }
    inverse
}

/// Turns the bytes of every element around.
pub(crate) fn swap_bytes(bytes: &mut [u8], width: usize) {
    if width > 1 {
        bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse);
    }
}

/// Puts the same element everywhere into a box of an array.
pub(crate) fn fill_box(target: &mut [u8], shape: &[u64], inside: &Region, element: &[u8]) {
    let run = *inside.size().last().unwrap_or(&1) as usize * element.len();
    let outer = inside.axes().saturating_sub(1);
    let steps = steps(shape, element.len());
    let base: usize = inside.start().iter().zip(&steps).map(|(at, step)| *at as usize * step).sum();
    if inside.is_empty() {
        return;
    }
    each_position(&inside.size()[..outer], |position| {
        let at = base + position.iter().zip(&steps).map(|(at, step)| *at as usize * step).sum::<usize>();
        repeat(&mut target[at..at + run], element);
    });
}

/// Fills memory with one element.
pub(crate) fn repeat(target: &mut [u8], element: &[u8]) {
    match element.iter().all(|byte| *byte == element[0]) {
        true => target.fill(element[0]),
        false => target.chunks_exact_mut(element.len()).for_each(|voxel| voxel.copy_from_slice(element)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_is_copied_to_where_it_belongs() {
        let source: Vec<u8> = (0..24).collect();
        let mut target = [0; 6];
        let from = ArrayBox { shape: &[2, 3, 4], start: &[1, 1, 2] };
        copy_box(&[1, 2, 2], 1, (&source, from), (&mut target, ArrayBox { shape: &[1, 2, 3], start: &[0, 0, 1] }));
        assert_eq!(target, [0, 18, 19, 0, 22, 23]);
        let mut whole = [0; 24];
        let all = ArrayBox { shape: &[2, 3, 4], start: &[0, 0, 0] };
        copy_box(&[2, 3, 4], 1, (&source, all), (&mut whole, all));
        assert_eq!(whole[..], source[..]);
    }

    #[test]
    fn axes_change_places_and_return() {
        let source: Vec<u8> = (0..24).collect();
        let turned = transpose(&source, &[2, 3, 2], &[2, 0, 1], 2);
        assert_eq!(turned[..6], [0, 1, 4, 5, 8, 9]);
        assert_eq!(transpose(&turned, &[2, 2, 3], &inverse(&[2, 0, 1]), 2), source);
    }

    #[test]
    fn cells_cover_a_region_once() {
        let region = Region::new([1, 3], [4, 5]).unwrap();
        let mut voxels = 0;
        let done: Result<(), ()> = try_each_cell(&region, &[2, 4], |at, shared| {
            assert!(at.iter().zip([2, 4]).zip(shared.start()).all(|((at, cell), start)| start / cell == *at));
            voxels += shared.voxels();
            Ok(())
        });
        assert_eq!((done, voxels), (Ok(()), 20));
    }

    #[test]
    fn a_box_is_filled_and_nothing_else() {
        let mut target = [0; 16];
        fill_box(&mut target, &[2, 4], &Region::new([1, 1], [1, 2]).unwrap(), &[7, 8]);
        assert_eq!(target, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 8, 7, 8, 0, 0]);
    }
}
