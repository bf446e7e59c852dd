//! What the parts of this module share: something to read samples from, and a plan of which to read.

use super::Array;
use crate::{Error, Result};

/// Something that has numbered samples: values of one shape, and a class each.
///
/// Read by several threads at a time.
pub trait Samples: Send + Sync {
    /// How many there are.
    fn count(&self) -> usize;

    /// The dimensions of one sample: channels, height and width for images.
    fn shape(&self) -> &[usize];

    /// How many classes there are; every label is less than this.
    fn classes(&self) -> usize;

    /// Writes the values of sample `index` to `values`, which has the size of one sample, and returns its label.
    fn read(&self, index: usize, values: &mut [f32]) -> Result<u32>;

    /// The same for an epoch. Samples that are drawn or changed at random differ from epoch to epoch; all others do not.
    fn read_in(&self, _epoch: u64, index: usize, values: &mut [f32]) -> Result<u32> {
        self.read(index, values)
    }
}

/// Which samples batches hold: a pure function of the batch's number, so that threads can make batches in any order and
/// a run can resume anywhere.
pub trait Plan: Send + Sync {
    /// How many batches there are.
    fn batches(&self) -> usize;

    /// The epoch that they belong to.
    fn epoch(&self) -> u64 {
        0
    }

    /// Writes the numbers of the samples of a batch to `indices`, which is emptied first. A batch may be empty.
    fn indices(&self, batch: usize, indices: &mut Vec<u32>);
}

/// One of the workers that share the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worker {
    /// Which one, from 0.
    pub rank: usize,
    /// How many there are.
    pub world: usize,
}

impl Worker {
    pub(crate) fn check(self) -> Result<()> {
        if self.rank < self.world {
            return Ok(());
        }
        let problem = format!("there is no worker {} of {}", self.rank, self.world);
        Err(Error::setting(problem, "workers are numbered from 0"))
    }
}

/// Samples to train with and samples to test with.
#[derive(Debug, Clone)]
pub struct Split<S> {
    /// To train with.
    pub train: S,
    /// To test with.
    pub test: S,
}

/// Makes values of each channel have about mean 0 and deviation 1: `(value - mean) / deviation`. Bytes are mapped to 0
/// to 1 first.
#[derive(Debug, Clone, PartialEq)]
pub struct Normalise {
    channels: Vec<(f32, f32)>,
}

impl Normalise {
    /// Bytes become 0 to 1, other values stay as they are.
    pub fn none() -> Self {
        Self { channels: Vec::new() }
    }

    /// With this mean and deviation for each channel, or with one pair for all.
    pub fn by(channels: &[(f32, f32)]) -> Result<Self> {
        for (number, (mean, deviation)) in channels.iter().enumerate() {
            if !mean.is_finite() || !deviation.is_normal() || *deviation < 0.0 {
                let problem = format!("channel {number} cannot be normalised by mean {mean} and deviation {deviation}");
                return Err(Error::setting(problem, "the mean must be a number and the deviation a positive one"));
            }
        }
        Ok(Self { channels: channels.to_vec() })
    }

    /// With the mean and deviation that each channel of an array of samples has; refused if a value is not finite.
    pub fn measured(samples: &Array) -> Result<Self> {
        let count = samples.shape().first().copied().unwrap_or(0);
        // As in `Memory`: two dimensions are an image without colours.
        let channels = if samples.shape().len() == 3 { 1 } else { samples.shape().get(1).copied().unwrap_or(1) };
        let size = samples.values().len() / count.max(1);
        let plane = (size / channels.max(1)).max(1);
        let mut sums = vec![(0.0, 0.0); channels];
        for (place, value) in samples.values().fractions().enumerate() {
            if !value.is_finite() {
                let problem = format!("a value of sample {} is {value}", place / size);
                return Err(Error::setting(problem, "remove the sample, or replace the value by a number"));
            }
            let (sum, squares) = &mut sums[place / plane % channels];
            *sum += value;
            *squares += value * value;
        }
        let each = (count * plane).max(1) as f64;
        let normal = |(sum, squares): (f64, f64)| {
            let mean = sum / each;
            let deviation = (squares / each - mean * mean).max(0.0).sqrt() as f32;
            // What is always the same says nothing, and stays so.
            (mean as f32, if deviation > f32::EPSILON { deviation } else { 1.0 })
        };
        Self::by(&sums.into_iter().map(normal).collect::<Vec<_>>())
    }

    /// Fails if the first dimension of `shape` is not the number of channels given.
    pub(crate) fn check(&self, shape: &[usize]) -> Result<()> {
        let channels = shape.first().copied().unwrap_or(1);
        if self.channels.len() <= 1 || self.channels.len() == channels {
            return Ok(());
        }
        let problem = format!("mean and deviation are given for {} channels of {channels}", self.channels.len());
        Err(Error::setting(problem, "give one pair, or one for each channel, the first dimension of a sample"))
    }

    /// How many differently treated parts a sample has.
    pub(crate) fn parts(&self) -> usize {
        self.channels.len().max(1)
    }

    /// The normalised value of a part's value.
    pub(crate) fn apply(&self, part: usize, value: f32) -> f32 {
        match self.channels.get(part) {
            Some((mean, deviation)) => (value - mean) / deviation,
            None => value,
        }
    }

    /// The normalised value of each byte of a part: a table, because a lookup is cheaper than a division.
    pub(crate) fn table(&self, part: usize) -> [f32; 256] {
        std::array::from_fn(|byte| self.apply(part, byte as f32 / 255.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Values;

    #[test]
    fn mean_and_deviation_are_those_of_each_channel() {
        let array = |shape: &[usize], values| Array::new(shape.to_vec(), values).unwrap();
        let bytes = array(&[2, 2, 1, 2], Values::U8(vec![0, 255, 51, 51, 255, 0, 51, 51]));
        assert_eq!(Normalise::measured(&bytes).unwrap(), Normalise::by(&[(0.5, 0.5), (0.2, 1.0)]).unwrap());
        let rows = array(&[2, 2], Values::F64(vec![1.0, 10.0, 3.0, 30.0]));
        assert_eq!(Normalise::measured(&rows).unwrap(), Normalise::by(&[(2.0, 1.0), (20.0, 10.0)]).unwrap());
        let grey = array(&[1, 2, 2], Values::I32(vec![1, 3, 1, 3]));
        assert_eq!(Normalise::measured(&grey).unwrap(), Normalise::by(&[(2.0, 1.0)]).unwrap());
        let wrong = array(&[2, 1], Values::F32(vec![1.0, f32::NAN]));
        assert_eq!(Normalise::measured(&wrong).unwrap_err().to_string(), "a value of sample 1 is NaN");
    }
}
