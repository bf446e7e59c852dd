//! A study: trials that are asked for, run somewhere, report, and end in one way or another.
//!
//! It is a state machine without a clock: times come in as numbers. Whatever changes it becomes an operation of the journal
//! first and is then taken in exactly as a reader of the journal would take it, so the journal and the study
//! cannot disagree, and a study that was opened again goes on as if nothing had happened.
//!
//! ```text
//!               ┌── lost ──┐
//! enqueued → waiting → running → finished · stopped early · diverged · failed · timed out
//!      asked ──────────┘
//! ```

mod archive;
mod ask;
mod definition;
mod objective;
mod promotion;
mod tell;
#[cfg(test)]
mod tests;
mod trial;

pub use archive::{Archive, Change, StudyRecord};
pub use ask::Asked;
pub use definition::Definition;
pub use objective::Objective;
pub use tell::Ending;
pub use trial::{CONSTRAINT, CONTINUES, ENDED, FIXED, FROM, INTERRUPTIONS, REASON, State, Trial};

use crate::{
    SearchError,
    journal::{Direction, Json, Operation, Owner, Record},
    sampler::{self, History, Sampler},
    space::{Parameter, Point, Space},
};

/// A study that can be asked and told.
pub struct Study {
    definition: Definition,
    directions: Vec<Direction>,
    archive: Archive,
    id: u64,
    worker: String,
    history: History,
    sampler: Box<dyn Sampler>,
    /// Suggestions for trials whose parameters are asked for one by one.
    drafts: Vec<(u64, Point)>,
    unwritten: Vec<Record>,
}

impl Study {
    /// A new study in a journal. `worker` names the process in every line it writes.
    pub fn create(definition: Definition, archive: Archive, worker: &str) -> Result<Self, SearchError> {
        definition.check()?;
        if archive.studies().any(|study| study.name == definition.name) {
            let problem = "it is in the journal already".to_owned();
            return Err(SearchError::Study { study: definition.name, problem });
        }
        let attributes = definition.attributes();
        let directions: Vec<Direction> = definition.objectives.iter().map(|objective| objective.direction).collect();
        let (name, mut archive) = (definition.name.clone(), archive);
        let create = Operation::CreateStudy { name, directions };
        let Change::Study(id) = archive.apply(create.clone()) else {
            return Err(SearchError::Study { study: definition.name, problem: "it cannot be created".into() });
        };
        let mut study = Self::assemble(definition, archive, id, worker)?;
        study.unwritten.push(Record { worker: worker.to_owned(), operation: create });
        for (owner, key, value) in attributes {
            study.write(Operation::SetStudyAttribute { study: id, owner, key, value });
        }
        Ok(study)
    }

    /// A study that is in a journal, begun here or by Optuna.
    pub fn open(archive: Archive, name: &str, worker: &str) -> Result<Self, SearchError> {
        let Some(record) = archive.studies().find(|study| study.name == name) else {
            return Err(SearchError::unknown("study", name, archive.studies().map(|study| study.name.as_str())));
        };
        let (definition, id) = (Definition::from_record(record)?, record.id);
        Self::assemble(definition, archive, id, worker)
    }

    fn assemble(definition: Definition, archive: Archive, id: u64, worker: &str) -> Result<Self, SearchError> {
        let sampler = sampler::find(&definition.sampler)?.make();
        let directions = definition.objectives.iter().map(|objective| objective.direction).collect();
        let worker = worker.to_owned();
        let (history, drafts, unwritten) = (History::default(), Vec::new(), Vec::new());
        let mut study = Self { definition, directions, archive, id, worker, history, sampler, drafts, unwritten };
        study.observe_all();
        Ok(study)
    }

    /// Refuses to go on in another space than the one in which the study began.
    pub fn check_space(&self, space: &Space) -> Result<(), SearchError> {
        let differences = self.definition.space.differences(space);
        if differences.is_empty() {
            return Ok(());
        }
        Err(SearchError::Changed { study: self.definition.name.clone(), differences })
    }

    /// What it is, apart from its trials.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Its trials, by number.
    pub fn trials(&self) -> &[Trial] {
        self.archive.study(self.id).map_or(&[], |record| &record.trials)
    }

    /// A trial by its number.
    pub fn trial(&self, number: u64) -> Result<&Trial, SearchError> {
        let trial = usize::try_from(number).ok().and_then(|index| self.trials().get(index));
        trial.ok_or(SearchError::Trial { number, problem: "there is no such trial".into() })
    }

    /// What samplers see.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The journal as it is, with what was not written yet.
    pub fn archive(&self) -> &Archive {
        &self.archive
    }

    /// Gives the study an attribute, such as who coordinates it.
    pub fn annotate(&mut self, owner: Owner, key: &str, value: Json) {
        self.write(Operation::SetStudyAttribute { study: self.id, owner, key: key.to_owned(), value });
    }

    /// Changes how many trials to run; those that were asked for stay.
    pub fn set_trials(&mut self, trials: u64) {
        self.definition.trials = Some(trials);
        self.annotate(Owner::User, "sirtaki:trials", trials.into());
    }

    /// The lines that the journal lacks, at the end of which it agrees with the study.
    pub fn take_lines(&mut self) -> String {
        self.unwritten.drain(..).map(|record| record.line()).collect()
    }

    /// Takes a line in that somebody else wrote.
    pub fn take_in(&mut self, record: Record) {
        let change = self.archive.apply(record.operation);
        match change {
            Change::Study(id) if id == self.id => self.redefine(),
            _ => self.observe(change),
        }
    }

    /// Follows what others wrote about the study as a whole, such as parameters that their trials came up with.
    fn redefine(&mut self) {
        let found = self.archive.study(self.id).and_then(|record| Definition::from_record(record).ok());
        let Some(found) = found.filter(|found| *found != self.definition) else { return };
        self.definition = Definition { sampler: self.definition.sampler.clone(), ..found };
        self.observe_all();
    }

    /// Does something: first as a line, then as its readers do it.
    fn write(&mut self, operation: Operation) {
        let change = self.archive.apply(operation.clone());
        self.unwritten.push(Record { worker: self.worker.clone(), operation });
        self.observe(change);
    }

    fn observe(&mut self, change: Change) {
        let Change::Trial(study, number) = change else { return };
        if study != self.id {
            return;
        }
        let Ok(trial) = self.trial(number) else { return };
        match trial.observation(&self.definition.space, &self.directions) {
            Some(observation) => self.history.put(observation),
            None => self.history.withdraw(number),
        }
    }

    /// Looks at all trials anew, those that ended in the order in which the journal says so.
    fn observe_all(&mut self) {
        let mut order: Vec<&Trial> = self.trials().iter().collect();
        order.sort_by_key(|trial| (trial.turn, trial.number));
        let space = &self.definition.space;
        let observations = order.iter().filter_map(|trial| trial.observation(space, &self.directions));
        let mut history = History::default();
        observations.for_each(|observation| history.put(observation));
        self.history = history;
    }

    /// Adds a parameter that trials came up with on their way.
    fn grow(&mut self, parameter: Parameter) -> Result<(), SearchError> {
        let mut parameters = self.definition.space.parameters().to_vec();
        parameters.push(parameter);
        self.definition.space = Space::new(parameters)?;
        let lines = self.definition.space.lines().into_iter().map(Json::Text).collect();
        self.annotate(Owner::User, "sirtaki:space", Json::List(lines));
        self.observe_all();
        Ok(())
    }
}
