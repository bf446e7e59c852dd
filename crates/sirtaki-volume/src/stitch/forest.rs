//! Union–find: sets of numbers that grow together.
//!
//! The smallest number of a set is its root, so roots do not depend on the order of joining, and one pass from small to
//! large numbers gives all names.

use crate::VolumeError;

#[derive(Debug, Default)]
pub(super) struct Forest {
    /// A number of the same set that is no larger; itself for a root.
    above: Vec<u32>,
}

impl Forest {
    /// So many numbers, each a set of its own.
    pub(super) fn new(count: u64) -> Result<Self, VolumeError> {
        let count = u32::try_from(count).map_err(|_| {
            let problem = format!("{count} labels are more than the {} that can be stitched", u32::MAX);
            VolumeError::refused(problem, "leave out objects of a few voxels before they are labelled")
        })?;
        Ok(Self { above: (0..count).collect() })
    }

    /// One more number, a set of its own.
    pub(super) fn add(&mut self) -> u32 {
        let number = u32::try_from(self.above.len()).unwrap_or(u32::MAX);
        self.above.push(number);
        number
    }

    pub(super) fn root(&mut self, mut number: u32) -> u32 {
        loop {
            let above = self.above[number as usize];
            if above == number {
                return number;
            }
            // Every other one on the way is moved up, which keeps all ways short.
            let next = self.above[above as usize];
            self.above[number as usize] = next;
            number = next;
        }
    }

    pub(super) fn join(&mut self, one: u32, two: u32) {
        let (one, two) = (self.root(one), self.root(two));
        self.above[one.max(two) as usize] = one.min(two);
    }

    /// For each number, that of its set, consecutive from 1 on; and how many sets there are.
    pub(super) fn names(mut self) -> (Vec<u32>, u32) {
        let mut sets = 0;
        // From small to large, each place is overwritten with a name when nobody needs its root any more: roots are found
        // first, and are no larger than their members.
        for number in 0..self.above.len() {
            let above = self.above[number] as usize;
            self.above[number] = if above == number {
                sets += 1;
                sets
            } else {
                self.above[above]
            };
        }
        (self.above, sets)
    }
}
