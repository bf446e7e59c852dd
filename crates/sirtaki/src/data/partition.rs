//! Every sample exactly once per epoch, over all workers.
//!
//! An epoch is one order of all samples, drawn from (seed, epoch). A step takes the next `workers × batch` samples of it,
//! and the workers deal them out like cards: worker `r` has every `workers`-th one from the `r`-th. So a step has the
//! same samples whatever the number of workers, as long as `workers × batch` stays the same, and in the last step of an
//! epoch, which may be short, workers differ by at most one sample. The rest of an epoch is described by how many
//! samples were seen, so any number of workers can continue it.

use serde::{Deserialize, Serialize};

use super::{Plan, Worker};
use crate::{Error, Result, random::Stream};

/// How far training has come in its data: all that is needed to go on, on any number of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Decides the order of samples.
    pub seed: u64,
    /// The epoch, from 0.
    pub epoch: u64,
    /// How many samples of this epoch all workers together have seen.
    pub seen: u64,
}

impl Position {
    /// The very beginning.
    pub fn start(seed: u64) -> Self {
        Self { seed, epoch: 0, seen: 0 }
    }
}

/// The rest of an epoch, dealt out among workers.
#[derive(Debug, Clone)]
pub struct Partition {
    order: Vec<u32>,
    position: Position,
    worker: Worker,
    /// Samples per step of all workers.
    all: usize,
}

impl Partition {
    /// What `worker` does from `position` to the end of the epoch, with `batch` samples per worker and step.
    pub fn new(samples: usize, position: Position, worker: Worker, batch: usize) -> Result<Self> {
        worker.check()?;
        match batch.checked_mul(worker.world) {
            Some(all) if batch > 0 => Self::of_all(samples, position, worker, all),
            _ => {
                let problem = format!("batches of {batch} samples on {} workers cannot be made", worker.world);
                Err(Error::setting(problem, "give each worker at least one sample per step"))
            }
        }
    }

    /// The same with `all` samples per step of all workers, of which some have one more than others if their number does
    /// not divide it.
    pub fn of_all(samples: usize, position: Position, worker: Worker, all: usize) -> Result<Self> {
        worker.check()?;
        if all == 0 {
            return Err(Error::setting("a step without samples cannot be made", "give a step at least one sample"));
        }
        let Ok(count) = u32::try_from(samples) else {
            let problem = format!("{samples} samples are more than the {} that can be numbered", u32::MAX);
            return Err(Error::setting(problem, "split the data set"));
        };
        if position.seen > u64::from(count) {
            let problem =
                format!("{} samples of the epoch are seen already, but there are only {count}", position.seen);
            return Err(Error::setting(problem, "continue with the data set that training began with"));
        }
        let mut order: Vec<u32> = (0..count).collect();
        Stream::new("order of samples", &[position.seed, position.epoch]).shuffle(&mut order);
        Ok(Self { order, position, worker, all })
    }

    /// Where training is after that many batches of every worker; after the last one, at the next epoch's beginning.
    pub fn position(&self, batches: usize) -> Position {
        let Position { seed, epoch, .. } = self.position;
        match self.range(batches).start {
            start if start < self.order.len() => Position { seed, epoch, seen: start as u64 },
            _ => Position { seed, epoch: epoch + 1, seen: 0 },
        }
    }

    /// How many samples all workers together have in a batch, to weigh this worker's part of it.
    pub fn together(&self, batch: usize) -> usize {
        self.range(batch).len()
    }

    /// The random numbers of this worker's part of a batch, such as those of dropout. They follow from the position of
    /// training, so that nothing has to be saved to resume.
    pub fn stream(&self, purpose: &str, batch: usize) -> Stream {
        let Position { seed, epoch, .. } = self.position;
        Stream::new(purpose, &[seed, epoch, self.range(batch).start as u64, self.worker.rank as u64])
    }

    /// What the mean over this worker's part of a batch has to be multiplied by, so that the mean over workers is the
    /// mean over all samples: 1, but for the last batch, where some workers have one sample fewer.
    pub fn weight(&self, batch: usize) -> f64 {
        let mine = self.part(batch, self.worker.rank).count();
        (mine * self.worker.world) as f64 / self.together(batch).max(1) as f64
    }

    /// What a worker has in a batch.
    pub(super) fn part(&self, batch: usize, worker: usize) -> impl Iterator<Item = u32> {
        self.order[self.range(batch)].iter().copied().skip(worker).step_by(self.worker.world)
    }

    /// The places of a batch of all workers in the order.
    fn range(&self, batch: usize) -> std::ops::Range<usize> {
        let (end, all) = (self.order.len(), self.all);
        let start = all.saturating_mul(batch).saturating_add(self.position.seen as usize).min(end);
        start..start.saturating_add(all).min(end)
    }
}

impl Plan for Partition {
    /// The same on all workers. In the last batch a worker may have one sample fewer than others, or none.
    fn batches(&self) -> usize {
        let left = self.order.len() - self.position.seen as usize;
        left.div_ceil(self.all)
    }

    fn epoch(&self) -> u64 {
        self.position.epoch
    }

