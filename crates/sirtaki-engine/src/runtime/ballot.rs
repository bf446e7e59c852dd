//! What a rank says in a vote: how far it is, whether it goes on and, once per step, how its callers spent their time.
//! All ranks learn the smallest of every number.

use crate::{
    runtime::owner::Owner,
    telemetry::lateness::{Common, NUMBERS, Spent},
};

/// Numbers that every vote has.
const ALWAYS: usize = 2;

/// The numbers: this rank's before the vote, the smallest of all ranks' after it.
#[derive(Debug)]
pub(crate) struct Ballot {
    numbers: [i64; ALWAYS + NUMBERS],
    /// Whether times are among them; all ranks agree on that.
    times: bool,
}

impl Ballot {
    pub(crate) fn new(through: i64, stay: bool, spent: Option<&Spent>) -> Self {
        let mut numbers = [0; ALWAYS + NUMBERS];
        numbers[..ALWAYS].copy_from_slice(&[through, i64::from(stay)]);
        if let Some(spent) = spent {
            numbers[ALWAYS..].copy_from_slice(&spent.numbers());
        }
        Self { numbers, times: spent.is_some() }
    }

    pub(crate) fn as_mut(&mut self) -> &mut [i64] {
        let length = if self.times { ALWAYS + NUMBERS } else { ALWAYS };
        &mut self.numbers[..length]
    }

    pub(crate) fn through(&self) -> i64 {
        self.numbers[0]
    }

    pub(crate) fn stay(&self) -> bool {
        self.numbers[1] != 0
    }

    pub(crate) fn common(&self) -> Option<Common> {
        let numbers = self.numbers[ALWAYS..].try_into().ok().filter(|_| self.times)?;
        Some(Common::from_minimum(numbers))
    }
}

impl Owner {
    /// How callers spent their time, if this is the first vote of a cycle. All ranks have voted on the same batches, so
    /// they agree on when that is. The engine of a process set leaves it to the engine it came from.
    pub(crate) fn spent_for_vote(&mut self) -> Option<Spent> {
        let cycle = self.member.cycles().map(|cycles| (self.member.epoch(), cycles));
        let telemetry = &self.shared.telemetry;
        if !telemetry.carries || cycle.is_none() || cycle == self.compared {
            return None;
        }
        self.compared = cycle;
        Some(telemetry.stream.unsettled())
    }
}
