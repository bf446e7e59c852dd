//! What to run next: trials that wait, then new ones.

use super::{CONSTRAINT, CONTINUES, FIXED, FROM, State, Study, StudyRecord, Trial};
use crate::{
    SearchError,
    journal::{Json, NewTrial, Operation, OptunaState, Owner, Setting, Time, choice_from_json, choice_to_json},
    random::{Random, mix},
    sampler::Question,
    space::{Choice, Domain, Parameter, Point},
};

/// A trial to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// Its number.
    pub number: u64,
    /// What to try.
    pub point: Point,
    /// Which start of it this is, from 1 on.
    pub attempt: u64,
    /// The trial that began what this one goes on with: another one where a stopped trial was promoted, or itself.
    pub origin: u64,
}

impl Study {
    /// The next trial to run, which runs from now on; none where all were asked for that there should be.
    pub fn ask(&mut self, now: Time) -> Result<Option<Asked>, SearchError> {
        if let Some(number) = self.next_waiting() {
            return self.start_waiting(number, now).map(Some);
        }
        if let Some(asked) = self.promote(now) {
            return Ok(Some(asked));
        }
        if self.is_used_up() {
            return Ok(None);
        }
        let number = self.trials().len() as u64;
        let point = self.suggestion(number);
        let mut trial = NewTrial::new(OptunaState::Running, Some(now));
        trial.settings = self.settings(&point);
        self.write(Operation::CreateTrial { study: self.id, trial: Box::new(trial) });
        Ok(Some(Asked { number, point, attempt: 1, origin: number }))
    }

    /// A trial whose parameters are asked for one by one with [`Study::suggest`], as in Optuna.
    pub fn ask_open(&mut self, now: Time) -> Result<Option<u64>, SearchError> {
        let number = match self.next_waiting() {
            Some(number) => {
                let id = self.trial(number)?.id;
                self.write(Operation::SetState {
                    trial: id,
                    state: OptunaState::Running,
                    values: None,
                    time: Some(now),
                });
                number
            }
            None if self.is_used_up() => return Ok(None),
            None => {
                let number = self.trials().len() as u64;
                let trial = Box::new(NewTrial::new(OptunaState::Running, Some(now)));
                self.write(Operation::CreateTrial { study: self.id, trial });
                number
            }
        };
        let point = self.suggestion(number);
        self.drafts.push((number, point));
        Ok(Some(number))
    }

    /// The value of a parameter of a running trial: as it was enqueued, as the sampler suggested it, or at random where
    /// nobody knew of the parameter before. Asked again, it is the same.
    pub fn suggest(&mut self, number: u64, name: &str, domain: &Domain) -> Result<f64, SearchError> {
        let domain = domain.clone().checked(name)?;
        let trial = self.running_trial(number)?;
        if let Some(setting) = trial.setting(name) {
            return Ok(setting.value);
        }
        let (id, fixed) = (trial.id, fixed(trial, name, &domain));
        if let Some(known) = self.definition.space.index(name) {
            let before = &self.definition.space.parameters()[known].domain;
            if std::mem::discriminant(before) != std::mem::discriminant(&domain) {
                let problem = format!("parameter `{name}` was {before} before and is {domain} now");
                return Err(SearchError::Trial { number, problem });
            }
        } else {
            self.grow(Parameter::new(name, domain.clone()))?;
        }
        let index = self.definition.space.index(name);
        let draft = self.drafts.iter().find(|(draft, _)| *draft == number).map(|(_, point)| point);
        let suggested = draft.zip(index).and_then(|(point, index)| point.0.get(index).copied().flatten());
        let random = || domain.from_unit(Random::new(self.definition.seed, &[number, word(name)]).uniform());
        let value = fixed.or(suggested.map(|value| domain.nearest(value))).unwrap_or_else(random);
        let setting = Setting { name: name.to_owned(), value, domain };
        self.write(Operation::SetParameter { trial: id, setting });
        Ok(value)
    }

    /// Puts a point in front of all that samplers suggest. Parameters that are not named are suggested.
    pub fn enqueue(&mut self, parameters: &[(String, Choice)]) -> Result<u64, SearchError> {
        for (name, value) in parameters {
            let known = self.definition.space.parameters();
            match known.iter().find(|parameter| parameter.name == *name) {
                Some(parameter) if internal(&parameter.domain, value).is_none() => {
                    let problem = format!("{value} is not one of its values, {}", parameter.domain);
                    return Err(SearchError::parameter(name, problem));
                }
                // Studies without a space of their own learn of parameters while they run.
                None if !known.is_empty() => {
                    return Err(SearchError::unknown("parameter", name, known.iter().map(|known| known.name.as_str())));
                }
                _ => {}
            }
        }
        let fixed = parameters.iter().map(|(name, value)| (name.clone(), choice_to_json(value))).collect();
        let mut trial = NewTrial::new(OptunaState::Waiting, None);
        trial.attributes.push((Owner::System, FIXED.to_owned(), Json::Object(fixed)));
        let number = self.trials().len() as u64;
        self.write(Operation::CreateTrial { study: self.id, trial: Box::new(trial) });
        Ok(number)
    }

