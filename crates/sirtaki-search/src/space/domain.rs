//! What values a parameter can take.
//!
//! Inside this crate every value is one `f64`, as in Optuna's storages: a float is itself, an integer is a whole number, a
//! choice is its index. Integers are limited to those that an `f64` holds exactly.

use serde::{Deserialize, Serialize};

use crate::SearchError;

/// The largest integer that a parameter may take, 2⁵³.
pub const LARGEST: i64 = 1 << 53;

/// One of the choices of a categorical parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Choice {
    /// Nothing, Python's `None`.
    Null,
    /// True or false.
    Flag(bool),
    /// A whole number.
    Integer(i64),
    /// Any other number.
    Number(f64),
    /// A word.
    Text(String),
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Null => f.write_str("none"),
            Self::Flag(flag) => flag.fmt(f),
            Self::Integer(number) => number.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// What values a parameter can take.
#[derive(Clone, Debug, PartialEq)]
pub enum Domain {
    /// Real numbers from `low` to `high`, both included.
    Float {
        /// The smallest value.
        low: f64,
        /// The largest value.
        high: f64,
        /// Whether orders of magnitude count rather than differences.
        log: bool,
        /// The distance of neighbouring values, where it is fixed.
        step: Option<f64>,
    },
    /// Whole numbers from `low` to `high`, both included.
    Int {
        /// The smallest value.
        low: i64,
        /// The largest value.
        high: i64,
        /// Whether orders of magnitude count rather than differences.
        log: bool,
        /// The distance of neighbouring values; 1 with `log`.
        step: i64,
    },
    /// One of a few things without an order.
    Choices(Vec<Choice>),
}

impl Domain {
    /// Checks the bounds and lowers `high` to the last value that steps from `low` reach.
    pub fn checked(self, parameter: &str) -> Result<Self, SearchError> {
        let refuse = |problem: String| Err(SearchError::parameter(parameter, problem));
        match self {
            Self::Float { low, high, .. } if !(low.is_finite() && high.is_finite() && (high - low).is_finite()) => {
                refuse(format!("the range {low} .. {high} is not finite"))
            }
            Self::Float { low, high, .. } if low > high => {
                refuse(format!("the range {low} .. {high} is empty; the smaller number comes first"))
            }
            Self::Int { low, high, .. } if low > high => {
                refuse(format!("the range {low} .. {high} is empty; the smaller number comes first"))
            }
            Self::Int { low, high, .. } if low < -LARGEST || high > LARGEST => {
                refuse(format!("the range {low} .. {high} goes beyond 2^53"))
            }
            Self::Float { low, log: true, .. } if low <= 0.0 => {
                refuse(format!("a logarithmic range starts above 0, not at {low}"))
            }
            Self::Int { low, log: true, .. } if low < 1 => {
                refuse(format!("a logarithmic range of integers starts at 1 or above, not at {low}"))
            }
            Self::Float { log: true, step: Some(_), .. } => refuse("a logarithmic range has no fixed step".into()),
            Self::Int { log: true, step, .. } if step != 1 => refuse("a logarithmic range has no fixed step".into()),
            Self::Float { step: Some(step), .. } if !(step.is_finite() && step > 0.0) => {
                refuse(format!("the step is {step}, but must be above 0"))
            }
            Self::Int { step, .. } if step < 1 => refuse(format!("the step is {step}, but must be at least 1")),
            Self::Choices(choices) => Self::checked_choices(parameter, choices),
            Self::Float { low, high, log, step: Some(step) } => {
                let steps = ((high - low) / step + 1e-9).floor();
                if steps > LARGEST as f64 {
                    return refuse(format!("{low} .. {high} in steps of {step} has more than 2^53 values"));
                }
                let high = (low + steps * step).min(high);
                Ok(Self::Float { low, high, log, step: Some(step) })
            }
            Self::Int { low, high, log, step } => {
                Ok(Self::Int { low, high: low + (high - low) / step * step, log, step })
            }
            Self::Float { .. } => Ok(self),
        }
    }

    fn checked_choices(parameter: &str, choices: Vec<Choice>) -> Result<Self, SearchError> {
        if choices.is_empty() {
            return Err(SearchError::parameter(parameter, "there is nothing to choose from"));
        }
        for (index, choice) in choices.iter().enumerate() {
            if matches!(choice, Choice::Number(number) if !number.is_finite()) {
                return Err(SearchError::parameter(parameter, format!("the choice {choice} is not finite")));
            }
            if choices[..index].contains(choice) {
                return Err(SearchError::parameter(parameter, format!("the choice `{choice}` is there twice")));
            }
        }
        Ok(Self::Choices(choices))
    }

