//! Samples drawn at random, by each worker for itself.
//!
//! No worker has to see any particular sample, so workers need not know how many they are, and the loss of one loses no
//! samples. A batch's draws depend only on (seed, worker, number of the batch), so resuming means continuing to count.

use super::{Plan, Worker};
use crate::{Error, Result, random::Stream};

/// Batches of samples drawn independently and uniformly.
#[derive(Debug, Clone)]
pub struct Draws {
    samples: u32,
    seed: u64,
    rank: u64,
    first: u64,
    batch: usize,
    batches: usize,
}

impl Draws {
    /// `batches` batches of `batch` samples for `worker`, of which `first` were drawn before.
    pub fn new(
        samples: usize,
        (seed, first): (u64, u64),
        worker: Worker,
        batch: usize,
        batches: usize,
    ) -> Result<Self> {
        worker.check()?;
        match u32::try_from(samples) {
            Ok(samples) if samples > 0 => Ok(Self { samples, seed, rank: worker.rank as u64, first, batch, batches }),
            _ => {
                let problem = format!("from {samples} samples none can be drawn");
                Err(Error::setting(problem, format!("there must be from 1 to {}", u32::MAX)))
            }
        }
    }
}

impl Plan for Draws {
    fn batches(&self) -> usize {
        self.batches
    }

    fn indices(&self, batch: usize, indices: &mut Vec<u32>) {
        let number = self.first.wrapping_add(batch as u64);
        let mut stream = Stream::new("draws of samples", &[self.seed, self.rank, number]);
        indices.clear();
        indices.extend((0..self.batch).map(|_| stream.below(self.samples.into()) as u32));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(seed: u64, first: u64, rank: usize, batches: usize) -> Vec<Vec<u32>> {
        let draws = Draws::new(20, (seed, first), Worker { rank, world: 4 }, 50, batches).unwrap();
        let draw = |batch| {
            let mut indices = vec![99];
            draws.indices(batch, &mut indices);
            indices
        };
        (0..draws.batches()).map(draw).collect()
    }

    #[test]
    fn all_samples_have_equal_chances() {
        let mut counts = [0; 20];
        draw(1, 0, 0, 400).concat().into_iter().for_each(|index| counts[index as usize] += 1);
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
    }

    #[test]
    fn workers_seeds_and_batches_differ_and_repeat() {
        assert_eq!(draw(1, 0, 2, 3), draw(1, 0, 2, 3));
        assert_ne!(draw(1, 0, 2, 3), draw(1, 0, 3, 3));
        assert_ne!(draw(1, 0, 2, 3), draw(2, 0, 2, 3));
        assert_ne!(draw(1, 0, 2, 2)[0], draw(1, 0, 2, 2)[1]);
    }

    #[test]
    fn continuing_is_counting_on() {
        assert_eq!(draw(1, 0, 1, 10)[4..], draw(1, 4, 1, 6)[..]);
    }

    #[test]
    fn nothing_to_draw_from_is_refused() {
        assert!(Draws::new(0, (1, 0), Worker { rank: 0, world: 1 }, 1, 1).is_err());
        assert!(Draws::new(1, (1, 0), Worker { rank: 1, world: 1 }, 1, 1).is_err());
    }
}
