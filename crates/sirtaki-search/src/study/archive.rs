//! All studies of a journal, as its lines tell them, by the rules of Optuna: what a line asks for that is no longer possible
//! changes nothing.

use super::{Objective, Trial};
use crate::journal::{Direction, Json, Operation, Owner, Record};

/// A study as its journal tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct StudyRecord {
    /// Its number in the journal.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// The directions of its objectives.
    pub directions: Vec<Direction>,
    /// Its attributes.
    pub attributes: Vec<(Owner, String, Json)>,
    /// Its trials, by number.
    pub trials: Vec<Trial>,
}

impl StudyRecord {
    /// An attribute, whoever owns it.
    pub fn attribute(&self, key: &str) -> Option<&Json> {
        self.attributes.iter().find(|(_, name, _)| name == key).map(|(_, _, value)| value)
    }

    /// Its objectives; those without a name are called `value`.
    pub fn objectives(&self) -> Vec<Objective> {
        let names = self.attribute("study:metric_names").and_then(Json::list).unwrap_or_default();
        let objective = |(index, direction): (usize, &Direction)| {
            let unnamed = || if index == 0 { "value".to_owned() } else { format!("value{index}") };
            let name = names.get(index).and_then(Json::text).map_or_else(unnamed, str::to_owned);
            Objective { name, direction: *direction }
        };
        self.directions.iter().enumerate().map(objective).collect()
    }
}

/// What a line changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    Nothing,
    /// A study as a whole.
    Study(u64),
    /// A trial of a study: both numbers.
    Trial(u64, u64),
}

/// All studies of a journal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Archive {
    studies: Vec<Option<StudyRecord>>,
    /// The study and the number of every trial of the journal.
    trials: Vec<(u64, u64)>,
    ended: u64,
}

impl Archive {
    /// The studies of these lines.
    pub fn new(records: impl IntoIterator<Item = Record>) -> Self {
        let mut archive = Self::default();
        for record in records {
            archive.apply(record.operation);
        }
        archive
    }

    /// All studies that were not deleted.
    pub fn studies(&self) -> impl Iterator<Item = &StudyRecord> {
        self.studies.iter().flatten()
    }

    /// A study by its number.
    pub fn study(&self, id: u64) -> Option<&StudyRecord> {
        self.studies.get(usize::try_from(id).ok()?)?.as_ref()
    }

    /// How many trials the journal has, which is the number of the next one.
    pub fn trial_count(&self) -> u64 {
        self.trials.len() as u64
    }

    fn study_mut(&mut self, id: u64) -> Option<&mut StudyRecord> {
        self.studies.get_mut(usize::try_from(id).ok()?)?.as_mut()
    }

    /// A trial that can still change.
    fn open_trial(&mut self, id: u64) -> Option<(Change, &mut Trial)> {
        let &(study, number) = self.trials.get(usize::try_from(id).ok()?)?;
        let trial = self.study_mut(study)?.trials.get_mut(usize::try_from(number).ok()?)?;
        (!trial.state.is_over()).then_some((Change::Trial(study, number), trial))
    }

    /// Takes one line more.
    pub fn apply(&mut self, operation: Operation) -> Change {
        let change = self.change(operation).unwrap_or(Change::Nothing);
        if let Change::Trial(study, number) = change {
            let turn = self.ended;
            let trial = self.study_mut(study).and_then(|study| study.trials.get_mut(number as usize));
            if let Some(trial) = trial.filter(|trial| trial.state.is_over()) {
                trial.turn = Some(turn);
                self.ended += 1;
            }
        }
        change
    }

    fn change(&mut self, operation: Operation) -> Option<Change> {
        match operation {
            Operation::CreateStudy { name, directions } => {
                if self.studies().any(|study| study.name == name) {
                    return None;
                }
                let id = self.studies.len() as u64;
                self.studies.push(Some(StudyRecord { id, name, directions, attributes: vec![], trials: vec![] }));
                Some(Change::Study(id))
            }
            Operation::DeleteStudy { study } => {
                self.study(study)?;
                *self.studies.get_mut(usize::try_from(study).ok()?)? = None;
                Some(Change::Study(study))
            }
            Operation::SetStudyAttribute { study, owner, key, value } => {
                let attributes = &mut self.study_mut(study)?.attributes;
                match attributes.iter_mut().find(|known| known.0 == owner && known.1 == key) {
                    Some(known) => known.2 = value,
                    None => attributes.push((owner, key, value)),
                }
                Some(Change::Study(study))
            }
            Operation::CreateTrial { study, trial } => {
                let id = self.trial_count();
                let trials = &mut self.study_mut(study)?.trials;
                let number = trials.len() as u64;
                trials.push(Trial::new(id, number, *trial));
                self.trials.push((study, number));
                Some(Change::Trial(study, number))
            }
            Operation::SetParameter { trial, setting } => {
                let (change, trial) = self.open_trial(trial)?;
                match trial.settings.iter_mut().find(|known| known.name == setting.name) {
                    Some(known) => *known = setting,
                    None => trial.settings.push(setting),
                }
                Some(change)
            }
            Operation::SetState { trial, state, values, time } => {
                let (change, trial) = self.open_trial(trial)?;
                let again = trial.state == super::State::Running && state == crate::journal::OptunaState::Running;
                (!again).then(|| trial.enter(state, values, time)).map(|()| change)
            }
            Operation::Report { trial, step, value } => {
                let (change, trial) = self.open_trial(trial)?;
                trial.report(step, value);
                Some(change)
            }
            Operation::SetTrialAttribute { trial, owner, key, value } => {
                let (change, trial) = self.open_trial(trial)?;
                trial.set_attribute(owner, key, value);
                Some(change)
            }
            Operation::Other { .. } => None,
        }
    }
}
