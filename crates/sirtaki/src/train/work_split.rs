//! Which worker computes what in an epoch: by worker, or by shards that do not depend on the number of workers.

use crate::{
    Result,
    data::{FixedShards, Partition, Plan, Position, Worker},
};

/// The rest of an epoch, shared out.
#[derive(Debug, Clone)]
pub(super) enum Shares {
    /// A batch per worker and step.
    Workers(Partition),
    /// Some shards per worker and step.
    Shards(FixedShards),
}

impl Shares {
    /// From `position` to the end of the epoch, with so many samples per step of all workers.
    pub(super) fn new(
        samples: usize,
        position: Position,
        worker: Worker,
        shards: Option<usize>,
        all: usize,
    ) -> Result<Self> {
        Ok(match shards {
            None => Shares::Workers(Partition::of_all(samples, position, worker, all)?),
            Some(shards) => Shares::Shards(FixedShards::new(samples, position, worker, shards, all)?),
        })
    }

    pub(super) fn steps(&self) -> usize {
        match self {
            Shares::Workers(plan) => plan.batches(),
            Shares::Shards(plan) => plan.steps(),
        }
    }

    /// How many samples all workers together have in a step.
    pub(super) fn together(&self, step: usize) -> usize {
        match self {
            Shares::Workers(plan) => plan.together(step),
            Shares::Shards(plan) => plan.together(step),
        }
    }

    /// Where training is after that many steps.
    pub(super) fn position(&self, steps: usize) -> Position {
        match self {
            Shares::Workers(plan) => plan.position(steps),
            Shares::Shards(plan) => plan.position(steps),
        }
    }
}

impl Plan for Shares {
    fn batches(&self) -> usize {
        match self {
            Shares::Workers(plan) => plan.batches(),
            Shares::Shards(plan) => plan.batches(),
        }
    }

    fn epoch(&self) -> u64 {
        match self {
            Shares::Workers(plan) => plan.epoch(),
            Shares::Shards(plan) => plan.epoch(),
        }
    }

    fn indices(&self, batch: usize, indices: &mut Vec<u32>) {
        match self {
            Shares::Workers(plan) => plan.indices(batch, indices),
            Shares::Shards(plan) => plan.indices(batch, indices),
        }
    }
}
