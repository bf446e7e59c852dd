//! Overlapping windows, weighted and added up: for networks that cannot be exact, on request.
//!
//! Elsewhere windows are added into one array of the volume's size, in the order in which they happen to be done. Here the
//! core of a tile is what all windows that meet it give, added in the order of their places. So memory is bounded, no two
//! workers write one chunk, and the result depends neither on the number of workers nor on the tiles.

use std::ops::Range;

use crate::{
    VolumeError,
    grid::region::{Extent, Region},
};

/// How much each voxel of a window counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Weighting {
    /// All the same.
    Constant,
    /// More in the middle: a normal distribution whose standard deviation is this part of the window's size.
    Gaussian(f64),
}

/// Windows of one size all over a volume.
#[derive(Debug, Clone, PartialEq)]
pub struct Windows {
    volume: Extent,
    size: Vec<u64>,
    /// Where windows begin along each axis.
    begins: Vec<Vec<u64>>,
    /// What each voxel of a window counts, as a product over the axes.
    weights: Vec<Vec<f64>>,
}

impl Windows {
    /// Windows of `size` voxels, or the volume's where that is smaller, which overlap by this part of their size. The last
    /// one along each axis ends where the volume ends.
    pub fn new(volume: &Extent, size: &Extent, overlap: f64, weighting: Weighting) -> Result<Self, VolumeError> {
        if size.axes() != volume.axes() || !(0.0..1.0).contains(&overlap) {
            let problem = format!("windows of {size} that overlap by {overlap} do not fit a volume of {volume}");
            return Err(VolumeError::refused(problem, "the overlap is a part of the window: 0 to 0.9, say"));
        }
        let both = volume.sizes().iter().zip(size.sizes());
        let size: Vec<u64> = both.map(|(all, size)| *size.min(all)).collect();
        let begins = volume.sizes().iter().zip(&size).map(|(all, size)| begins(*all, *size, overlap)).collect();
        let weights = size.iter().map(|size| weights(*size, weighting)).collect::<Result<_, _>>()?;
        Ok(Self { volume: volume.clone(), size, begins, weights })
    }

    /// All windows that meet a region, in the order in which they are to be added.
    pub fn meeting(&self, region: &Region) -> Vec<Region> {
        let mut found: Vec<Vec<u64>> = vec![vec![]];
        for (axis, begins) in self.begins.iter().enumerate() {
            let (from, to) = (region.start()[axis], region.start()[axis] + region.size()[axis]);
            let meets = |begin: &&u64| **begin < to && **begin + self.size[axis] > from;
            let here: Vec<u64> = begins.iter().filter(meets).copied().collect();
            found =
                found.iter().flat_map(|rest| here.iter().map(|begin| [rest.as_slice(), &[*begin]].concat())).collect();
        }
        let window = |begin: Vec<u64>| {
            let end: Vec<u64> = begin.iter().zip(&self.size).map(|(begin, size)| begin + size).collect();
            Region::between(&begin, &end)
        };
        found.into_iter().map(window).collect()
    }

    /// How many windows there are.
    pub fn count(&self) -> u64 {
        self.begins.iter().map(|begins| begins.len() as u64).product()
    }

    /// Something to add windows up in, for a region of the volume.
    pub fn sum(&self, region: &Region, channels: usize) -> Result<Sum<'_>, VolumeError> {
        if !region.is_within(&self.volume) {
            return Err(VolumeError::Invalid(format!("{region} is not inside the volume of {}", self.volume)));
        }
        let count =
            usize::try_from(region.voxels()).map_err(|_| VolumeError::Invalid(format!("{region} is too large")))?;
        let values = vec![0.0; count.saturating_mul(channels)];
        Ok(Sum { windows: self, region: region.clone(), channels, values, weights: vec![0.0; count] })
    }
}

