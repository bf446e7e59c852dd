//! Gradients of one clock, added along one tree whoever sent them first.

use sirtaki_comm::sum_tree::Branches;

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
    let mut sums = Branches::new(total);
    for (place, part) in parts.into_iter().enumerate() {
        let (from, to) = part.leaves;
        let leaves = if step.leaves.is_some() { from as usize..to as usize } else { place..place + 1 };
        sums.add(leaves, part, |left, right| left.join(right, width));
    }
    // More than one only where a worker is gone and its leaves are missing.
    let mut sum = sums.into_values().reduce(|mut left, right| {
        left.join(right, width);
        left
    })?;
    let scale = step.leaves.map_or(1.0 / workers.max(1) as f64, |leaves| leaves.scale) as f32;
    if scale != 1.0 {
        sum.values.iter_mut().for_each(|value| *value *= scale);
    }
    Some(sum)
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
