//! What the lines of a journal say.

use super::{Json, Time};
use crate::space::Domain;

/// Which way an objective should go. The numbers are Optuna's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Less is better.
    Minimize = 1,
    /// More is better.
    Maximize = 2,
}

impl Direction {
    /// The value as a loss, or a loss as the value: both ways are the same.
    pub fn loss(self, value: f64) -> f64 {
        if self == Self::Minimize { value } else { -value }
    }
}

/// The states that Optuna knows, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OptunaState {
    /// It runs.
    Running = 0,
    /// It has its values.
    Complete = 1,
    /// It was stopped early.
    Pruned = 2,
    /// It ended in any other way.
    Fail = 3,
    /// It is to be run.
    Waiting = 4,
}

impl OptunaState {
    /// The state of a number.
    pub fn new(number: i64) -> Option<Self> {
        [Self::Running, Self::Complete, Self::Pruned, Self::Fail, Self::Waiting]
            .into_iter()
            .find(|state| *state as i64 == number)
    }

    /// Whether nothing can change any more.
    pub fn is_over(self) -> bool {
        !matches!(self, Self::Running | Self::Waiting)
    }
}

/// Whose attribute it is: the user's, which people see, or the library's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The user's.
    User,
    /// The library's.
    System,
}

/// A value of a parameter, with the domain that it was chosen from.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The parameter's name.
    pub name: String,
    /// Its value as in [`crate::space::Point`].
    pub value: f64,
    /// What it could have been.
    pub domain: Domain,
}

/// A trial as it is when it enters the journal.
#[derive(Clone, Debug, PartialEq)]
pub struct NewTrial {
    /// How it stands.
    pub state: OptunaState,
    /// When it began to run.
    pub start: Option<Time>,
    /// When it ended.
    pub end: Option<Time>,
    /// Its values, where it has them.
    pub values: Option<Vec<f64>>,
    /// Its parameters.
    pub settings: Vec<Setting>,
    /// Its attributes.
    pub attributes: Vec<(Owner, String, Json)>,
    /// The values it reported on its way, by step.
    pub reports: Vec<(i64, f64)>,
}

impl NewTrial {
    /// A trial without anything.
    pub fn new(state: OptunaState, start: Option<Time>) -> Self {
        Self { state, start, end: None, values: None, settings: vec![], attributes: vec![], reports: vec![] }
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// A study begins; it gets the next number that is free.
    CreateStudy {
        /// Its name, unique in the journal.
        name: String,
        /// The directions of its objectives.
        directions: Vec<Direction>,
    },
    /// A study is gone.
    DeleteStudy {
        /// Which one.
        study: u64,
    },
    /// A study gets an attribute.
    SetStudyAttribute {
        /// Which one.
        study: u64,
        /// Whose attribute.
        owner: Owner,
        /// Its name.
        key: String,
        /// Its value.
        value: Json,
    },
    /// A trial enters; it gets the next number that is free in the whole journal.
    CreateTrial {
        /// Of which study.
        study: u64,
        /// What it is like.
        trial: Box<NewTrial>,
    },
    /// A trial gets a parameter.
    SetParameter {
        /// Which trial, counted over the whole journal.
        trial: u64,
        /// The parameter.
        setting: Setting,
    },
    /// A trial changes its state.
    SetState {
        /// Which trial.
        trial: u64,
        /// To what.
        state: OptunaState,
        /// Its values, where it has them.
        values: Option<Vec<f64>>,
        /// When it began to run, or ended.
        time: Option<Time>,
    },
    /// A trial reports a value on its way.
    Report {
        /// Which trial.
        trial: u64,
        /// After which step.
        step: i64,
        /// What.
        value: f64,
    },
    /// A trial gets an attribute.
    SetTrialAttribute {
        /// Which trial.
        trial: u64,
        /// Whose attribute.
        owner: Owner,
        /// Its name.
        key: String,
        /// Its value.
        value: Json,
    },
    /// Something that changes nothing here.
    Other {
        /// Its code.
        code: u64,
    },
}

/// A line: who wrote it, and what it says.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// A name for the writer; Optuna recognises its own lines by it.
    pub worker: String,
    /// What it says.
    pub operation: Operation,
}
