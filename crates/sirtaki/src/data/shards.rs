//! Every sample exactly once per epoch, in pieces that do not depend on the number of workers.
//!
//! The batch of a step is cut into a fixed number of shards, and a worker computes a run of neighbouring shards one
//! after the other, each as a separate batch. Whatever happens within a shard, its random numbers included, is then the
//! same on 1, 2 or 3 workers, and gradients that are added along a fixed tree over the shards have the same bits. Where
//! the number of workers does not divide that of shards, some have one shard more than others.

use std::ops::Range;

use super::{Partition, Plan, Position, Worker};
use crate::{Error, Result, random::Stream};

/// The rest of an epoch in shards, of which this worker has some. Each of its batches is one shard of one step.
#[derive(Debug, Clone)]
pub struct FixedShards {
    /// Deals out among shards as if each were a worker.
    shards: Partition,
    from: Position,
    global_batch: usize,
    total: usize,
    first: usize,
    mine: usize,
}

/// The shards of every step that a worker has: as many as any other, or one more or fewer.
pub(crate) fn shards_of(worker: Worker, shards: usize) -> Range<usize> {
    let begin = |rank: usize| (rank as u128 * shards as u128 / worker.world.max(1) as u128) as usize;
    begin(worker.rank)..begin(worker.rank + 1)
}

/// One shard of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    /// The number of its batch in the plan of the worker that has it.
    pub batch: usize,
    /// Its step in the plan.
    pub step: usize,
    /// Which shard of the step it is, from 0.
    pub number: usize,
    /// How many samples it has: in the last step of an epoch it may be fewer than in others, or none.
    pub samples: usize,
}

impl FixedShards {
    /// What `worker` does from `position` to the end of the epoch, with `global_batch` samples per step in `shards` shards.
    pub fn new(samples: usize, position: Position, worker: Worker, shards: usize, global_batch: usize) -> Result<Self> {
        worker.check()?;
        if shards < worker.world {
            let problem = format!("{shards} shards are too few for {} workers", worker.world);
            return Err(Error::setting(problem, "take at least as many shards as workers"));
        }
        if global_batch == 0 || !global_batch.is_multiple_of(shards) {
            let problem = format!("a batch of {global_batch} samples cannot be cut into {shards} equal shards");
            return Err(Error::setting(problem, "take a batch size that is a multiple of the number of shards"));
        }
        let (total, own) = (shards, shards_of(worker, shards));
        let shards = Partition::new(samples, position, Worker { rank: 0, world: total }, global_batch / total)?;
        Ok(Self { shards, from: position, global_batch, total, first: own.start, mine: own.len() })
    }

    /// How many shards every step has, over all workers.
    pub fn shards(&self) -> usize {
        self.total
    }

    /// How many steps there are; each has [`FixedShards::per_step`] batches of this worker.
    pub fn steps(&self) -> usize {
        self.shards.batches()
    }

    /// How many shards of a step are this worker's.
    pub fn per_step(&self) -> usize {
        self.mine
    }

    /// Whether these are the shards of that worker.
    #[cfg(feature = "burn")]
    pub(crate) fn is_for(&self, worker: Worker) -> bool {
        shards_of(worker, self.total) == (self.first..self.first + self.mine)
    }

    /// Step and shard of a batch.
    pub fn place(&self, batch: usize) -> (usize, usize) {
        (batch / self.mine, self.first + batch % self.mine)
    }

    /// A batch of this worker as a shard.
    pub fn shard(&self, batch: usize) -> Shard {
        let (step, number) = self.place(batch);
        let samples = self.together(step).saturating_sub(number).div_ceil(self.total);
        Shard { batch, step, number, samples }
    }

    /// How many samples a shard has, except in the last step of an epoch.
    pub fn shard_size(&self) -> usize {
        self.global_batch / self.total
    }

    /// How many samples all shards of a step together have, to weigh one of them.
    pub fn together(&self, step: usize) -> usize {
        self.shards.together(step)
    }

    /// Where training is after that many steps.
    pub fn position(&self, steps: usize) -> Position {
        self.shards.position(steps)
    }