    /// How many values there are, where they can be counted.
    pub fn count(&self) -> Option<u64> {
        match self {
            Self::Float { low, high, step: Some(step), .. } => Some(((high - low) / step).round() as u64 + 1),
            Self::Float { low, high, .. } => (low == high).then_some(1),
            Self::Int { low, high, step, .. } => Some(((high - low) / step) as u64 + 1),
            Self::Choices(choices) => Some(choices.len() as u64),
        }
    }

    /// Value number `index` of `count`, in order.
    pub fn nth(&self, index: u64, count: u64) -> f64 {
        match self {
            Self::Int { low, log: true, .. } => *low as f64 + index as f64,
            _ => self.from_unit((index as f64 + 0.5) / count as f64),
        }
    }

    /// Whether there is no order among the values.
    pub fn is_choice(&self) -> bool {
        matches!(self, Self::Choices(_))
    }

    /// The place of a value in `[0, 1]`. Values that can be counted sit in the middle of cells; without `log` these have
    /// the same width.
    pub fn to_unit(&self, value: f64) -> f64 {
        let unit = match *self {
            Self::Float { low, high, .. } if low == high => 0.5,
            Self::Float { low, step: Some(step), .. } => (((value - low) / step).round() + 0.5) / self.cells(),
            Self::Float { low, high, log: true, .. } => (value.ln() - low.ln()) / (high.ln() - low.ln()),
            Self::Float { low, high, .. } => (value - low) / (high - low),
            Self::Int { low, high, log: true, .. } => {
                let (low, high) = (low as f64 - 0.5, high as f64 + 0.5);
                (value.ln() - low.ln()) / (high.ln() - low.ln())
            }
            Self::Int { low, step, .. } => (((value - low as f64) / step as f64).round() + 0.5) / self.cells(),
            Self::Choices(_) => (value + 0.5) / self.cells(),
        };
        unit.clamp(0.0, 1.0)
    }

    /// The value at a place in `[0, 1]`, or the nearest one.
    pub fn from_unit(&self, unit: f64) -> f64 {
        let unit = if unit.is_nan() { 0.5 } else { unit.clamp(0.0, 1.0) };
        let cell = || (unit * self.cells()).floor().min(self.cells() - 1.0);
        match *self {
            Self::Float { low, high, step: Some(step), .. } => (low + cell() * step).clamp(low, high),
            Self::Float { low, high, log: true, .. } => {
                (low.ln() + unit * (high.ln() - low.ln())).exp().clamp(low, high)
            }
            Self::Float { low, high, .. } => (low + unit * (high - low)).clamp(low, high),
            Self::Int { low, high, log: true, .. } => {
                let (from, to) = ((low as f64 - 0.5).ln(), (high as f64 + 0.5).ln());
                (from + unit * (to - from)).exp().round().clamp(low as f64, high as f64)
            }
            Self::Int { low, step, .. } => low as f64 + cell() * step as f64,
            Self::Choices(_) => cell(),
        }
    }

    /// The value of this domain that is nearest to `value`: the same one where it belongs to it.
    pub fn nearest(&self, value: f64) -> f64 {
        match *self {
            Self::Float { low, high, step: None, .. } => value.clamp(low, high),
            Self::Int { low, high, log: true, .. } => value.round().clamp(low as f64, high as f64),
            _ => self.from_unit(self.to_unit(value)),
        }
    }

    /// Whether `value` belongs to it.
    pub fn contains(&self, value: f64) -> bool {
        match *self {
            Self::Float { low, high, step, .. } => {
                let on_step = step.is_none_or(|step| (self.nearest(value) - value).abs() <= 1e-6 * step);
                (low..=high).contains(&value) && on_step
            }
            Self::Int { low, high, step, .. } => {
                (low as f64..=high as f64).contains(&value) && value.fract() == 0.0 && (value as i64 - low) % step == 0
            }
            Self::Choices(ref choices) => value >= 0.0 && value.fract() == 0.0 && value < choices.len() as f64,
        }
    }

    fn cells(&self) -> f64 {
        self.count().unwrap_or(1) as f64
    }
}
