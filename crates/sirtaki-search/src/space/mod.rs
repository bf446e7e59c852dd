//! What can be tried: parameters, their domains, and the conditions under which they exist.
//!
//! A space is checked as a whole when it is made. Whoever has one knows that names are unique, ranges are not empty,
//! conditions do not wait for each other, and that every parameter exists at some point.

mod condition;
mod difference;
mod domain;
mod encoding;
mod rule;
mod table;
#[cfg(test)]
pub(crate) mod tests;
mod text;

pub use condition::{Condition, Expression, Operator};
pub use domain::{Choice, Domain, LARGEST};
pub use encoding::Layout;

use self::rule::Rule;
use crate::SearchError;

/// One parameter of a space.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its name, unique in its space.
    pub name: String,
    /// The values it can take.
    pub domain: Domain,
    /// When it exists; always, where there is no condition.
    pub when: Option<Condition>,
}

/// A set of parameters.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Space {
    parameters: Vec<Parameter>,
    rules: Vec<Option<Rule>>,
    /// The indices of all parameters, each after those that its rule asks for.
    order: Vec<usize>,
}

/// A value per parameter of a space, in the order of the space, and none for those that are off. Floats are themselves,
/// integers are whole numbers, choices are indices.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Point(pub Vec<Option<f64>>);

/// More parameters than anybody searches over.
const MOST_PARAMETERS: usize = 2000;

impl Parameter {
    /// A parameter that always exists.
    pub fn new(name: impl Into<String>, domain: Domain) -> Self {
        Self { name: name.into(), domain, when: None }
    }

    /// The same parameter, existing where `condition` holds.
    pub fn when(mut self, condition: &str) -> Result<Self, SearchError> {
        let refuse = |problem| SearchError::parameter(&self.name, format!("in its condition `{condition}`, {problem}"));
        self.when = Some(Condition::parse(condition).map_err(refuse)?);
        Ok(self)
    }
}

impl Space {
    /// A space of these parameters, once they are checked.
    pub fn new(parameters: Vec<Parameter>) -> Result<Self, SearchError> {
        if parameters.len() > MOST_PARAMETERS {
            return Err(SearchError::Space(format!("has more than {MOST_PARAMETERS} parameters")));
        }
        let mut checked: Vec<Parameter> = Vec::with_capacity(parameters.len());
        for parameter in parameters {
            if parameter.name.is_empty() {
                return Err(SearchError::Space("has a parameter without a name".into()));
            }
            if checked.iter().any(|other| other.name == parameter.name) {
                return Err(SearchError::parameter(&parameter.name, "it is there twice"));
            }
            checked.push(Parameter { domain: parameter.domain.checked(&parameter.name)?, ..parameter });
        }
        let rule = |parameter: &Parameter| {
            let condition = parameter.when.as_ref();
            condition.map(|condition| Rule::new(&parameter.name, condition.expression(), &checked)).transpose()
        };
        let rules = checked.iter().map(rule).collect::<Result<Vec<_>, _>>()?;
        let order = rule::order(&checked, &rules)?;
        rule::check_satisfiable(&checked, &rules, &order)?;
        Ok(Self { parameters: checked, rules, order })
    }

    /// The parameters, as they were given.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.parameters.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.parameters.is_empty()
    }

    /// Where the parameter called `name` is.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.parameters.iter().position(|parameter| parameter.name == name)
    }

    /// Whether a parameter exists, given the values of those that its condition asks for.
    pub fn is_active(&self, index: usize, values: &[Option<f64>]) -> bool {
        self.rules[index].as_ref().is_none_or(|rule| rule.holds(values))
    }

    /// Whether some parameters exist only where others have certain values.
    pub fn is_conditional(&self) -> bool {
        self.rules.iter().any(Option::is_some)
    }

    /// The point that `choose` makes: it is asked for the value of every parameter that exists, those first that
    /// others depend on, and sees what was chosen before. What it answers is moved to the nearest value of the domain.
    pub fn fill(&self, mut choose: impl FnMut(usize, &[Option<f64>]) -> f64) -> Point {
        let mut values = vec![None; self.len()];
        for &index in &self.order {
            if self.is_active(index, &values) {
                let value = choose(index, &values);
                values[index] = Some(self.parameters[index].domain.nearest(value));
            }
        }
        Point(values)
    }

    /// Whether exactly those parameters have a value that should, and one of their domain.
    pub fn contains(&self, point: &Point) -> bool {
        point.0.len() == self.len()
            && point.0.iter().enumerate().all(|(index, value)| match value {
                Some(value) => self.is_active(index, &point.0) && self.parameters[index].domain.contains(*value),
                None => !self.is_active(index, &point.0),
            })
    }

    /// How many points there are, where they can be counted and conditions do not matter.
    pub fn count(&self) -> Option<u64> {
        self.parameters.iter().try_fold(1u64, |count, parameter| count.checked_mul(parameter.domain.count()?))
    }
}
