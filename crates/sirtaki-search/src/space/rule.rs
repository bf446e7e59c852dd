//! Conditions made ready: names resolved, constants checked against domains, cycles and conditions that never hold found.

use super::{
    Choice, Domain, Parameter,
    condition::{Expression, Operator},
};
use crate::SearchError;

/// A condition whose parameters are indices.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Rule {
    Any(Vec<Rule>),
    All(Vec<Rule>),
    Not(Box<Rule>),
    /// Whether each choice of a parameter passes.
    Choice(usize, Vec<bool>),
    /// How the number of a parameter is compared.
    Number(usize, Operator, Vec<f64>),
}

impl Rule {
    /// Makes the condition of `owner` ready.
    pub(super) fn new(owner: &str, expression: &Expression, parameters: &[Parameter]) -> Result<Self, SearchError> {
        let several = |parts: &[Expression]| {
            parts.iter().map(|part| Self::new(owner, part, parameters)).collect::<Result<Vec<_>, _>>()
        };
        match expression {
            Expression::Any(parts) => several(parts).map(Self::Any),
            Expression::All(parts) => several(parts).map(Self::All),
            Expression::Not(part) => Ok(Self::Not(Box::new(Self::new(owner, part, parameters)?))),
            Expression::Compare(name, operator, constants) => {
                let index = parameters.iter().position(|parameter| parameter.name == *name);
                let index = index.ok_or_else(|| {
                    let unknown = SearchError::unknown("parameter", name, parameters.iter().map(|p| p.name.as_str()));
                    SearchError::parameter(owner, format!("its condition has an {unknown}"))
                })?;
                Self::compare(index, &parameters[index], *operator, constants)
                    .map_err(|problem| SearchError::parameter(owner, format!("its condition {problem}")))
            }
        }
    }

    fn compare(index: usize, on: &Parameter, operator: Operator, constants: &[Choice]) -> Result<Self, String> {
        let name = &on.name;
        let ordered = !matches!(operator, Operator::Equal | Operator::Different | Operator::In);
        let Domain::Choices(choices) = &on.domain else {
            let numbers = constants.iter().map(|constant| {
                let not_a_number = || format!("compares the number `{name}` with `{constant}`, which is none");
                number(constant).ok_or_else(not_a_number)
            });
            return Ok(Self::Number(index, operator, numbers.collect::<Result<_, _>>()?));
        };
        if ordered {
            let values: Option<Vec<f64>> = choices.iter().map(number).collect();
            let (Some(values), Some(constant)) = (values, number(&constants[0])) else {
                return Err(format!("asks which of the choices of `{name}` is larger, but they have no order"));
            };
            return Ok(Self::Choice(index, values.iter().map(|value| holds(operator, *value, &[constant])).collect()));
        }
        let mut named = vec![false; choices.len()];
        for constant in constants {
            let same =
                |choice: &Choice| choice == constant || number(choice).is_some_and(|v| number(constant) == Some(v));
            let Some(place) = choices.iter().position(same) else {
                let words: Vec<String> = choices.iter().map(ToString::to_string).collect();
                let unknown = SearchError::unknown("choice", &constant.to_string(), words.iter().map(String::as_str));
                return Err(format!("has an {unknown} (`{name}` is one of {})", words.join(", ")));
            };
            named[place] = true;
        }
        let wanted = operator != Operator::Different;
        Ok(Self::Choice(index, named.iter().map(|named| *named == wanted).collect()))
    }

    /// Whether it holds. A comparison with a parameter that is off does not.
    pub(super) fn holds(&self, values: &[Option<f64>]) -> bool {
        match self {
            Self::Any(rules) => rules.iter().any(|rule| rule.holds(values)),
            Self::All(rules) => rules.iter().all(|rule| rule.holds(values)),
            Self::Not(rule) => !rule.holds(values),
            Self::Choice(index, passes) => {
                values[*index].is_some_and(|value| passes.get(value as usize).copied().unwrap_or(false))
            }
            Self::Number(index, operator, constants) => {
                values[*index].is_some_and(|value| holds(*operator, value, constants))
            }
        }
    }

    /// Calls `visit` for every comparison: the parameter, and the numbers that it is compared with.
    pub(super) fn visit(&self, visit: &mut impl FnMut(usize, &[f64])) {
        match self {
            Self::Any(rules) | Self::All(rules) => rules.iter().for_each(|rule| rule.visit(visit)),
            Self::Not(rule) => rule.visit(visit),
            Self::Choice(index, _) => visit(*index, &[]),
            Self::Number(index, _, constants) => visit(*index, constants),
        }
    }
}

fn number(choice: &Choice) -> Option<f64> {
    match choice {
        Choice::Integer(number) => Some(*number as f64),
        Choice::Number(number) => Some(*number),
        _ => None,
    }
}

fn holds(operator: Operator, value: f64, constants: &[f64]) -> bool {
    match operator {
        Operator::Equal | Operator::In => constants.contains(&value),
        Operator::Different => value != constants[0],
        Operator::Less => value < constants[0],
        Operator::AtMost => value <= constants[0],
        Operator::Greater => value > constants[0],
        Operator::AtLeast => value >= constants[0],
    }
}

