//! Gradients of one clock, added along one tree whoever sent them first.

use std::{iter::Peekable, ops::Range};

use sirtaki_comm::sum_tree::middle;

use super::{Id, message::StepNumbers};

/// What a worker adds to a block.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    pub(super) worker: Id,
    /// The leaves of the tree it is of.
    pub(super) leaves: (u32, u32),
    /// For each row, whether it is part of it; `None` if all are.
    pub(super) touched: Option<Vec<bool>>,
    /// As many numbers as the block has.
    pub(super) values: Vec<f32>,
}

impl Part {
    /// Adds a part that is to the right of this one. Where only one of them has a row, it is that row.
    fn join(&mut self, right: Part, width: usize) {
        let (Some(here), there) = (&mut self.touched, &right.touched) else {
            let is_touched = |row: usize| right.touched.as_ref().is_none_or(|touched| touched[row]);
            for (row, (left, right)) in self.values.chunks_mut(width).zip(right.values.chunks(width)).enumerate() {
                if is_touched(row) {
                    add(left, right);
                }
            }
            return;
        };
        for (row, (left, right)) in self.values.chunks_mut(width).zip(right.values.chunks(width)).enumerate() {
            match (here[row], there.as_ref().is_none_or(|touched| touched[row])) {
                (true, true) => add(left, right),
                (false, true) => left.copy_from_slice(right),
                (_, false) => {}
            }
        }
        match there {
            Some(there) => here.iter_mut().zip(there).for_each(|(here, there)| *here |= there),
            None => self.touched = None,
        }
    }
}

fn add(left: &mut [f32], right: &[f32]) {
    left.iter_mut().zip(right).for_each(|(left, right)| *left += right);
}

/// The gradient that these parts make together, of as many workers; `None` if there are no parts.
///
/// Sums over leaves are added along the tree of all leaves. Otherwise every worker is a leaf, in the order of their
/// numbers, and the sum is divided by the number of workers.
pub(super) fn gradient(step: &StepNumbers, mut parts: Vec<Part>, workers: usize, width: usize) -> Option<Part> {
    parts.sort_by_key(|part| if step.leaves.is_some() { part.leaves } else { (part.worker, 0) });
    let total = step.leaves.map_or(parts.len(), |leaves| leaves.total as usize);
    if step.leaves.is_none() {
        (0..).zip(&mut parts).for_each(|(place, part)| part.leaves = (place, place + 1));
    }
    let mut rest = parts.into_iter().peekable();
    let sum = branch(0..total, &mut rest, width);
    // None are left, but where their leaves make no sense.
    let mut sum = sum.or_else(|| rest.next())?;
    rest.for_each(|part| sum.join(part, width));
    let scale = step.leaves.map_or(1.0 / workers.max(1) as f64, |leaves| leaves.scale) as f32;
    if scale != 1.0 {
        sum.values.iter_mut().for_each(|value| *value *= scale);
    }
    Some(sum)
}

/// The sum over some leaves, as far as anything is known of them: those of a worker that is gone, and those without samples,
/// are missing, and nothing is added in their place.
fn branch(leaves: Range<usize>, parts: &mut Peekable<impl Iterator<Item = Part>>, width: usize) -> Option<Part> {
    let (from, to) = parts.peek()?.leaves;
    let (from, to) = (from as usize, to as usize);
    if from >= leaves.end {
        return None;
    }
    if leaves.len() <= 1 || (from..to) == leaves {
        return parts.next();
    }
    let middle = middle(&leaves);
    let left = branch(leaves.start..middle, parts, width);
    let right = branch(middle..leaves.end, parts, width);
    match (left, right) {
        (Some(mut left), Some(right)) => {
            left.join(right, width);
            Some(left)
        }
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::message::Leaves, *};

    fn part(worker: Id, leaves: (u32, u32), touched: Option<Vec<bool>>, values: &[f32]) -> Part {
        Part { worker, leaves, touched, values: values.to_vec() }
    }

    #[test]
    fn the_order_of_arrival_does_not_matter() {
        let values = [1e8_f32, 1.0, -1e8, 1.0];
        let parts: Vec<Part> =
            (0..4).map(|leaf| part(9 - leaf, (leaf, leaf + 1), None, &[values[leaf as usize]])).collect();
        let step = StepNumbers { rate: 0.1, leaves: Some(Leaves { total: 4, scale: 0.5 }) };
        let expected = ((values[0] + values[1]) + (values[2] + values[3])) * 0.5;
        for turn in 0..4 {
            let mut parts = parts.clone();
            parts.rotate_left(turn);
            assert_eq!(gradient(&step, parts, 4, 1).unwrap().values, [expected]);
        }
        // Without leaves, by the workers' numbers: the reverse here.
        let plain = StepNumbers { leaves: None, ..step };
        let expected = ((values[3] + values[2]) + (values[1] + values[0])) * 0.25;
        assert_eq!(gradient(&plain, parts, 4, 1).unwrap().values, [expected]);
    }

    #[test]
    fn missing_leaves_do_not_change_the_tree() {
        let values = [5e7_f32, 5e7, 1.0, -1.0, -5e7, -5e7, 1.0];
        let part = |leaf: usize| part(1, (leaf as u32, leaf as u32 + 1), None, &[values[leaf]]);
        let step = StepNumbers { rate: 0.1, leaves: Some(Leaves { total: 8, scale: 1.0 }) };
        // The last of eight is missing: it has to be (0..4) + ((4 + 5) + 6), and not ((0..4) + (4..6)) + 6.
        let expected = ((values[0] + values[1]) + (values[2] + values[3])) + ((values[4] + values[5]) + values[6]);
        assert_ne!(
            expected,
            ((((values[0] + values[1]) + (values[2] + values[3])) + (values[4] + values[5])) + values[6])
        );
        assert_eq!(gradient(&step, (0..7).map(part).collect(), 2, 1).unwrap().values, [expected]);
        // The same from whole branches.
        let mut branches: Vec<Part> = (4..7).map(part).collect();
        let sum = (values[0] + values[1]) + (values[2] + values[3]);
        branches.push(self::part(2, (0, 4), None, &[sum]));
        assert_eq!(gradient(&step, branches, 2, 1).unwrap().values, [expected]);
    }

    #[test]
    fn leaves_that_make_no_sense_are_added_once() {
        let step = StepNumbers { rate: 0.1, leaves: Some(Leaves { total: 2, scale: 1.0 }) };
        let parts = vec![
            part(1, (0, 1), None, &[1.0]),
            part(2, (0, 1), None, &[2.0]),
            part(3, (1, 9), None, &[4.0]),
            part(4, (7, 7), None, &[8.0]),
        ];
        assert_eq!(gradient(&step, parts, 4, 1).unwrap().values, [15.0]);
    }

    #[test]
    fn rows_that_nobody_touched_stay_untouched() {
        let step = StepNumbers { rate: 0.1, leaves: None };
        let one = part(1, (0, 0), Some(vec![true, false, false]), &[1.0, 0.0, 0.0]);
        let other = part(2, (0, 0), Some(vec![true, true, false]), &[3.0, 4.0, 0.0]);
        let both = gradient(&step, vec![other.clone(), one.clone()], 2, 1).unwrap();
        assert_eq!((both.touched, both.values), (Some(vec![true, true, false]), vec![2.0, 2.0, 0.0]));
        let all = part(3, (0, 0), None, &[1.0, 1.0, 1.0]);
        let three = gradient(&step, vec![one, all, other], 1, 1).unwrap();
        assert_eq!((three.touched, three.values), (None, vec![5.0, 5.0, 1.0]));
    }
}
