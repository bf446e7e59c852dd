//! From operations to lines.

use super::{Direction, Json, NewTrial, Operation, Owner, Record, Setting, Time};
use crate::space::{Choice, Domain};

impl Record {
    /// The line, with its end.
    pub fn line(&self) -> String {
        let (code, fields) = fields(&self.operation);
        let mut entries =
            vec![("op_code".to_owned(), code.into()), ("worker_id".to_owned(), self.worker.as_str().into())];
        entries.extend(fields.into_iter().map(|(key, value)| (key.to_owned(), value)));
        format!("{}\n", Json::Object(entries))
    }
}

type Fields = Vec<(&'static str, Json)>;

fn fields(operation: &Operation) -> (u64, Fields) {
    match operation {
        Operation::CreateStudy { name, directions } => {
            let directions: Vec<u64> = directions.iter().map(|direction: &Direction| *direction as u64).collect();
            (0, vec![("study_name", name.as_str().into()), ("directions", directions.into())])
        }
        Operation::DeleteStudy { study } => (1, vec![("study_id", (*study).into())]),
        Operation::SetStudyAttribute { study, owner, key, value } => (
            if *owner == Owner::User { 2 } else { 3 },
            vec![("study_id", (*study).into()), attribute(*owner, key, value)],
        ),
        Operation::CreateTrial { study, trial } => (4, new_trial(*study, trial)),
        Operation::SetParameter { trial, setting } => {
            let fields = vec![
                ("trial_id", (*trial).into()),
                ("param_name", setting.name.as_str().into()),
                ("param_value_internal", internal(setting)),
                ("distribution", Json::Text(domain_to_text(&setting.domain))),
            ];
            (5, fields)
        }
        Operation::SetState { trial, state, values, time } => {
            let mut fields = vec![
                ("trial_id", (*trial).into()),
                ("state", (*state as u64).into()),
                ("values", values.clone().into()),
            ];
            let key = if state.is_over() { "datetime_complete" } else { "datetime_start" };
            fields.extend(time.map(|time| (key, moment(time))));
            (6, fields)
        }
        Operation::Report { trial, step, value } => {
            let fields = vec![
                ("trial_id", (*trial).into()),
                ("step", Json::Integer(*step)),
                ("intermediate_value", (*value).into()),
            ];
            (7, fields)
        }
        Operation::SetTrialAttribute { trial, owner, key, value } => (
            if *owner == Owner::User { 8 } else { 9 },
            vec![("trial_id", (*trial).into()), attribute(*owner, key, value)],
        ),
        Operation::Other { code } => (*code, Vec::new()),
    }
}

fn attribute(owner: Owner, key: &str, value: &Json) -> (&'static str, Json) {
    let field = if owner == Owner::User { "user_attr" } else { "system_attr" };
    (field, Json::Object(vec![(key.to_owned(), value.clone())]))
}

/// A trial in one line, so that it is there as a whole or not at all.
fn new_trial(study: u64, trial: &NewTrial) -> Fields {
    let attributes = |owner: Owner| {
        let own = trial.attributes.iter().filter(|attribute| attribute.0 == owner);
        Json::Object(own.map(|(_, key, value)| (key.clone(), value.clone())).collect())
    };
    let settings = |of: &dyn Fn(&Setting) -> Json| {
        Json::Object(trial.settings.iter().map(|setting| (setting.name.clone(), of(setting))).collect())
    };
    let reports = trial.reports.iter().map(|(step, value)| (step.to_string(), (*value).into())).collect();
    // Optuna reads a single value from a field of its own.
    let (value, values) = match trial.values.as_deref() {
        Some([value]) => (Some(*value), None),
        _ => (None, trial.values.clone()),
    };
    let mut fields = vec![("study_id", study.into()), ("datetime_start", trial.start.map(moment).into())];
    fields.push(("state", (trial.state as u64).into()));
    fields.extend([("value", value.into()), ("values", values.into())]);
    fields.extend(trial.end.map(|end| ("datetime_complete", moment(end))));
    fields.push(("distributions", settings(&|setting| Json::Text(domain_to_text(&setting.domain)))));
    fields.push(("params", settings(&internal)));
    fields.extend([("user_attrs", attributes(Owner::User)), ("system_attrs", attributes(Owner::System))]);
    fields.push(("intermediate_values", Json::Object(reports)));
    fields
}

fn moment(time: Time) -> Json {
    Json::Text(time.to_string())
}

fn internal(setting: &Setting) -> Json {
    match setting.domain {
        Domain::Choices(_) => Json::Integer(setting.value as i64),
        _ => Json::Number(setting.value),
    }
}

/// A domain as a text that contains JSON, which is Optuna's way.
pub fn domain_to_text(domain: &Domain) -> String {
    let object = |entries: Vec<(&str, Json)>| {
        Json::Object(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    };
    let (name, attributes) = match domain {
        Domain::Float { low, high, log, step } => {
            let ends = vec![("step", (*step).into()), ("low", (*low).into()), ("high", (*high).into())];
            ("FloatDistribution", [ends, vec![("log", Json::Flag(*log))]].concat())
        }
        Domain::Int { low, high, log, step } => {
            let ends =
                vec![("step", Json::Integer(*step)), ("low", Json::Integer(*low)), ("high", Json::Integer(*high))];
            ("IntDistribution", [vec![("log", Json::Flag(*log))], ends].concat())
        }
        Domain::Choices(choices) => {
            let choices = choices.iter().map(choice).collect();
            ("CategoricalDistribution", vec![("choices", Json::List(choices))])
        }
    };
    object(vec![("name", name.into()), ("attributes", object(attributes))]).to_string()
}

/// A choice as it is in JSON.
pub(crate) fn choice(choice: &Choice) -> Json {
    match choice {
        Choice::Null => Json::Null,
        Choice::Flag(flag) => Json::Flag(*flag),
        Choice::Integer(number) => Json::Integer(*number),
        Choice::Number(number) => Json::Number(*number),
        Choice::Text(text) => Json::Text(text.clone()),
    }
}
