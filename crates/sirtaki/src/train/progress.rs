//! The scores of all workers' steps, added up while workers may be ahead of each other.
//!
//! Every worker hands in its score of every step. Where all are in step it waits for the others' at once; otherwise for
//! those of as many steps ago as the fastest may be ahead. So all workers see the same sums after the same steps, and
//! notice at the same step that some of them want to stop.

use std::collections::VecDeque;

use sirtaki_comm::{DType, Reduction};
use sirtaki_engine::{Operation, Request, Tensor, Ticket};

use super::meter::Score;
use crate::{Result, World, world::elements};

/// Steps by which workers may be ahead in a run where nothing else limits that.
const FAR: u64 = 64;

/// What all workers say of a step.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Said {
    pub(super) score: Score,
    /// How many of them want to stop.
    pub(super) stops: usize,
    /// Whether others will take part from the next step on.
    pub(super) changes: bool,
}

/// Steps whose sums are not known yet, oldest first.
pub(super) struct StepScores {
    ahead: usize,
    steps: usize,
    pending: VecDeque<(String, Ticket)>,
}

impl StepScores {
    /// For workers of which the fastest may be so many steps ahead, if that is limited.
    pub(super) fn new(ahead: Option<u64>) -> Self {
        let ahead = ahead.map_or(FAR, |ahead| ahead.min(FAR)) as usize;
        Self { ahead, steps: 0, pending: VecDeque::new() }
    }

    /// Hands in what this worker says of a step, and returns what all say of the one that is due, if one is.
    pub(super) fn step(&mut self, world: &World, mine: Said) -> Result<Option<Said>> {
        let [loss, right, count] = mine.score.to_array();
        let values = vec![loss, right, count, mine.stops as f64, f64::from(u8::from(mine.changes))];
        let name = match self.ahead {
            0 => "progress".to_owned(),
            ahead => format!("progress {}", self.steps % (ahead + 1)),
        };
        self.steps += 1;
        let request = Request::new(&name, Operation::AllReduce(Reduction::SUM), DType::F64, &[values.len()]);
        self.pending.push_back((name, world.engine().submit(request, Tensor::from_vec(values))));
        if self.pending.len() > self.ahead { self.oldest() } else { Ok(None) }
    }

    /// What all say of the oldest step that is left, if there is one.
    pub(super) fn oldest(&mut self) -> Result<Option<Said>> {
        let Some((name, ticket)) = self.pending.pop_front() else { return Ok(None) };
        let sums = elements::<f64>(&name, ticket.wait_one()?)?;
        let [loss, right, count, stops, changes] = std::array::from_fn(|place| sums.get(place).copied().unwrap_or(0.0));
        Ok(Some(Said { score: Score { loss, right, count }, stops: stops as usize, changes: changes > 0.0 }))
    }
}