/// The windows that meet a region, added up.
#[derive(Debug)]
pub struct Sum<'a> {
    windows: &'a Windows,
    region: Region,
    channels: usize,
    values: Vec<f64>,
    weights: Vec<f64>,
}

impl Sum<'_> {
    /// Adds what the network gave for a window, channels first.
    pub fn add(&mut self, window: &Region, values: &[f32]) -> Result<(), VolumeError> {
        let voxels = window.voxels();
        if window.size() != self.windows.size || values.len() as u64 != voxels.saturating_mul(self.channels as u64) {
            let problem = format!("the network gave {} values for the window {window}", values.len());
            return Err(VolumeError::Invalid(problem));
        }
        let part = self.region.intersection(window);
        if part.is_empty() {
            return Ok(());
        }
        let last = part.axes() - 1;
        let row = part.size()[last] as usize;
        let (inside, there) = (part.relative_to(&self.region), part.relative_to(window));
        let along = &self.windows.weights[last][there.start()[last] as usize..][..row];
        let (count, voxels) = (self.weights.len(), voxels as usize);
        for place in rows(part.size()) {
            let to = offset(self.region.size(), inside.start(), &place);
            let from = offset(window.size(), there.start(), &place);
            let across: f64 = (0..last)
                .map(|axis| self.windows.weights[axis][(there.start()[axis] + place[axis]) as usize])
                .product();
            for (at, along) in along.iter().enumerate() {
                let weight = across * along;
                self.weights[to + at] += weight;
                for channel in 0..self.channels {
                    self.values[channel * count + to + at] += weight * f64::from(values[channel * voxels + from + at]);
                }
            }
        }
        Ok(())
    }

    /// The weighted means, channels first. Every voxel must have met a window.
    pub fn finish(self) -> Result<Vec<f32>, VolumeError> {
        if self.weights.contains(&0.0) {
            return Err(VolumeError::Invalid(format!("no window was added for some voxels of {}", self.region)));
        }
        let count = self.weights.len();
        let mean = |(place, value): (usize, &f64)| (value / self.weights[place % count]) as f32;
        Ok(self.values.iter().enumerate().map(mean).collect())
    }
}

/// Where windows begin along an axis.
fn begins(all: u64, size: u64, overlap: f64) -> Vec<u64> {
    let step = ((size as f64 * (1.0 - overlap)) as u64).max(1);
    let count = (all - size).div_ceil(step) + 1;
    (0..count).map(|number| (number * step).min(all - size)).collect()
}

fn weights(size: u64, weighting: Weighting) -> Result<Vec<f64>, VolumeError> {
    match weighting {
        Weighting::Constant => Ok(vec![1.0; size as usize]),
        Weighting::Gaussian(part) if part > 0.0 && part.is_finite() => {
            let (middle, deviation) = ((size as f64 - 1.0) / 2.0, part * size as f64);
            // So far out that nothing would be left, a little is: a voxel that only one window meets has its value.
            let weight = |at: u64| (-0.5 * ((at as f64 - middle) / deviation).powi(2)).exp().max(1e-30);
            Ok((0..size).map(weight).collect())
        }
        Weighting::Gaussian(part) => {
            let problem = format!("a standard deviation of {part} windows is none");
            Err(VolumeError::refused(problem, "0.125 is what most use"))
        }
    }
}

/// The places of all rows of a box: everything but the last axis, which is 0.
fn rows(size: &[u64]) -> Vec<Vec<u64>> {
    let (_, outer) = size.split_last().unwrap_or((&0, &[]));
    let mut places: Vec<Vec<u64>> = vec![vec![]];
    for &size in outer {
        let range: Range<u64> = 0..size;
        places = places.iter().flat_map(|rest| range.clone().map(|at| [rest.as_slice(), &[at]].concat())).collect();
    }
    places.iter_mut().for_each(|place| place.push(0));
    places
}

