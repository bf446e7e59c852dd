//! Samples that stand in for those that cannot be read.
//!
//! That an image is damaged is seen when it is decoded, perhaps hours after the run has begun. The next one that can be
//! read then takes its place, which is the same one on every worker and in every epoch, so the bits of a result stay
//! those of any number of workers. What was replaced is remembered, to be told.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{Error, Result, data::Samples};

/// Samples, with others in the place of those that cannot be read.
pub(in crate::train) struct Replaced {
    samples: Arc<dyn Samples>,
    /// Why the sample of a number could not be read.
    failed: Mutex<BTreeMap<usize, String>>,
}

impl Replaced {
    pub(super) fn new(samples: Arc<dyn Samples>) -> Self {
        Self { samples, failed: Mutex::default() }
    }

    /// What this worker could not read since it was last asked, a line for each.
    pub(in crate::train) fn news(&self, known: &mut BTreeMap<usize, String>) -> Vec<String> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let new: Vec<_> = failed.iter().filter(|(index, _)| !known.contains_key(index)).collect();
        let lines = new.iter().map(|(_, why)| (*why).clone()).collect();
        known.extend(new.into_iter().map(|(index, why)| (*index, why.clone())));
        lines
    }
}

impl Samples for Replaced {
    fn count(&self) -> usize {
        self.samples.count()
    }

    fn shape(&self) -> &[usize] {
        self.samples.shape()
    }

    fn classes(&self) -> usize {
        self.samples.classes()
    }

    fn read(&self, index: usize, values: &mut [f32]) -> Result<u32> {
        let count = self.count();
        let mut first = None;
        for place in (index..count).chain(0..index) {
            match self.samples.read(place, values) {
                Ok(label) => return Ok(label),
                Err(error @ (Error::File { .. } | Error::Io { .. })) => {
                    let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
                    failed.entry(place).or_insert_with(|| error.to_string());
                    first.get_or_insert(error);
                }
                Err(other) => return Err(other),
            }
        }
        Err(first.unwrap_or_else(|| {
            Error::setting(format!("there is no sample {index} of {count}"), "ask for samples that there are")
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Five samples, of which some are damaged.
    struct Damaged(Vec<usize>);

    impl Samples for Damaged {
        fn count(&self) -> usize {
            5
        }

        fn shape(&self) -> &[usize] {
            &[1]
        }

        fn classes(&self) -> usize {
            5
        }

        fn read(&self, index: usize, _: &mut [f32]) -> Result<u32> {
            match self.0.contains(&index) {
                true => Err(Error::file(Path::new(&format!("{index}.png")), "damaged", "")),
                false => Ok(index as u32),
            }
        }
    }

    #[test]
    fn the_next_that_can_be_read_takes_the_place() {
        let samples = Replaced::new(Arc::new(Damaged(vec![1, 2, 4])));
        let read: Vec<u32> = (0..5).map(|index| samples.read(index, &mut [0.0]).unwrap()).collect();
        assert_eq!(read, [0, 3, 3, 3, 0]);
        let mut known = BTreeMap::new();
        assert_eq!(samples.news(&mut known), ["`1.png`: damaged", "`2.png`: damaged", "`4.png`: damaged"]);
        assert!(samples.news(&mut known).is_empty());
        let none = Replaced::new(Arc::new(Damaged((0..5).collect())));
        assert_eq!(none.read(3, &mut [0.0]).unwrap_err().to_string(), "`3.png`: damaged");
    }
}