    /// Takes over what finished in an earlier study and fits into this one. Says how many trials that were.
    pub fn warm_start(&mut self, earlier: &StudyRecord) -> usize {
        let taken: Vec<NewTrial> = earlier.trials.iter().filter_map(|trial| self.fitting(earlier, trial)).collect();
        let count = taken.len();
        for trial in taken {
            self.write(Operation::CreateTrial { study: self.id, trial: Box::new(trial) });
        }
        count
    }

    fn fitting(&self, earlier: &StudyRecord, trial: &Trial) -> Option<NewTrial> {
        let point = trial.point(&self.definition.space);
        let fits = trial.state == State::Finished
            && earlier.directions == self.directions
            && trial.values.len() == self.directions.len()
            && self.definition.space.contains(&point);
        if !fits {
            return None;
        }
        let from = Json::Text(format!("{} {}", earlier.name, trial.number));
        let constraints = trial.attributes.iter().filter(|(_, key, _)| key.starts_with(CONSTRAINT)).cloned();
        Some(NewTrial {
            end: trial.end.or(trial.start).or(Some(Time(0))),
            values: Some(trial.values.clone()),
            settings: self.settings(&point),
            attributes: constraints.chain([(Owner::User, FROM.to_owned(), from)]).collect(),
            reports: trial.reports.clone(),
            ..NewTrial::new(OptunaState::Complete, trial.start)
        })
    }

    /// Whether nothing runs, nothing waits, and nothing more should be asked for.
    pub fn is_done(&mut self) -> bool {
        let open = self.trials().iter().any(|trial| !trial.state.is_over());
        !open && self.is_used_up() && self.promotable().is_none()
    }

    fn is_used_up(&mut self) -> bool {
        let own = |trial: &&Trial| trial.attribute(FROM).is_none() && trial.attribute(CONTINUES).is_none();
        let own = self.trials().iter().filter(own).count() as u64;
        if self.definition.trials.is_some_and(|limit| own >= limit) {
            return true;
        }
        let number = self.trials().len() as u64;
        let Self { definition, history, sampler, .. } = self;
        sampler.is_exhausted(&Question { seed: definition.seed, space: &definition.space, history, number })
    }

    fn suggestion(&mut self, number: u64) -> Point {
        let Self { definition, history, sampler, .. } = self;
        sampler.suggest(&Question { seed: definition.seed, space: &definition.space, history, number })
    }

    fn next_waiting(&self) -> Option<u64> {
        self.trials().iter().find(|trial| trial.state == State::Waiting).map(|trial| trial.number)
    }

    fn start_waiting(&mut self, number: u64, now: Time) -> Result<Asked, SearchError> {
        let suggested = self.suggestion(number);
        let trial = self.trial(number)?.clone();
        let space = &self.definition.space;
        let mut random = Random::new(self.definition.seed, &[number, 2]);
        let point = space.fill(|index, _| {
            let Parameter { name, domain, .. } = &space.parameters()[index];
            let known = trial.setting(name).map(|setting| setting.value).or_else(|| fixed(&trial, name, domain));
            known.or(suggested.0[index]).unwrap_or_else(|| domain.from_unit(random.uniform()))
        });
        let missing = self.settings(&point).into_iter().filter(|setting| trial.setting(&setting.name).is_none());
        for setting in missing.collect::<Vec<_>>() {
            self.write(Operation::SetParameter { trial: trial.id, setting });
        }
        self.write(Operation::SetState { trial: trial.id, state: OptunaState::Running, values: None, time: Some(now) });
        Ok(Asked { number, point, attempt: trial.attempts + 1, origin: self.origin(number) })
    }

    fn settings(&self, point: &Point) -> Vec<Setting> {
        let setting = |(parameter, value): (&Parameter, &Option<f64>)| {
            value.map(|value| Setting { name: parameter.name.clone(), value, domain: parameter.domain.clone() })
        };
        self.definition.space.parameters().iter().zip(&point.0).filter_map(setting).collect()
    }
}

/// The value with which a trial was enqueued.
fn fixed(trial: &Trial, name: &str, domain: &Domain) -> Option<f64> {
    internal(domain, &choice_from_json(trial.attribute(FIXED)?.get(name)?)?)
}

/// What people write as a value, as it is in a point; nothing where the domain does not have it.
fn internal(domain: &Domain, value: &Choice) -> Option<f64> {
    let number = match value {
        Choice::Integer(number) => Some(*number as f64),
        Choice::Number(number) => Some(*number),
        _ => None,
    };
    match domain {
        Domain::Choices(choices) => choices.iter().position(|choice| choice == value).map(|index| index as f64),
        _ => number.filter(|number| domain.contains(*number)),
    }
}

fn word(text: &str) -> u64 {
    text.bytes().fold(0, |state, byte| mix(state ^ u64::from(byte)))
}
