//! Stopped trials that go on after all.
//!
//! Asynchronous halving stops most trials early on, when little is known. Once more trials have come as far, one of those may
//! turn out to be among the best. Nothing can be added to a trial that is over, neither here nor in Optuna, so what goes on is
//! a new trial with the same parameters and the same reports so far; an attribute says which one it continues. It starts from
//! the checkpoints of that one, and it counts as the same trial: neither towards the limit nor twice when trials are compared.

use std::collections::HashSet;

use super::{Asked, CONTINUES, State, Study, Trial};
use crate::{
    journal::{Json, NewTrial, Operation, OptunaState, Owner, Time},
    stopper::Curve,
};

impl Study {
    /// The first of the trials that led to this one by being continued; itself where none was.
    pub fn origin(&self, number: u64) -> u64 {
        let before = |number: &u64| {
            let earlier = self.trial(*number).ok()?.attribute(CONTINUES)?.count()?;
            // Whatever a journal says, this ends.
            (earlier < *number).then_some(earlier)
        };
        std::iter::successors(Some(number), before).last().unwrap_or(number)
    }

    /// The trials that others continue.
    pub(super) fn continued(&self) -> HashSet<u64> {
        if !self.definition.stopper.promotes() {
            return HashSet::new();
        }
        self.trials().iter().filter_map(|trial| trial.attribute(CONTINUES)?.count()).collect()
    }

    /// The stopped trial that deserves to go on.
    pub(super) fn promotable(&self) -> Option<u64> {
        if !self.definition.stopper.promotes() || self.directions.len() > 1 {
            return None;
        }
        let continued = self.continued();
        let latest = |trial: &&Trial| !trial.reports.is_empty() && !continued.contains(&trial.number);
        let losses: Vec<(u64, Vec<(i64, f64)>)> =
            self.trials().iter().filter(latest).map(|trial| (trial.number, self.losses(trial))).collect();
        let curves: Vec<Curve<'_>> =
            losses.iter().map(|(number, reports)| Curve { number: *number, reports }).collect();
        let stopped = |number: u64| self.trial(number).is_ok_and(|trial| trial.state == State::Stopped);
        self.definition.stopper.promotion(&curves, stopped)
    }

    /// Lets a stopped trial go on as a new one, where there is one that deserves it.
    pub(super) fn promote(&mut self, now: Time) -> Option<Asked> {
        let earlier = self.trial(self.promotable()?).ok()?;
        let mut trial = NewTrial::new(OptunaState::Running, Some(now));
        trial.settings = earlier.settings.clone();
        trial.reports = earlier.reports.clone();
        trial.attributes.push((Owner::User, CONTINUES.to_owned(), Json::from(earlier.number)));
        let point = earlier.point(&self.definition.space);
        let number = self.trials().len() as u64;
        self.write(Operation::CreateTrial { study: self.id, trial: Box::new(trial) });
        Some(Asked { number, point, attempt: 1, origin: self.origin(number) })
    }
}
