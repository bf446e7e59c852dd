//! From lines to operations. Bytes may be anything.

use super::{Direction, Json, NewTrial, Operation, OptunaState, Owner, Record, Setting, Time};
use crate::{
    SearchError,
    space::{Choice, Domain},
};

/// What a journal says, up to the last whole line.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Reading {
    /// Its lines.
    pub records: Vec<Record>,
    /// How many bytes they are. What follows is not a whole line.
    pub length: usize,
    /// What was found after them: the torn end of a line whose writer died.
    pub torn: Option<String>,
}

/// Reads a journal. A last line that is torn is left out and told; any other line that makes no sense is an error: whatever
/// came after it was written by somebody who knew it, and one that is whole may be of a newer Optuna.
pub fn read(bytes: &[u8]) -> Result<Reading, SearchError> {
    let mut reading = Reading::default();
    for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let last = reading.length + line.len() == bytes.len();
        let record = line.strip_suffix(b"\n").ok_or("its end is missing".to_owned()).and_then(record);
        match record {
            Ok(record) => {
                reading.records.push(record);
                reading.length += line.len();
            }
            Err(_) if last && !is_whole(line) => {
                let shown: String = String::from_utf8_lossy(line).chars().take(80).collect();
                reading.torn = Some(shown.trim_end().to_owned());
            }
            Err(problem) => return Err(SearchError::Journal { line: number + 1, problem }),
        }
    }
    Ok(reading)
}

/// Whether a line is JSON from its beginning to its end, whatever it says.
fn is_whole(line: &[u8]) -> bool {
    let text = line.strip_suffix(b"\n").and_then(|line| std::str::from_utf8(line).ok());
    text.is_some_and(|text| Json::parse(text).is_some())
}

fn record(line: &[u8]) -> Result<Record, String> {
    let text = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
    let json = Json::parse(text).ok_or("it is not JSON")?;
    let fields = Fields(&json);
    let worker = fields.text("worker_id")?.to_owned();
    let code = fields.count("op_code")?;
    let operation = operation(code, &fields).map_err(|problem| format!("operation {code}: {problem}"))?;
    Ok(Record { worker, operation })
}

struct Fields<'a>(&'a Json);

impl<'a> Fields<'a> {
    /// The value of a key, unless it is missing or null.
    fn get(&self, key: &str) -> Option<&'a Json> {
        self.0.get(key).filter(|value| **value != Json::Null)
    }

    fn need<T>(&self, key: &str, read: impl Fn(&'a Json) -> Option<T>) -> Result<T, String> {
        let value = self.get(key).ok_or_else(|| format!("`{key}` is missing"))?;
        read(value).ok_or_else(|| format!("`{key}` is {}", brief(value)))
    }

    fn text(&self, key: &str) -> Result<&'a str, String> {
        self.need(key, Json::text)
    }

    fn count(&self, key: &str) -> Result<u64, String> {
        self.need(key, Json::count)
    }

    fn optional<T>(&self, key: &str, read: impl Fn(&'a Json) -> Option<T>) -> Result<Option<T>, String> {
        self.get(key).map(|_| self.need(key, read)).transpose()
    }
}

fn brief(value: &Json) -> String {
    value.to_string().chars().take(60).collect()
}

fn operation(code: u64, fields: &Fields<'_>) -> Result<Operation, String> {
    let owner = |user: u64| if code == user { Owner::User } else { Owner::System };
    Ok(match code {
        0 => Operation::CreateStudy {
            name: fields.text("study_name")?.to_owned(),
            directions: fields.need("directions", |value| value.list()?.iter().map(direction).collect())?,
        },
        1 => Operation::DeleteStudy { study: fields.count("study_id")? },
        2 | 3 => {
            let (key, value) = attribute(fields, owner(2))?;
            Operation::SetStudyAttribute { study: fields.count("study_id")?, owner: owner(2), key, value }
        }
        4 => Operation::CreateTrial { study: fields.count("study_id")?, trial: Box::new(new_trial(fields)?) },
        5 => {
            let name = fields.text("param_name")?.to_owned();
            let value = fields.need("param_value_internal", Json::number)?;
            let domain = domain_from_text(fields.text("distribution")?)?;
            Operation::SetParameter { trial: fields.count("trial_id")?, setting: setting(name, value, domain)? }
        }
        6 => {
            let state = fields.need("state", |value| OptunaState::new(value.integer()?))?;
            let key = if state.is_over() { "datetime_complete" } else { "datetime_start" };
            Operation::SetState {
                trial: fields.count("trial_id")?,
                state,
                values: fields.optional("values", numbers)?,
                time: fields.optional(key, time)?,
            }
        }
        7 => Operation::Report {
            trial: fields.count("trial_id")?,
            step: fields.need("step", Json::integer)?,
            value: fields.need("intermediate_value", Json::number)?,
        },
        8 | 9 => {
            let (key, value) = attribute(fields, owner(8))?;
            Operation::SetTrialAttribute { trial: fields.count("trial_id")?, owner: owner(8), key, value }
        }
        10 => Operation::Other { code },
        _ => return Err("this code is unknown".into()),
    })
}