/// The place of `start + place` in an array of these sizes.
fn offset(sizes: &[u64], start: &[u64], place: &[u64]) -> usize {
    let axes = sizes.iter().zip(start).zip(place);
    axes.fold(0, |offset, ((size, start), at)| offset * size + start + at) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(sizes: &[u64]) -> Extent {
        Extent::new(sizes).unwrap()
    }

    #[test]
    fn windows_reach_the_end_of_the_volume() {
        assert_eq!(begins(100, 40, 0.5), [0, 20, 40, 60]);
        assert_eq!(begins(100, 32, 0.25), [0, 24, 48, 68]);
        assert_eq!(begins(10, 10, 0.9), [0]);
    }

    /// What a window gives depends on its place, so that an order or a weight that is wrong shows.
    fn network(window: &Region) -> Vec<f32> {
        (0..2 * window.voxels()).map(|at| (at % 17) as f32 + window.start().iter().sum::<u64>() as f32).collect()
    }

    fn blended(windows: &Windows, region: &Region) -> Vec<f32> {
        let mut sum = windows.sum(region, 2).unwrap();
        for window in windows.meeting(region) {
            sum.add(&window, &network(&window)).unwrap();
        }
        sum.finish().unwrap()
    }

    #[test]
    fn parts_are_bitwise_the_whole() {
        let volume = extent(&[13, 20]);
        for weighting in [Weighting::Constant, Weighting::Gaussian(0.125)] {
            let windows = Windows::new(&volume, &extent(&[8, 8]), 0.5, weighting).unwrap();
            let whole = blended(&windows, &Region::whole(&volume));
            for part in [Region::new([0, 0], [13, 7]).unwrap(), Region::new([3, 11], [9, 9]).unwrap()] {
                let got = blended(&windows, &part);
                for (at, value) in got.iter().enumerate() {
                    let (channel, at) = (at as u64 / part.voxels(), at as u64 % part.voxels());
                    let (y, x) = (part.start()[0] + at / part.size()[1], part.start()[1] + at % part.size()[1]);
                    let want = whole[(channel * volume.voxels() + y * 20 + x) as usize];
                    assert_eq!(value.to_bits(), want.to_bits(), "{weighting:?} {part} {at}");
                }
            }
        }
    }

    #[test]
    fn equal_windows_stay_what_they_are() {
        let windows = Windows::new(&extent(&[9, 9]), &extent(&[4, 16]), 0.25, Weighting::Gaussian(0.125)).unwrap();
        let region = Region::new([2, 0], [7, 9]).unwrap();
        let mut sum = windows.sum(&region, 1).unwrap();
        for window in windows.meeting(&region) {
            sum.add(&window, &vec![3.5; window.voxels() as usize]).unwrap();
        }
        assert!(sum.finish().unwrap().iter().all(|value| (value - 3.5).abs() < 1e-6));
    }

    #[test]
    fn the_middle_counts_most() {
        let weights = weights(9, Weighting::Gaussian(0.125)).unwrap();
        assert_eq!(weights[4], 1.0);
        assert!(weights.windows(2).take(4).all(|pair| pair[0] < pair[1]) && weights[0] == weights[8]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let volume = extent(&[9, 9]);
        assert!(Windows::new(&volume, &extent(&[4, 4]), 1.0, Weighting::Constant).is_err());
        assert!(Windows::new(&volume, &extent(&[4]), 0.5, Weighting::Constant).is_err());
        assert!(Windows::new(&volume, &extent(&[4, 4]), 0.5, Weighting::Gaussian(0.0)).is_err());
        let windows = Windows::new(&volume, &extent(&[4, 4]), 0.5, Weighting::Constant).unwrap();
        assert!(windows.sum(&Region::whole(&volume), 1).unwrap().finish().is_err(), "nothing was added");
        let first = &windows.meeting(&Region::whole(&volume))[0];
        assert!(windows.sum(&Region::whole(&volume), 1).unwrap().add(first, &[1.0]).is_err());
    }
}
