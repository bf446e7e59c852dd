//! What can be tried: parameters, their domains, and the conditions under which they exist.

mod domain;
mod encoding;

pub use domain::{Choice, Domain, LARGEST};
pub use encoding::Layout;

use crate::SearchError;

/// One parameter of a space.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its name, unique in its space.
    pub name: String,
    /// The values it can take.
    pub domain: Domain,
}

/// A set of parameters.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Space {
    parameters: Vec<Parameter>,
    /// The indices of all parameters, each after those that its condition asks for.
    order: Vec<usize>,
}

/// A value per parameter of a space, in the order of the space, and none for those that are off. Floats are themselves,
/// integers are whole numbers, choices are indices.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Point(pub Vec<Option<f64>>);

impl Space {
    /// A space of these parameters, once they are checked.
    pub fn new(parameters: Vec<Parameter>) -> Result<Self, SearchError> {
        let order = (0..parameters.len()).collect();
        let check =
            |parameter: Parameter| Ok(Parameter { domain: parameter.domain.checked(&parameter.name)?, ..parameter });
        let parameters = parameters.into_iter().map(check).collect::<Result<Vec<_>, SearchError>>()?;
        Ok(Self { parameters, order })
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
    pub fn is_active(&self, _index: usize, _values: &[Option<f64>]) -> bool {
        true
    }

    /// Whether some parameters exist only where others have certain values.
    pub fn is_conditional(&self) -> bool {
        false
    }

    /// The point that `choose` makes: it is asked for the value of every parameter that exists, those first that
    /// others depend on, and sees what was chosen before.
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
}
