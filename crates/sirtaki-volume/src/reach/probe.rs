//! What the graph says, checked with the network itself.
//!
//! One axis at a time: a volume that is long along this axis and short along the others is computed as a whole, and once
//! more as a tile that is read with the halo. Inside the core both must agree in every bit. The same comparison finds the
//! smallest halo whose error stays below a tolerance, for networks that look further than is worthwhile. There, a volume
//! that is short along the other axes may show less error than there is, because much of what the network sees is padding;
//! so what was found is confirmed with one that is about as long along all axes.

use std::ops::Range;

use super::Reach;
use crate::{VolumeError, grid::halo::Halo};

/// How a tile differs from the whole, along one axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen {
    /// The axis.
    pub axis: usize,
    /// Whether all bits are equal.
    pub equal: bool,
    /// The largest difference.
    pub error: f64,
    /// The standard deviation of the output, to compare the difference with.
    pub deviation: f64,
}

/// Sizes along the axes of space, and values, channels first.
pub type Sample = (Vec<u64>, Vec<f32>);

/// Computes a network: a sample in, a sample out.
pub trait Compute: FnMut(&[u64], &[f32]) -> Result<Sample, VolumeError> {}

impl<F: FnMut(&[u64], &[f32]) -> Result<Sample, VolumeError>> Compute for F {}

/// What is probed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// How many channels the input has.
    pub channels: u64,
    /// Where numbers begin: the same seed gives the same volumes.
    pub seed: u64,
    /// The sizes of the volumes along the other axes, if the network takes them; they have the volume's size modulo the
    /// stride.
    pub sizes: Vec<u64>,
}

impl Probe {
    /// Compares along each axis. `reach` is what the network is said to need.
    pub fn check(&self, reach: &Reach, run: &mut impl Compute) -> Result<Vec<Seen>, VolumeError> {
        (0..reach.halos.len()).map(|axis| self.along(reach, axis, reach.halos[axis], run)).collect()
    }

    /// Compares along one axis, with a halo of one's own choice on it.
    pub fn along(&self, reach: &Reach, axis: usize, halo: Halo, run: &mut impl Compute) -> Result<Seen, VolumeError> {
        let needed = reach.halos[axis];
        let (step, step_out) = (needed.input, needed.output);
        let far = |distance: i64| u64::try_from(distance.max(0)).unwrap_or(0).div_ceil(step) * step;
        // Room for a core, for all that it needs on both sides, and for something more that a tile must not need.
        let (margin, core) = (far(needed.before.max(needed.after)) + 2 * step, 2 * step);
        let mut sizes = self.sizes.clone();
        sizes[axis] = 2 * margin + core + sizes[axis] % step;
        let values = noise(self.seed, sizes.iter().product::<u64>().saturating_mul(self.channels))?;
        let (shape, whole) = run(&sizes, &values)?;
        let output = margin / step * step_out..(margin + core) / step * step_out;
        let read = halo.read(output.clone(), sizes[axis]);
        let input = cut(&values, &sizes, self.channels, axis, &read)?;
        sizes[axis] = read.end - read.start;
        let (part, tile) = run(&sizes, &input)?;
        let first = halo.position(output.start, read.start);
        let span = first..first + (output.end - output.start);
        let want = cut(&whole, &shape, reach.channels, axis, &output)?;
        let got = cut(&tile, &part, reach.channels, axis, &span)?;
        Ok(compare(axis, &want, &got))
    }

    /// The smallest halo along each axis whose error stays below `tolerance` standard deviations of the output, and the
    /// error with it. Never larger than what is exact.
    pub fn tolerate(
        &self,
        reach: &Reach,
        tolerance: f64,
        run: &mut impl Compute,
    ) -> Result<Vec<(Halo, Seen)>, VolumeError> {
        let mut found = Vec::new();
        for (axis, exact) in reach.halos.iter().enumerate() {
            let with = |distance: u64| {
                let distance = i64::try_from(distance * exact.input).unwrap_or(i64::MAX);
                Halo { before: exact.before.min(distance), after: exact.after.min(distance), ..*exact }
            };
            let most = u64::try_from(exact.before.max(exact.after).max(0)).unwrap_or(0).div_ceil(exact.input);
            let (mut low, mut high) = (0, most);
            let mut best = None;
            // The error falls with the halo, as good as always; what is found is measured in any case.
            while low < high {
                let middle = low.midpoint(high);
                let seen = self.along(reach, axis, with(middle), run)?;
                if seen.error <= tolerance * seen.deviation {
                    (high, best) = (middle, Some(seen));
                } else {
                    low = middle + 1;
                }
            }
            let seen = match best {
                Some(seen) => seen,
                None => self.along(reach, axis, with(high), run)?,
            };
            found.push((with(high), seen));
        }
        Ok(found)
    }
}

