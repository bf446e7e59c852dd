//! One trial: what is tried, how it stands, and what came of it.

use crate::{
    journal::{Direction, Json, NewTrial, OptunaState, Owner, Setting, Time},
    sampler::{Observation, Outcome},
    space::{Point, Space},
};

/// How a trial stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It is to be run: it was enqueued, or lost on its way and starts again.
    Waiting,
    /// It was asked for and has not ended.
    Running,
    /// It has its values.
    Finished,
    /// It was stopped early.
    Stopped,
    /// Its value was not a finite number.
    Diverged,
    /// It ran into its time limit.
    TimedOut,
    /// It ended in any other way.
    Failed,
}

impl State {
    /// Whether nothing can change any more.
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Waiting | Self::Running)
    }

    /// The word for it, in the journal and for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Stopped => "stopped early",
            Self::Diverged => "diverged",
            Self::TimedOut => "timed out",
            Self::Failed => "failed",
        }
    }
}

/// The attribute that says how a trial ended that Optuna calls failed.
pub const ENDED: &str = "sirtaki:ended";
/// The attribute that says why.
pub const REASON: &str = "sirtaki:reason";
/// The attribute that says how many of a trial's starts were interrupted through no fault of its own.
pub const INTERRUPTIONS: &str = "sirtaki:interruptions";
/// The attribute of trials that come from an earlier study: from which.
pub const FROM: &str = "sirtaki:from";
/// The attribute of a trial that goes on where a stopped one ended: the number of that one.
pub const CONTINUES: &str = "sirtaki:continues";
/// Optuna's attribute for the parameters of an enqueued trial.
pub const FIXED: &str = "fixed_params";
/// What the names of Optuna's attributes for constraints begin with.
pub const CONSTRAINT: &str = "constraints:";

/// One trial, as the journal tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// Its number in the whole journal.
    pub id: u64,
    /// Its number in its study.
    pub number: u64,
    /// How it stands.
    pub state: State,
    /// Its parameters.
    pub settings: Vec<Setting>,
    /// Its values, one per objective; none before it finished.
    pub values: Vec<f64>,
    /// What it reported on its way, in the order of steps.
    pub reports: Vec<(i64, f64)>,
    /// Its attributes.
    pub attributes: Vec<(Owner, String, Json)>,
    /// How often it was started.
    pub attempts: u64,
    /// When it was started last.
    pub start: Option<Time>,
    /// When it ended.
    pub end: Option<Time>,
    /// How many trials of the journal had ended when it did.
    pub turn: Option<u64>,
}

impl Trial {
    pub(super) fn new(id: u64, number: u64, new: NewTrial) -> Self {
        let mut trial = Self {
            id,
            number,
            state: State::Waiting,
            settings: new.settings,
            values: Vec::new(),
            reports: Vec::new(),
            attributes: new.attributes,
            attempts: 0,
            start: new.start,
            end: None,
            turn: None,
        };
        new.reports.into_iter().for_each(|(step, value)| trial.report(step, value));
        trial.enter(new.state, new.values, if new.state.is_over() { new.end } else { new.start });
        trial
    }

    pub(super) fn enter(&mut self, state: OptunaState, values: Option<Vec<f64>>, time: Option<Time>) {
        let values = values.unwrap_or_default();
        let finite = !values.is_empty() && values.iter().all(|value| value.is_finite());
        self.state = match state {
            OptunaState::Waiting => State::Waiting,
            OptunaState::Running => State::Running,
            OptunaState::Complete if finite => State::Finished,
            OptunaState::Complete => State::Diverged,
            OptunaState::Pruned => State::Stopped,
            OptunaState::Fail => match self.attribute(ENDED).and_then(Json::text) {
                Some(word) if word == State::Diverged.word() => State::Diverged,
                Some(word) if word == State::TimedOut.word() => State::TimedOut,
                _ => State::Failed,
            },
        };
        match state {
            OptunaState::Running => {
                self.attempts += 1;
                self.start = time.or(self.start);
            }
            OptunaState::Waiting => {}
            _ => {
                self.values = values;
                self.end = time;
            }
        }
    }

    pub(super) fn report(&mut self, step: i64, value: f64) {
        let place = self.reports.partition_point(|(before, _)| *before < step);
        match self.reports.get_mut(place) {
            Some(report) if report.0 == step => report.1 = value,
            _ => self.reports.insert(place, (step, value)),
        }
    }

    pub(super) fn set_attribute(&mut self, owner: Owner, key: String, value: Json) {
        match self.attributes.iter_mut().find(|known| known.0 == owner && known.1 == key) {
            Some(known) => known.2 = value,
            None => self.attributes.push((owner, key, value)),
        }
    }

    /// An attribute, whoever owns it.
    pub fn attribute(&self, key: &str) -> Option<&Json> {
        self.attributes.iter().find(|(_, name, _)| name == key).map(|(_, _, value)| value)
    }

    /// The value of a parameter.
    pub fn setting(&self, name: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.name == name)
    }

    /// Why it ended, where that was said.
    pub fn reason(&self) -> Option<&str> {
        self.attribute(REASON).and_then(Json::text)
    }

    /// By how much it breaks constraints, in sum. Those of a value up to 0 are kept.
    pub fn violation(&self) -> f64 {
        let constraints = self.attributes.iter().filter(|(owner, key, _)| {
            *owner == Owner::System && (key.starts_with(CONSTRAINT) || key == CONSTRAINT.trim_end_matches(':'))
        });
        let values = constraints.flat_map(|(_, _, value)| match value {
            Json::List(list) => list.iter().filter_map(Json::number).collect(),
            other => Vec::from_iter(other.number()),
        });
        values.map(|value| if value.is_nan() { f64::INFINITY } else { value.max(0.0) }).sum()
    }

    /// Its parameters as a point of a space; what the space does not know is left out.
    pub fn point(&self, space: &Space) -> Point {
        let value = |parameter: &crate::space::Parameter| {
            let setting = self.setting(&parameter.name).filter(|setting| parameter.domain.contains(setting.value));
            setting.map(|setting| setting.value)
        };
        Point(space.parameters().iter().map(value).collect())
    }

    /// What samplers see of it; nothing while it waits.
    pub(super) fn observation(&self, space: &Space, directions: &[Direction]) -> Option<Observation> {
        let outcome = match self.state {
            State::Waiting => return None,
            State::Running => Outcome::Running,
            State::Finished if self.values.len() == directions.len() => Outcome::Finished,
            State::Finished | State::Failed | State::TimedOut => Outcome::Failed,
            State::Stopped => Outcome::Stopped,
            State::Diverged => Outcome::Diverged,
        };
        let losses: Vec<f64> = self.values.iter().zip(directions).map(|(value, way)| way.loss(*value)).collect();
        let usable = losses.len() == directions.len() && losses.iter().all(|loss| loss.is_finite());
        let last_report = self
            .reports
            .last()
            .filter(|(_, value)| value.is_finite())
            .and_then(|(step, value)| Some((u64::try_from(*step).ok()?, directions.first()?.loss(*value))));
        Some(Observation {
            number: Some(self.number),
            point: self.point(space),
            outcome,
            losses: if usable { losses } else { Vec::new() },
            violation: self.violation(),
            last_report,
        })
    }
}
