//! Samples that are made up, so that only computing and communicating is measured.

use crate::{Error, Result, data::Samples, random::Stream, train::Synthetic};

/// How many there seem to be.
const COUNT: usize = 100_000;
/// Different samples begin at different places of the same noise.
const SHIFTS: usize = 1024;

/// Noise of a sample's shape.
pub(super) struct Noise {
    made: Synthetic,
    values: Vec<f32>,
}

impl Noise {
    pub(super) fn new(made: Synthetic) -> Result<Self> {
        /// No network here takes more.
        const MOST: usize = 1 << 28;
        let size = made.shape.iter().try_fold(1_usize, |size, &side| size.checked_mul(side));
        let Some(size) = size.filter(|size| (1..=MOST).contains(size) && made.classes > 0) else {
            let problem = format!("samples of shape {:?} in {} classes cannot be made up", made.shape, made.classes);
            return Err(Error::setting(problem, "take a smaller --image-size"));
        };
        let mut stream = Stream::new("noise", &[]);
        Ok(Self { made, values: (0..size + SHIFTS).map(|_| 2.0 * stream.unit() - 1.0).collect() })
    }
}

impl Samples for Noise {
    fn count(&self) -> usize {
        COUNT
    }

    fn shape(&self) -> &[usize] {
        &self.made.shape
    }

    fn classes(&self) -> usize {
        self.made.classes
    }

    fn read(&self, index: usize, values: &mut [f32]) -> Result<u32> {
        let begin = index % SHIFTS;
        values.copy_from_slice(&self.values[begin..begin + values.len()]);
        Ok((index % self.made.classes) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_has_the_shape_that_was_asked_for() {
        let noise = Noise::new(Synthetic { shape: [3, 4, 5], classes: 7 }).unwrap();
        let (mut one, mut other) = ([0.0; 60], [0.0; 60]);
        assert_eq!((noise.read(8, &mut one).unwrap(), noise.read(COUNT - 1, &mut other).unwrap()), (1, 4));
        assert_ne!(one, other);
        assert!(one.iter().all(|value| (-1.0..1.0).contains(value)));
        assert!(Noise::new(Synthetic { shape: [3, usize::MAX, 5], classes: 7 }).is_err());
    }
}