    /// The random numbers of a batch: they belong to its epoch, place in it and shard, not to a worker.
    pub fn stream(&self, purpose: &str, batch: usize) -> Stream {
        let (step, shard) = self.place(batch);
        let seen = self.from.seen + step as u64 * self.global_batch as u64;
        Stream::new(purpose, &[self.from.seed, self.from.epoch, seen, shard as u64])
    }
}

impl Plan for FixedShards {
    fn batches(&self) -> usize {
        self.steps() * self.mine
    }

    fn epoch(&self) -> u64 {
        self.from.epoch
    }

    fn indices(&self, batch: usize, indices: &mut Vec<u32>) {
        let (step, shard) = self.place(batch);
        indices.clear();
        indices.extend(self.shards.part(step, shard));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Seen = (u64, usize, Vec<u32>, u64);

    /// All shards of an epoch in order, each with its first random number: from `from`, at most `steps`, on `world`
    /// workers.
    fn run(samples: usize, from: Position, world: usize, steps: usize) -> (Vec<Seen>, Position) {
        let mut shards = Vec::new();
        let mut position = from;
        for rank in 0..world {
            let plan = FixedShards::new(samples, from, Worker { rank, world }, 12, 24).unwrap();
            let steps = steps.min(plan.steps());
            for batch in 0..steps * plan.per_step() {
                let (step, shard) = plan.place(batch);
                let mut indices = Vec::new();
                plan.indices(batch, &mut indices);
                assert_eq!(plan.shard(batch), Shard { batch, step, number: shard, samples: indices.len() });
                assert!(indices.len() <= plan.shard_size());
                let seen = from.seen + 24 * step as u64;
                shards.push((seen, shard, indices, plan.stream("dropout", batch).bits()));
            }
            position = plan.position(steps);
        }
        shards.sort();
        (shards, position)
    }

    proptest! {
        #[test]
        fn shards_are_the_same_on_any_number_of_workers(samples in 0_usize..200, seed: u64) {
            let one = run(samples, Position::start(seed), 1, usize::MAX).0;
            for world in [2, 3, 4, 5, 6, 7, 11, 12] {
                prop_assert_eq!(&run(samples, Position::start(seed), world, usize::MAX).0, &one);
            }
            let mut all: Vec<u32> = one.into_iter().flat_map(|(_, _, indices, _)| indices).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..samples as u32).collect::<Vec<_>>());
        }

        #[test]
        fn stopped_and_continued_on_others_shards_are_the_same(samples in 1_usize..200, seed: u64, stop in 1_usize..9) {
            let whole = run(samples, Position::start(seed), 4, usize::MAX).0;
            let (mut shards, position) = run(samples, Position::start(seed), 2, stop);
            if position.epoch == 0 {
                shards.extend(run(samples, position, 5, usize::MAX).0);
            }
            prop_assert_eq!(shards, whole);
        }
    }

    #[test]
    fn random_numbers_of_shards_differ() {
        let mut firsts: Vec<u64> =
            run(240, Position::start(1), 1, usize::MAX).0.into_iter().map(|shard| shard.3).collect();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), 120);
    }

    #[test]
    fn workers_differ_by_one_shard_at_most() {
        for (world, shards) in [(1, 8), (3, 8), (5, 8), (8, 8), (7, 100)] {
            let all: Vec<Range<usize>> = (0..world).map(|rank| shards_of(Worker { rank, world }, shards)).collect();
            assert!(all.windows(2).all(|pair| pair[0].end == pair[1].start), "{all:?}");
            assert_eq!((all[0].start, all[world - 1].end), (0, shards));
            assert!(
                all.iter().all(|own| own.len() == shards / world || own.len() == shards.div_ceil(world)),
                "{all:?}"
            );
        }
    }

    #[test]
    fn what_cannot_be_cut_is_refused() {
        let new =
            |world, shards, batch| FixedShards::new(10, Position::start(0), Worker { rank: 0, world }, shards, batch);
        assert!(new(2, 4, 8).is_ok() && new(3, 4, 8).is_ok());
        assert_eq!(new(8, 4, 8).unwrap_err().to_string(), "4 shards are too few for 8 workers");
        assert_eq!(new(1, 4, 6).unwrap_err().to_string(), "a batch of 6 samples cannot be cut into 4 equal shards");
        assert!(new(1, 0, 6).is_err() && new(1, 4, 0).is_err() && new(0, 4, 8).is_err());
    }
}
