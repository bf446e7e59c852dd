//! Some samples of a data set, and a test set for data sets that come without one.

use std::sync::Arc;

use super::{Samples, Split};
use crate::{Error, Result, random::Stream};

/// One sample in this many is to test with.
const TESTED: usize = 10;

/// Some samples of others.
#[derive(Clone)]
pub struct Subset {
    samples: Arc<dyn Samples>,
    indices: Vec<u32>,
}

impl std::fmt::Debug for Subset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Subset({} of {} samples)", self.indices.len(), self.samples.count())
    }
}

impl Subset {
    /// Splits off a tenth of the samples, at least one, to test with. Which they are follows from how many samples there
    /// are and from nothing else, so that it is the same on every worker, in every run and with every seed.
    pub fn split_off(samples: Arc<dyn Samples>) -> Result<Split<Subset>> {
        let found = samples.count();
        let count = u32::try_from(found).ok().filter(|&count| count >= 2).ok_or_else(|| {
            let problem = format!("a test set cannot be split off from {found} samples");
            Error::setting(problem, format!("give from 2 to {} samples", u32::MAX))
        })?;
        let mut order: Vec<u32> = (0..count).collect();
        Stream::new("test set", &[]).shuffle(&mut order);
        let mut train = order.split_off((found / TESTED).max(1));
        train.sort_unstable();
        order.sort_unstable();
        let part = |indices| Subset { samples: Arc::clone(&samples), indices };
        Ok(Split { train: part(train), test: part(order) })
    }
}

impl Samples for Subset {
    fn count(&self) -> usize {
        self.indices.len()
    }

    fn shape(&self) -> &[usize] {
        self.samples.shape()
    }

    fn classes(&self) -> usize {
        self.samples.classes()
    }

    fn read(&self, index: usize, values: &mut [f32]) -> Result<u32> {
        match self.indices.get(index) {
            Some(&index) => self.samples.read(index as usize, values),
            None => {
                let problem = format!("there is no sample {index} of {}", self.indices.len());
                Err(Error::setting(problem, "ask for samples that there are"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::data::{Array, Memory, Normalise, Values};

    fn numbered(count: usize) -> Arc<dyn Samples> {
        let values = Array::new(vec![count, 1], Values::I32((0..count as i32).collect())).unwrap();
        let labels = Array::new(vec![count], Values::U8(vec![0; count])).unwrap();
        Arc::new(Memory::new(values, labels, 1, &Normalise::none()).unwrap())
    }

    fn all(samples: &Subset) -> BTreeSet<u32> {
        let mut value = [0.0];
        let read = |index| samples.read(index, &mut value).map(|_| value[0] as u32).unwrap();
        (0..samples.count()).map(read).collect()
    }

    #[test]
    fn every_sample_is_in_one_of_both_and_a_tenth_is_to_test_with() {
        for (count, tested) in [(2, 1), (9, 1), (20, 2), (1234, 123)] {
            let Split { train, test } = Subset::split_off(numbered(count)).unwrap();
            assert_eq!((train.count(), test.count()), (count - tested, tested));
            assert_eq!(all(&train).union(&all(&test)).count(), count);
            assert!(train.read(train.count(), &mut [0.0]).is_err());
        }
        for count in [0, 1] {
            assert!(Subset::split_off(numbered(count)).unwrap_err().to_string().contains("cannot be split off"));
        }
    }

    /// Must never change: a run that resumes must not train with what it was tested with.
    #[test]
    fn the_test_set_stays_what_it_is() {
        let Split { test, .. } = Subset::split_off(numbered(40)).unwrap();
        assert_eq!(test.indices, Subset::split_off(numbered(40)).unwrap().test.indices);
        assert_ne!(test.indices, [0, 1, 2, 3]);
    }
}