impl Probe {
    /// Makes halos that [`tolerate`](Self::tolerate) found larger until their error stays below the tolerance in a volume
    /// that is long along all axes: more than twice a halo on both sides of its middle, and at most so many voxels. A halo
    /// that does not fit into that is left as it is.
    pub fn confirm(
        &self,
        reach: &Reach,
        tolerance: f64,
        found: &mut [(Halo, Seen)],
        longest: &[u64],
        run: &mut impl Compute,
    ) -> Result<(), VolumeError> {
        loop {
            let sizes: Vec<u64> =
                (0..found.len()).map(|axis| length(&found[axis].0, &reach.halos[axis], longest[axis])).collect();
            let values = noise(self.seed, sizes.iter().product::<u64>().saturating_mul(self.channels))?;
            let (shape, whole) = run(&sizes, &values)?;
            let mut grown = false;
            for (axis, exact) in reach.halos.iter().enumerate() {
                let halo = found[axis].0;
                let output = middle(exact, sizes[axis]);
                let read = halo.read(output.clone(), sizes[axis]);
                if (halo.before, halo.after) == (exact.before, exact.after) {
                    found[axis].1.error = 0.0;
                    continue;
                }
                if read == (0..sizes[axis]) {
                    continue;
                }
                let input = cut(&values, &sizes, self.channels, axis, &read)?;
                let part = sizes
                    .iter()
                    .enumerate()
                    .map(|(other, size)| if other == axis { read.end - read.start } else { *size });
                let (part, tile) = run(&part.collect::<Vec<_>>(), &input)?;
                let first = halo.position(output.start, read.start);
                let inner = |values: &[f32], shape: &[u64], along: Range<u64>| {
                    core_of(values, shape, reach, &sizes, (axis, along))
                };
                let span = first..first + (output.end - output.start);
                let seen = compare(axis, &inner(&whole, &shape, output)?, &inner(&tile, &part, span)?);
                let kept = seen.error <= tolerance * seen.deviation;
                found[axis] = if kept { (halo, seen) } else { (larger(&halo, exact), seen) };
                grown |= !kept;
            }
            if !grown {
                return Ok(());
            }
        }
    }
}

/// Voxels on both sides of the middle of a volume that are compared, in steps of the network.
const MIDDLE: u64 = 4;

/// Steps beyond twice a halo that a volume has on both sides of its middle.
const BEYOND: u64 = 16;

/// The length of a volume for twice a halo and some more on both sides of its middle, or for what is exact.
fn length(halo: &Halo, exact: &Halo, longest: u64) -> u64 {
    let steps = |halo: &Halo| u64::try_from(halo.before.max(halo.after).max(0)).unwrap_or(0).div_ceil(halo.input);
    let margin = steps(exact).min(2 * steps(halo) + BEYOND);
    ((2 * margin + 2 * MIDDLE) * halo.input + longest % halo.input).min(longest)
}

/// The middle of what a network makes of so many voxels along an axis.
fn middle(halo: &Halo, size: u64) -> Range<u64> {
    let (steps, half) = (size / halo.input, MIDDLE.min((size / halo.input / 2).max(1)));
    let first = (steps / 2).saturating_sub(half);
    first * halo.output..(first + 2 * half).min(steps.max(1)) * halo.output
}

/// A halo a quarter larger, and never larger than what is exact.
fn larger(halo: &Halo, exact: &Halo) -> Halo {
    let step = i64::try_from(halo.input).unwrap_or(i64::MAX);
    let more = |now: i64, most: i64| (now + (now / 4 / step + 1) * step).min(most);
    Halo { before: more(halo.before, exact.before), after: more(halo.after, exact.after), ..*halo }
}

/// A range along one axis, and the middle along all others.
fn core_of(
    values: &[f32],
    shape: &[u64],
    reach: &Reach,
    sizes: &[u64],
    (axis, along): (usize, Range<u64>),
) -> Result<Vec<f32>, VolumeError> {
    let (mut values, mut shape) = (values.to_vec(), shape.to_vec());
    for other in 0..shape.len() {
        let range = if other == axis { along.clone() } else { middle(&reach.halos[other], sizes[other]) };
        values = cut(&values, &shape, reach.channels, other, &range)?;
        shape[other] = range.end - range.start;
    }
    Ok(values)
}

/// A range along one axis of a sample.
fn cut(values: &[f32], sizes: &[u64], channels: u64, axis: usize, range: &Range<u64>) -> Result<Vec<f32>, VolumeError> {
    let product = |sizes: &[u64]| sizes.iter().fold(1_u64, |product, size| product.saturating_mul(*size));
    let (outer, inner) = (product(&sizes[..axis]).saturating_mul(channels), product(&sizes[axis + 1..]));
    let row = inner.saturating_mul(sizes[axis]);
    if range.end > sizes[axis] || row.saturating_mul(outer) != values.len() as u64 {
        return Err(VolumeError::Invalid(format!(
            "the network gave {} values of {sizes:?} voxels and {channels} channels, and voxels {range:?} along axis {axis} \
             are needed",
            values.len()
        )));
    }
    let at = |row_number: u64, voxel: u64| (row_number * row + voxel * inner) as usize;
    Ok((0..outer).flat_map(|number| &values[at(number, range.start)..at(number, range.end)]).copied().collect())
}

fn compare(axis: usize, want: &[f32], got: &[f32]) -> Seen {
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let difference = |(a, b): (&f32, &f32)| match (f64::from(*a) - f64::from(*b)).abs() {
        difference if difference.is_nan() => f64::INFINITY,
        difference => difference,
    };
    let count = want.len().max(1) as f64;
    let mean = want.iter().map(|value| f64::from(*value)).sum::<f64>() / count;
    let variance = want.iter().map(|value| (f64::from(*value) - mean).powi(2)).sum::<f64>() / count;
    let equal = bits(want) == bits(got);
    // Not numbers differ from themselves, but may have equal bits.
    let error = if equal { 0.0 } else { want.iter().zip(got).map(difference).fold(0.0, f64::max) };
    Seen { axis, equal, error, deviation: variance.sqrt() }
}

/// Numbers between −1 and 1 without any pattern.
fn noise(seed: u64, count: u64) -> Result<Vec<f32>, VolumeError> {
    const MOST: u64 = 1 << 31;
    if count > MOST {
        return Err(VolumeError::refused(
            format!("a probe of this network would take {count} voxels"),
            "probe with smaller sizes along the other axes",
        ));
    }
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits >> 40) as f32) / (1_u64 << 23) as f32 - 1.0
    };
    Ok((0..count).map(|_| next()).collect())
}
