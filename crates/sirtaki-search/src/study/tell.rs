//! What came of trials: reports on the way, endings, and the best of all.

use super::{CONSTRAINT, ENDED, INTERRUPTIONS, REASON, State, Study, Trial};
use crate::{
    SearchError,
    journal::{Json, Operation, OptunaState, Owner, Time},
    pareto,
    stopper::Curve,
};

/// How a trial ended, or did not.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// With a value per objective. With one that is not finite, it diverged.
    Finished(Vec<f64>),
    /// Because [`Study::report`] said so, or somebody else.
    Stopped,
    /// It ended by itself with an error: why.
    Failed(String),
    /// It ran into its time limit.
    TimedOut,
    /// Something else took it away, such as a host that died: why. It waits to be run again, unless it was lost too often.
    Lost(String),
    /// Whoever ran it stopped doing so, which says nothing about the trial: why. It waits to be run again, as often as needed.
    Interrupted(String),
}

impl Study {
    /// Takes a value that a trial reports for the first objective. Says whether the trial should stop.
    pub fn report(&mut self, number: u64, step: i64, value: f64) -> Result<bool, SearchError> {
        let id = self.running_trial(number)?.id;
        self.write(Operation::Report { trial: id, step, value });
        if self.directions.len() > 1 {
            return Ok(false);
        }
        // A report that comes after later ones decides nothing.
        let trial = self.running_trial(number)?;
        if trial.reports.last().is_some_and(|(last, _)| *last > step) {
            return Ok(false);
        }
        let own = self.losses(trial);
        let others: Vec<(u64, Vec<(i64, f64)>)> = match self.definition.stopper {
            crate::stopper::Stopper::None | crate::stopper::Stopper::Patience { .. } => Vec::new(),
            _ => {
                let continued = self.continued();
                let other = |trial: &&Trial| {
                    trial.number != number && !trial.reports.is_empty() && !continued.contains(&trial.number)
                };
                self.trials().iter().filter(other).map(|trial| (trial.number, self.losses(trial))).collect()
            }
        };
        let others = others.iter().map(|(number, reports)| Curve { number: *number, reports });
        Ok(self.definition.stopper.should_stop(Curve { number, reports: &own }, others))
    }

    /// What a trial reported for the first objective, as losses.
    pub(super) fn losses(&self, trial: &Trial) -> Vec<(i64, f64)> {
        let direction = self.directions[0];
        trial.reports.iter().map(|(step, value)| (*step, direction.loss(*value))).collect()
    }

    /// Notes how far a trial is from breaking a constraint; up to 0 it keeps it.
    pub fn constrain(&mut self, number: u64, name: &str, value: f64) -> Result<(), SearchError> {
        self.attribute(number, Owner::System, &format!("{CONSTRAINT}{name}"), value.into())
    }

    /// Gives a running trial an attribute, such as the folder in which it runs.
    pub fn attribute(&mut self, number: u64, owner: Owner, key: &str, value: Json) -> Result<(), SearchError> {
        let trial = self.running_trial(number)?.id;
        self.write(Operation::SetTrialAttribute { trial, owner, key: key.to_owned(), value });
        Ok(())
    }

    /// Ends a running trial. Says how it stands now.
    pub fn tell(&mut self, number: u64, ending: Ending, now: Time) -> Result<State, SearchError> {
        let trial = self.running_trial(number)?;
        let interruptions = trial.attribute(INTERRUPTIONS).and_then(Json::count).unwrap_or(0);
        let (id, attempts) = (trial.id, trial.attempts.saturating_sub(interruptions));
        let last = trial.reports.last().map(|(_, value)| *value);
        let (state, values, ended, reason) = match ending {
            Ending::Finished(values) if values.len() != self.directions.len() => {
                let problem = format!("it has {} values for {} objectives", values.len(), self.directions.len());
                return Err(SearchError::Trial { number, problem });
            }
            Ending::Finished(values) if values.iter().all(|value| value.is_finite()) => {
                (OptunaState::Complete, Some(values), None, None)
            }
            Ending::Finished(values) => {
                let reason = format!("its value was {}", Json::from(values));
                (OptunaState::Fail, None, Some(State::Diverged), Some(reason))
            }
            // As in Optuna, the last report is the value of a trial that was stopped.
            Ending::Stopped => {
                let value = last.filter(|value| value.is_finite() && self.directions.len() == 1);
                (OptunaState::Pruned, value.map(|value| vec![value]), None, None)
            }
            Ending::Failed(reason) => (OptunaState::Fail, None, Some(State::Failed), Some(reason)),
            Ending::TimedOut => (OptunaState::Fail, None, Some(State::TimedOut), None),
            Ending::Lost(reason) if attempts < self.definition.attempts => {
                (OptunaState::Waiting, None, None, Some(reason))
            }
            Ending::Interrupted(reason) => {
                self.attribute(number, Owner::User, INTERRUPTIONS, (interruptions + 1).into())?;
                (OptunaState::Waiting, None, None, Some(reason))
            }
            Ending::Lost(reason) => {
                let reason = format!("lost {attempts} times, at last: {reason}");
                (OptunaState::Fail, None, Some(State::Failed), Some(reason))
            }
        };
        // Nothing can be added to a trial that is over, so its state comes last.
        let words = [(ENDED, ended.map(|state| state.word().to_owned())), (REASON, reason)];
        for (key, word) in words.into_iter().filter_map(|(key, word)| Some((key, word?))) {
            self.attribute(number, Owner::User, key, Json::Text(word))?;
        }
        let time = state.is_over().then_some(now);
        self.write(Operation::SetState { trial: id, state, values, time });
        self.drafts.retain(|(draft, _)| *draft != number);
        self.trial(number).map(|trial| trial.state)
    }

    /// Trials that run.
    pub fn running(&self) -> impl Iterator<Item = &Trial> {
        self.trials().iter().filter(|trial| trial.state == State::Running)
    }

    pub(super) fn running_trial(&self, number: u64) -> Result<&Trial, SearchError> {
        let trial = self.trial(number)?;
        if trial.state == State::Running {
            return Ok(trial);
        }
        Err(SearchError::Trial { number, problem: format!("it is not running, but {}", trial.state.word()) })
    }

    /// Finished trials that keep all constraints.
    fn candidates(&self) -> Vec<(&Trial, Vec<f64>)> {
        let losses = |trial: &Trial| -> Vec<f64> {
            trial.values.iter().zip(&self.directions).map(|(value, direction)| direction.loss(*value)).collect()
        };
        let good = |trial: &&Trial| {
            trial.state == State::Finished && trial.values.len() == self.directions.len() && trial.violation() <= 0.0
        };
        self.trials().iter().filter(good).map(|trial| (trial, losses(trial))).collect()
    }

    /// The trial with the best value of the first objective.
    pub fn best(&self) -> Option<&Trial> {
        let candidates = self.candidates();
        candidates.into_iter().min_by(|(_, a), (_, b)| a[0].total_cmp(&b[0])).map(|(trial, _)| trial)
    }

    /// The trials that no other beats in every objective.
    pub fn front(&self) -> Vec<&Trial> {
        let candidates = self.candidates();
        let losses: Vec<&[f64]> = candidates.iter().map(|(_, losses)| losses.as_slice()).collect();
        let ranks = pareto::ranks(&losses);
        candidates.iter().zip(ranks).filter(|(_, rank)| *rank == 0).map(|((trial, _), _)| *trial).collect()
    }
}
