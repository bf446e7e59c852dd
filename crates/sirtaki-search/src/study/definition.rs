//! What a study is, apart from its trials, and how its attributes in the journal say so.

use super::{Objective, StudyRecord};
use crate::{
    SearchError,
    journal::{Json, Owner},
    sampler,
    space::{Parameter, Space},
    stopper::Stopper,
};

/// What a study is, apart from its trials.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// Its name.
    pub name: String,
    /// What can be tried.
    pub space: Space,
    /// What is wanted; at least one.
    pub objectives: Vec<Objective>,
    /// What all random choices depend on.
    pub seed: u64,
    /// The name of the sampler.
    pub sampler: String,
    /// Which trials to give up.
    pub stopper: Stopper,
    /// How many trials to run, where there is a limit.
    pub trials: Option<u64>,
    /// How often a trial may be started before it counts as failed.
    pub attempts: u64,
}

impl Definition {
    /// A study that minimises one value, with usual settings.
    pub fn new(name: impl Into<String>, space: Space) -> Self {
        let objective = Objective { name: "value".into(), direction: crate::journal::Direction::Minimize };
        Self {
            name: name.into(),
            space,
            objectives: vec![objective],
            seed: 0,
            sampler: "auto".into(),
            stopper: Stopper::None,
            trials: None,
            attempts: 3,
        }
    }

    pub(super) fn check(&self) -> Result<(), SearchError> {
        let refuse = |problem: &str| SearchError::Study { study: self.name.clone(), problem: problem.into() };
        if self.objectives.is_empty() {
            return Err(refuse("it has no objective"));
        }
        let names: Vec<&str> = self.objectives.iter().map(|objective| objective.name.as_str()).collect();
        if (1..names.len()).any(|index| names[..index].contains(&names[index])) {
            return Err(refuse("two of its objectives have the same name"));
        }
        if self.stopper != Stopper::None && self.objectives.len() > 1 {
            return Err(refuse("with several objectives there is no rule for stopping early"));
        }
        if self.attempts == 0 {
            return Err(refuse("its trials may never start: `attempts` is 0"));
        }
        sampler::find(&self.sampler).map(|_| ())
    }

    /// It as attributes. The space is a list of lines, since the order of parameters decides what is suggested.
    pub(super) fn attributes(&self) -> Vec<(Owner, String, Json)> {
        let names: Vec<&str> = self.objectives.iter().map(|objective| objective.name.as_str()).collect();
        let lines: Vec<Json> = self.space.lines().into_iter().map(Json::Text).collect();
        let user = |key: &str, value: Json| (Owner::User, format!("sirtaki:{key}"), value);
        let mut attributes = vec![
            (Owner::System, "study:metric_names".to_owned(), names.into()),
            user("space", Json::List(lines)),
            // A text, because not every number of 64 bits survives in JSON.
            user("seed", Json::Text(self.seed.to_string())),
            user("sampler", self.sampler.as_str().into()),
            user("stop", Json::Text(self.stopper.to_string())),
            user("attempts", self.attempts.into()),
        ];
        attributes.extend(self.trials.map(|trials| user("trials", trials.into())));
        attributes
    }

    /// The definition of a study in a journal. One that Optuna began has no space of its own: it is made of the parameters
    /// that its trials have.
    pub fn from_record(record: &StudyRecord) -> Result<Self, SearchError> {
        let attribute = |key: &str| record.attribute(&format!("sirtaki:{key}"));
        let wrong = |key: &str| SearchError::Study {
            study: record.name.clone(),
            problem: format!("its attribute `sirtaki:{key}` in the journal makes no sense"),
        };
        let space = match attribute("space") {
            Some(lines) => {
                let lines = lines.list().and_then(|lines| lines.iter().map(Json::text).collect::<Option<Vec<_>>>());
                Space::from_lines(lines.ok_or_else(|| wrong("space"))?)?
            }
            None => inferred(record)?,
        };
        let text = |key: &str| attribute(key).map(|value| value.text().ok_or_else(|| wrong(key))).transpose();
        let count = |key: &str| attribute(key).map(|value| value.count().ok_or_else(|| wrong(key))).transpose();
        let usual = Self::new(record.name.clone(), space);
        let definition = Self {
            objectives: record.objectives(),
            seed: text("seed")?.map_or(Ok(0), str::parse).map_err(|_| wrong("seed"))?,
            sampler: text("sampler")?.unwrap_or(&usual.sampler).to_owned(),
            stopper: text("stop")?.map_or(Ok(Stopper::None), str::parse)?,
            trials: count("trials")?,
            attempts: count("attempts")?.unwrap_or(usual.attempts),
            ..usual
        };
        definition.check().map(|()| definition)
    }
}

fn inferred(record: &StudyRecord) -> Result<Space, SearchError> {
    let mut parameters: Vec<Parameter> = Vec::new();
    for setting in record.trials.iter().flat_map(|trial| &trial.settings) {
        if !parameters.iter().any(|known| known.name == setting.name) {
            parameters.push(Parameter::new(setting.name.clone(), setting.domain.clone()));
        }
    }
    Space::new(parameters)
}