/// The indices of all parameters, each after those that its rule asks for, otherwise as they were given.
pub(super) fn order(parameters: &[Parameter], rules: &[Option<Rule>]) -> Result<Vec<usize>, SearchError> {
    let parents: Vec<Vec<usize>> = rules.iter().map(parents).collect();
    let (mut order, mut settled) = (Vec::new(), vec![false; parameters.len()]);
    while order.len() < parameters.len() {
        let before = order.len();
        for index in 0..parameters.len() {
            if !settled[index] && parents[index].iter().all(|&parent| settled[parent]) {
                settled[index] = true;
                order.push(index);
            }
        }
        if order.len() == before {
            return Err(cycle(parameters, &parents, &settled));
        }
    }
    Ok(order)
}

fn parents(rule: &Option<Rule>) -> Vec<usize> {
    let mut parents = Vec::new();
    if let Some(rule) = rule {
        rule.visit(&mut |index, _| parents.push(index));
    }
    parents.sort_unstable();
    parents.dedup();
    parents
}

fn cycle(parameters: &[Parameter], parents: &[Vec<usize>], settled: &[bool]) -> SearchError {
    let open = |index: &usize| !settled[*index];
    let mut path: Vec<usize> = (0..parameters.len()).find(open).into_iter().collect();
    // Every parameter that is open waits for another open one, so the path returns to itself before long.
    while let Some(next) = path.last().and_then(|last| parents[*last].iter().copied().find(open)) {
        let before = path.iter().position(|index| *index == next);
        path.push(next);
        if let Some(before) = before {
            path.drain(..before);
            break;
        }
    }
    let names: Vec<&str> = path.iter().map(|index| parameters[*index].name.as_str()).collect();
    SearchError::Space(format!("has conditions that wait for each other: {}", names.join(" needs ")))
}

/// So many combinations of values are tried before a condition is taken to be satisfiable.
const COMBINATIONS: usize = 10_000;

/// Finds a parameter that never exists.
pub(super) fn check_satisfiable(
    parameters: &[Parameter],
    rules: &[Option<Rule>],
    order: &[usize],
) -> Result<(), SearchError> {
    let mut constants = vec![Vec::new(); parameters.len()];
    for rule in rules.iter().flatten() {
        rule.visit(&mut |index, numbers| constants[index].extend_from_slice(numbers));
    }
    let values: Vec<Vec<f64>> =
        parameters.iter().zip(&constants).map(|(parameter, numbers)| telling(&parameter.domain, numbers)).collect();
    for (index, parameter) in parameters.iter().enumerate() {
        let Some(condition) = &parameter.when else { continue };
        let mut needed: Vec<bool> = (0..parameters.len()).map(|other| other == index).collect();
        for &later in order.iter().rev() {
            if needed[later] {
                parents(&rules[later]).into_iter().for_each(|parent| needed[parent] = true);
            }
        }
        let needed: Vec<usize> = order.iter().copied().filter(|&other| needed[other]).collect();
        let mut budget = COMBINATIONS;
        if !reachable(&needed, rules, &values, &mut vec![None; parameters.len()], &mut budget) {
            return Err(SearchError::parameter(&parameter.name, format!("its condition `{condition}` never holds")));
        }
    }
    Ok(())
}

/// Whether the last of `needed` exists for some values of those before it.
fn reachable(
    needed: &[usize],
    rules: &[Option<Rule>],
    values: &[Vec<f64>],
    point: &mut Vec<Option<f64>>,
    budget: &mut usize,
) -> bool {
    let Some((&first, rest)) = needed.split_first() else { return false };
    if *budget == 0 {
        return true;
    }
    *budget -= 1;
    let active = rules[first].as_ref().is_none_or(|rule| rule.holds(point));
    if rest.is_empty() {
        return active;
    }
    if !active {
        point[first] = None;
        return reachable(rest, rules, values, point, budget);
    }
    values[first].iter().any(|value| {
        point[first] = Some(*value);
        reachable(rest, rules, values, point, budget)
    })
}

/// Values of a domain that together give every possible outcome of comparisons with `constants`.
fn telling(domain: &Domain, constants: &[f64]) -> Vec<f64> {
    let mut values: Vec<f64> = match domain {
        Domain::Choices(choices) => (0..choices.len()).map(|choice| choice as f64).collect(),
        Domain::Int { low, high, .. } => vec![*low as f64, *high as f64],
        Domain::Float { low, high, .. } => vec![*low, *high],
    };
    for constant in constants {
        let near = domain.nearest(*constant);
        let step = match domain {
            Domain::Int { step, .. } => *step as f64,
            Domain::Float { step, .. } => step.unwrap_or(0.0),
            Domain::Choices(_) => 0.0,
        };
        values.extend([near, domain.nearest(near - step), domain.nearest(near + step)]);
    }
    values.sort_by(f64::total_cmp);
    values.dedup();
    if matches!(domain, Domain::Float { step: None, .. }) {
        let between: Vec<f64> = values.windows(2).map(|pair| pair[0] + (pair[1] - pair[0]) / 2.0).collect();
        values.extend(between);
    }
    values
}