    fn indices(&self, batch: usize, indices: &mut Vec<u32>) {
        indices.clear();
        indices.extend(self.part(batch, self.worker.rank));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn weights_make_up_for_samples_that_some_lack() {
        let weights = |batch| {
            let worker = |rank| Worker { rank, world: 3 };
            [0, 1, 2].map(|rank| Partition::new(7, Position::start(0), worker(rank), 2).unwrap().weight(batch))
        };
        assert_eq!((weights(0), weights(1)), ([1.0; 3], [3.0, 0.0, 0.0]));
    }

    #[test]
    fn a_step_that_workers_cannot_share_equally_is_shared_as_well_as_possible() {
        let plan = |rank| Partition::of_all(20, Position::start(0), Worker { rank, world: 3 }, 8).unwrap();
        let plans = [plan(0), plan(1), plan(2)];
        let sizes = |step| plans.each_ref().map(|plan| plan.part(step, plan.worker.rank).count());
        assert_eq!([sizes(0), sizes(1), sizes(2)], [[3, 3, 2], [3, 3, 2], [2, 1, 1]]);
        assert_eq!(plans.each_ref().map(|plan| plan.weight(0)), [9.0 / 8.0, 9.0 / 8.0, 6.0 / 8.0]);
        assert!(plans.iter().all(|plan| plan.batches() == 3 && plan.position(2).seen == 16));
        assert!(Partition::of_all(20, Position::start(0), Worker { rank: 0, world: 3 }, 0).is_err());
    }

    /// What all workers see in `steps` steps at most: the indices of each worker, and the position afterwards.
    fn run(samples: usize, from: Position, world: usize, batch: usize, steps: usize) -> (Vec<Vec<u32>>, Position) {
        let plans = (0..world).map(|rank| Partition::new(samples, from, Worker { rank, world }, batch).unwrap());
        let mut position = from;
        let seen = plans.map(|plan| {
            let (mut seen, mut indices) = (Vec::new(), Vec::new());
            let steps = steps.min(plan.batches());
            for step in 0..steps {
                plan.indices(step, &mut indices);
                assert!(indices.len() <= batch && plan.together(step) >= indices.len());
                seen.extend(&indices);
            }
            position = plan.position(steps);
            seen
        });
        (seen.collect(), position)
    }

    #[test]
    fn random_numbers_belong_to_the_place_and_the_worker() {
        let plan = |seen, rank| {
            Partition::new(100, Position { seen, ..Position::start(1) }, Worker { rank, world: 2 }, 5).unwrap()
        };
        let first = |plan: &Partition, batch| plan.stream("dropout", batch).bits();
        assert_eq!(first(&plan(0, 1), 3), first(&plan(20, 1), 1));
        assert_ne!(first(&plan(0, 1), 3), first(&plan(0, 0), 3));
        assert_ne!(first(&plan(0, 1), 3), first(&plan(0, 1), 2));
    }

    fn sorted(parts: &[Vec<u32>]) -> Vec<u32> {
        let mut all = parts.concat();
        all.sort_unstable();
        all
    }

    proptest! {
        #[test]
        fn every_sample_once_and_nobody_has_two_more(samples in 0_usize..200, seed: u64, world in 1_usize..9, batch in 1_usize..20) {
            let start = Position::start(seed);
            let (parts, end) = run(samples, start, world, batch, usize::MAX);
            prop_assert_eq!(sorted(&parts), (0..samples as u32).collect::<Vec<_>>());
            let sizes = parts.iter().map(Vec::len);
            prop_assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1);
            prop_assert_eq!(end, Position { seed, epoch: 1, seen: 0 });
        }

        #[test]
        fn stopped_and_continued_on_others_every_sample_once(
            samples in 1_usize..200, seed: u64, runs in prop::collection::vec((1_usize..6, 1_usize..8, 1_usize..6), 1..5),
        ) {
            let mut seen = Vec::new();
            let mut position = Position::start(seed);
            for (world, batch, steps) in runs {
                let (parts, next) = run(samples, position, world, batch, steps);
                seen.extend(parts);
                position = next;
                if position.epoch == 1 {
                    break;
                }
            }
            if position.epoch == 0 {
                seen.extend(run(samples, position, 3, 7, usize::MAX).0);
            }
            prop_assert_eq!(sorted(&seen), (0..samples as u32).collect::<Vec<_>>());
        }

        #[test]
        fn a_step_has_the_same_samples_on_any_number_of_workers(samples in 1_usize..300, seed: u64, step in 0_usize..10) {
            let mut all = Vec::new();
            for world in [1, 2, 3, 4, 6, 12] {
                let mut parts = Vec::new();
                for rank in 0..world {
                    let plan = Partition::new(samples, Position::start(seed), Worker { rank, world }, 12 / world).unwrap();
                    parts.push(plan.part(step, rank).collect::<Vec<_>>());
                }
                all.push(sorted(&parts));
            }
            prop_assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
        }
    }

    #[test]
    fn epochs_and_seeds_have_their_own_order() {
        let order = |seed, epoch| {
            let position = Position { seed, epoch, seen: 0 };
            run(50, position, 1, 50, 1).0.concat()
        };
        assert_eq!(order(1, 0), order(1, 0));
        assert_ne!(order(1, 0), order(1, 1));
        assert_ne!(order(1, 0), order(2, 0));
    }

    /// Must never change: training resumes from checkpoints in this order.
    #[test]
    fn the_order_stays_what_it_is() {
        let (parts, _) = run(12, Position::start(42), 1, 12, 1);
        assert_eq!(parts[0], [5, 7, 6, 10, 8, 0, 3, 1, 4, 11, 9, 2]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let new = |seen, rank, world, batch| {
            Partition::new(10, Position { seed: 0, epoch: 0, seen }, Worker { rank, world }, batch)
        };
        assert!(new(10, 0, 1, 1).is_ok());
        for error in [new(11, 0, 1, 1), new(0, 2, 2, 1), new(0, 0, 0, 1), new(0, 0, 1, 0), new(0, 0, 3, usize::MAX)] {
            assert!(error.unwrap_err().hint().is_some());
        }
    }
}