fn direction(value: &Json) -> Option<Direction> {
    match value.integer()? {
        1 => Some(Direction::Minimize),
        2 => Some(Direction::Maximize),
        _ => None,
    }
}

fn attribute(fields: &Fields<'_>, owner: Owner) -> Result<(String, Json), String> {
    let key = if owner == Owner::User { "user_attr" } else { "system_attr" };
    match fields.need(key, Json::entries)? {
        [entry] => Ok(entry.clone()),
        entries => Err(format!("`{key}` has {} entries instead of one", entries.len())),
    }
}

fn numbers(value: &Json) -> Option<Vec<f64>> {
    value.list()?.iter().map(Json::number).collect()
}

fn time(value: &Json) -> Option<Time> {
    Time::parse(value.text()?)
}

fn new_trial(fields: &Fields<'_>) -> Result<NewTrial, String> {
    let state = fields.optional("state", |value| OptunaState::new(value.integer()?))?;
    let mut trial = NewTrial::new(state.unwrap_or(OptunaState::Running), fields.optional("datetime_start", time)?);
    trial.end = fields.optional("datetime_complete", time)?;
    let value = fields.optional("value", Json::number)?;
    trial.values = fields.optional("values", numbers)?.or(value.map(|value| vec![value]));
    let entries = |key: &str| fields.optional(key, Json::entries).map(Option::unwrap_or_default);
    let domains = entries("distributions")?;
    for (name, value) in entries("params")? {
        let domain_of = domains.iter().find(|(key, _)| key == name).and_then(|(_, value)| value.text());
        let domain = domain_from_text(domain_of.ok_or_else(|| format!("parameter `{name}` has no distribution"))?)?;
        let value = value.number().ok_or_else(|| format!("parameter `{name}` is {}", brief(value)))?;
        trial.settings.push(setting(name.clone(), value, domain)?);
    }
    for (owner, key) in [(Owner::User, "user_attrs"), (Owner::System, "system_attrs")] {
        trial.attributes.extend(entries(key)?.iter().map(|(name, value)| (owner, name.clone(), value.clone())));
    }
    for (step, value) in entries("intermediate_values")? {
        let report = step.parse().ok().zip(value.number());
        trial.reports.push(report.ok_or_else(|| format!("the report of step `{step:.60}` is {}", brief(value)))?);
    }
    Ok(trial)
}

/// Values are taken as they are, even from outside their domain; but what is no number or no choice is refused.
fn setting(name: String, value: f64, domain: Domain) -> Result<Setting, String> {
    let fits = if domain.is_choice() { domain.contains(value) } else { value.is_finite() };
    if fits { Ok(Setting { name, value, domain }) } else { Err(format!("parameter `{name}` has the value {value}")) }
}

/// A domain from the text that Optuna makes of it.
pub fn domain_from_text(text: &str) -> Result<Domain, String> {
    let json = Json::parse(text).ok_or_else(|| format!("the distribution {text:.60} is not JSON"))?;
    let attributes = Fields(json.get("attributes").unwrap_or(&Json::Null));
    let flag = |value: &Json| if let Json::Flag(flag) = value { Some(*flag) } else { None };
    let log = || attributes.optional("log", flag).map(|log| log == Some(true));
    let domain = match Fields(&json).text("name")? {
        "FloatDistribution" => Domain::Float {
            low: attributes.need("low", Json::number)?,
            high: attributes.need("high", Json::number)?,
            log: log()?,
            step: attributes.optional("step", Json::number)?,
        },
        "IntDistribution" => Domain::Int {
            low: attributes.need("low", Json::integer)?,
            high: attributes.need("high", Json::integer)?,
            log: log()?,
            step: attributes.optional("step", Json::integer)?.unwrap_or(1),
        },
        "CategoricalDistribution" => {
            Domain::Choices(attributes.need("choices", |value| value.list()?.iter().map(choice).collect())?)
        }
        other => return Err(format!("the distribution `{other:.60}` is unknown")),
    };
    domain.checked("distribution").map_err(|error| error.to_string())
}

/// A choice from JSON; lists and objects are none.
pub(crate) fn choice(value: &Json) -> Option<Choice> {
    Some(match value {
        Json::Null => Choice::Null,
        Json::Flag(flag) => Choice::Flag(*flag),
        Json::Integer(number) => Choice::Integer(*number),
        Json::Number(number) => Choice::Number(*number),
        Json::Text(text) => Choice::Text(text.clone()),
        Json::List(_) | Json::Object(_) => return None,
    })
}
