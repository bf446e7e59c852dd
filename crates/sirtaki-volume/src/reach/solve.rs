//! The reach of a network: backwards through its operators, one axis at a time.

use serde::{Deserialize, Serialize};

use super::{
    along::{Along, Fill, lcm},
    network::{Network, listed},
};
use crate::{VolumeError, grid::halo::Halo};

/// How far a network looks, and what comes out of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// For each axis of space.
    pub halos: Vec<Halo>,
    /// The sizes of the output along these axes.
    pub output: Vec<u64>,
    /// How many values the output has at each place.
    pub channels: u64,
    /// What keeps the result from being equal in every bit although everything needed is read.
    pub notes: Vec<String>,
}

impl Network {
    /// How far this network looks.
    pub fn reach(&self) -> Result<Reach, VolumeError> {
        let needed = self.needed();
        let halos: Result<Vec<Halo>, VolumeError> =
            (0..self.parts[0].sizes.len()).map(|axis| self.halo(axis, &needed)).collect();
        let output = &self.parts[self.output];
        Ok(Reach { halos: halos?, output: output.sizes.clone(), channels: output.channels, notes: Vec::new() })
    }

    /// Which values the output depends on.
    fn needed(&self) -> Vec<bool> {
        let mut needed = vec![false; self.parts.len()];
        needed[self.output] = true;
        for (number, step) in self.steps.iter().enumerate().rev() {
            if needed[number + 1] {
                step.inputs.iter().for_each(|input| needed[*input] = true);
            }
        }
        needed
    }

    /// A tile must hold all of the volume that its core depends on, and be so long at both ends that every value on the
    /// way is there: an operator that cuts something off does so at the ends of a tile too.
    fn halo(&self, axis: usize, needed: &[bool]) -> Result<Halo, VolumeError> {
        let scales = self.parts.iter().zip(needed).filter(|(_, needed)| **needed).map(|(part, _)| part.scales[axis]);
        let input = scales.into_iter().try_fold(1, |stride, scale| lcm(stride, scale.over()));
        let far = || {
            let sizes = listed(&self.parts[0].sizes);
            VolumeError::Invalid(format!(
                "the network moves in steps too large for any volume (axis {axis} of {sizes})"
            ))
        };
        let input = input.ok_or_else(far)?;
        let own = |part: usize| {
            let scale = self.parts[part].scales[axis];
            i128::from(input / scale.over()) * i128::from(scale.under())
        };
        // What is needed of each value for one step of the output, its first and last voxel.
        let mut spans: Vec<Option<(i128, i128)>> = vec![None; self.parts.len()];
        spans[self.output] = Some((0, own(self.output) - 1));
        for (number, step) in self.steps.iter().enumerate().rev() {
            let Some((first, last)) = spans[number + 1] else { continue };
            let (mut first, mut last) = step.along[axis].needs(first, last);
            if let Along::Margin { before, after, fill: Fill::Mirror } = step.along[axis]
                && (before > 0 || after > 0)
            {
                // At an end of the volume, what is before the first voxel is read from behind it.
                let end = own(step.inputs[0]);
                let most = (-first).max(last + 1 - end);
                (first, last) = (-most, end - 1 + most);
            }
            for input in &step.inputs {
                let span = spans[*input].get_or_insert((first, last));
                *span = (span.0.min(first), span.1.max(last));
            }
        }
        let (mut before, mut after) = (i128::MIN, i128::MIN);
        for (part, span) in self.parts.iter().zip(spans) {
            let Some((first, last)) = span else { continue };
            let (over, under) = (i128::from(part.scales[axis].over()), i128::from(part.scales[axis].under()));
            before = before.max(-(first * over).div_euclid(under));
            // Whatever a value is shorter than the volume, it is shorter than a tile as well.
            let behind = (last + 1 - i128::from(part.sizes[axis])) * over;
            let all = i128::from(self.parts[0].sizes[axis]);
            after = after.max(all - i128::from(input) - (-behind).div_euclid(under));
        }
        let before = i64::try_from(before).map_err(|_| far())?;
        let after = i64::try_from(after).map_err(|_| far())?;
        Ok(Halo { before, after, input, output: u64::try_from(own(self.output)).map_err(|_| far())? })
    }

    /// The most values that exist at once while a tile of these sizes is computed, step by step, each kept until its last
    /// use. Nothing for a tile that the network cannot take.
    pub fn values_at_once(&self, tile: &[u64]) -> Option<u64> {
        let needed = self.needed();
        let mut sizes: Vec<Vec<u64>> = vec![tile.to_vec()];
        let mut last_use: Vec<usize> = (0..self.parts.len()).collect();
        last_use[self.output] = self.steps.len();
        for (number, step) in self.steps.iter().enumerate() {
            let input = &sizes[step.inputs[0]];
            sizes.push(step.along.iter().zip(input).map(|(along, size)| along.size(*size)).collect::<Option<_>>()?);
            if needed[number + 1] {
                step.inputs.iter().for_each(|input| last_use[*input] = last_use[*input].max(number + 1));
            }
        }
        let values = |part: usize| {
            sizes[part].iter().try_fold(self.parts[part].channels, |product, size| product.checked_mul(*size))
        };
        let mut ends: Vec<Vec<usize>> = vec![Vec::new(); self.parts.len()];
        last_use.iter().enumerate().for_each(|(part, step)| ends[*step].push(part));
        let (mut now, mut most) = (0_u64, 0);
        for part in (0..self.parts.len()).filter(|part| needed[*part]) {
            now = now.checked_add(values(part)?)?;
            most = most.max(now);
            for over in ends[part].iter().filter(|over| needed[**over]) {
                now = now.saturating_sub(values(*over)?);
            }
        }
        Some(most)
    }
}
