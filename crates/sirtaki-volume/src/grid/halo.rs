//! What one axis of a tile must be read with.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// How far a network looks along one axis, and the steps in which it moves.
///
/// Output voxels `a·output .. b·output` depend on input voxels `a·input − before .. b·input + after`, for all whole `a`
/// and `b`. For most networks `input` and `output` are the same: 1 without pooling, 4 with two poolings by 2. Both
/// distances are negative where the network crops more than it sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Halo {
    /// Voxels needed before the first one.
    pub before: i64,
    /// Voxels needed after the last one.
    pub after: i64,
    /// Input voxels of one step.
    pub input: u64,
    /// Output voxels of one step.
    pub output: u64,
}

impl Halo {
    /// For what looks at each voxel alone.
    pub const NONE: Self = Self { before: 0, after: 0, input: 1, output: 1 };

    /// The same on both sides, in steps of `stride` voxels.
    pub fn symmetric(distance: u32, stride: u32) -> Self {
        let (distance, stride) = (i64::from(distance), u64::from(stride.max(1)));
        Self { before: distance, after: distance, input: stride, output: stride }
    }

    /// What must be read to write this range of the output, in an axis of `size` input voxels: see the rules in
    /// [`grid`](crate::grid).
    pub fn read(&self, core: Range<u64>, size: u64) -> Range<u64> {
        let (step, all) = (i128::from(self.input), i128::from(size));
        let first = i128::from(core.start / self.output) * step - i128::from(self.before);
        let last = i128::from(core.end.div_ceil(self.output)) * step + i128::from(self.after);
        let begin = first.clamp(0, all - 1).div_euclid(step) * step;
        // Never empty, whatever the network crops.
        let end = all - (all - last.clamp(begin + 1, all)).div_euclid(step) * step;
        to_u64(begin)..to_u64(end)
    }

    /// Where output voxel `at` is in what the network makes of a tile that is read from `begin` on.
    pub fn position(&self, at: u64, begin: u64) -> u64 {
        at.saturating_sub(begin / self.input * self.output)
    }

    /// The most that a core of so many output voxels is read with, wherever it is in an axis of `size` input voxels.
    pub fn widest(&self, core: u64, size: u64) -> u64 {
        let (step, all) = (i128::from(self.input), i128::from(size));
        // A core that is no multiple of the step may begin and end inside one.
        let partial = i128::from(!core.is_multiple_of(self.output));
        let steps = i128::from(core.div_ceil(self.output)) + partial;
        let before = (i128::from(self.before) + step - 1).div_euclid(step) * step;
        let most = (steps * step + before + i128::from(self.after)).clamp(1, all);
        to_u64(all - (all - most).div_euclid(step) * step)
    }
}

/// Values here are inside an axis, whose size is 64 bits wide.
fn to_u64(value: i128) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
