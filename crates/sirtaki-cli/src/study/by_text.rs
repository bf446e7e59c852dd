//! A study for other languages: what goes in and comes out is text, JSON where it has parts. The Python package is built on
//! it.
//!
//! Several processes may open the same journal: each change takes its lock and reads what the others wrote, so ranks of a
//! job are workers of one study without anything between them but a file.

use std::{path::Path, str::FromStr};

use serde_json::{Value, json};
use sirtaki_search::{
    SearchError,
    importance::importance,
    journal::{Json, Owner},
    space::{Choice, Parameter, Space},
    stopper::Stopper,
    study::{Asked, Definition, Ending, Objective, StudyRecord},
};

use super::{
    advice, now,
    store::{StudyStore, WantedStudy, look},
    summary,
    template::{as_json, value_as_json},
};
use crate::printer::Advice;

/// A study that can be asked and told by text.
pub struct StudyByText(StudyStore);

impl StudyByText {
    /// A study as JSON describes it: `name`, `space` (a text, a list of lines or a table), `objectives`, `seed`, `sampler`,
    /// `stop`, `trials` and `attempts`, all but the name optional. Without a path it is in memory. `wanted` is `new`,
    /// `existing` or `any`.
    pub fn open(about: &str, path: Option<&Path>, wanted: &str) -> Result<Self, Advice> {
        let definition = definition(&parsed(about)?)?;
        let wanted = match wanted {
            "new" => WantedStudy::New,
            "existing" => WantedStudy::Existing,
            _ => WantedStudy::Any,
        };
        let Some(path) = path else { return StudyStore::in_memory(definition).map(Self) };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            super::store::make_folder(folder)?;
        }
        let (space, existing) = (definition.space.clone(), wanted == WantedStudy::Existing);
        let opened = StudyStore::open(path, definition, wanted)?;
        if opened.existed && !existing && !space.is_empty() {
            opened.store.study().check_space(&space).map_err(advice)?;
        }
        Ok(Self(opened.store))
    }

    /// What the study is, as in [`StudyByText::open`].
    pub fn about(&self) -> String {
        let definition = self.0.study().definition();
        let objectives: Vec<String> = definition.objectives.iter().map(ToString::to_string).collect();
        json!({
            "name": definition.name,
            "space": definition.space.lines(),
            "objectives": objectives,
            "seed": definition.seed,
            "sampler": definition.sampler,
            "stop": definition.stopper.to_string(),
            "trials": definition.trials,
        })
        .to_string()
    }

    /// The next trial as JSON, `number`, `parameters` and `origin`, the number of the trial that it goes on with; nothing where
    /// all were asked for.
    pub fn ask(&mut self) -> Result<Option<String>, Advice> {
        // Asked again, it would be the same, so the disk need not have it before it has what came of it.
        let asked = self.0.change(false, |study| study.ask(now()))?;
        let space = &self.0.study().definition().space;
        let told = |asked: Asked| json!({"number": asked.number, "parameters": as_json(space, &asked.point), "origin": asked.origin});
        Ok(asked.map(|asked| told(asked).to_string()))
    }

    /// The number of a trial whose parameters are asked for one by one.
    pub fn ask_open(&mut self) -> Result<Option<u64>, Advice> {
        self.0.change(false, |study| study.ask_open(now()))
    }

    /// The value of a parameter of such a trial, as JSON; the domain is what a study's file has for it.
    pub fn suggest(&mut self, number: u64, name: &str, domain: &str) -> Result<String, Advice> {
        let parameter = Parameter::from_value(name, &parsed(domain)?).map_err(advice)?;
        let domain = parameter.domain.checked(name).map_err(advice)?;
        let value = self.0.change(false, |study| study.suggest(number, name, &domain))?;
        Ok(value_as_json(&domain, value).to_string())
    }

    /// Takes a value that a trial reports on its way. Says whether it should stop.
    pub fn report(&mut self, number: u64, step: i64, value: f64) -> Result<bool, Advice> {
        self.0.change(false, |study| study.report(number, step, value))
    }

    /// Ends a trial: `finished` with values, `stopped`, `failed` with a reason, or `interrupted` to run it again.
    pub fn tell(&mut self, number: u64, how: &str, values: Vec<f64>, reason: &str) -> Result<String, Advice> {
        let ending = match how {
            "finished" => Ending::Finished(values),
            "stopped" => Ending::Stopped,
            "timed out" => Ending::TimedOut,
            "interrupted" => Ending::Interrupted(reason.to_owned()),
            _ => Ending::Failed(reason.to_owned()),
        };
        self.0.change(true, |study| study.tell(number, ending, now())).map(|state| state.word().to_owned())
    }

    /// Notes how far a trial is from breaking a constraint; up to 0 it keeps it.
    pub fn constrain(&mut self, number: u64, name: &str, value: f64) -> Result<(), Advice> {
        self.0.change(false, |study| study.constrain(number, name, value))
    }

    /// Gives a running trial an attribute of the user's.
    pub fn attribute(&mut self, number: u64, key: &str, value: &str) -> Result<(), Advice> {
        let value = Json::parse(value).ok_or_else(|| Advice::bare(format!("attribute `{key}` is not JSON")))?;
        self.0.change(false, |study| study.attribute(number, Owner::User, key, value))
    }

    /// Gives the study an attribute of the user's.
    pub fn annotate(&mut self, key: &str, value: &str) -> Result<(), Advice> {
        let value = Json::parse(value).ok_or_else(|| Advice::bare(format!("attribute `{key}` is not JSON")))?;
        self.0.change(false, |study| {
            study.annotate(Owner::User, key, value);
            Ok(())
        })
    }

    /// Puts a point, a JSON object, in front of all that is suggested.
    pub fn enqueue(&mut self, point: &str) -> Result<u64, Advice> {
        let point = parsed(point)?;
        let entries = point.as_object().cloned().unwrap_or_default().into_iter();
        let choice = |(name, value): (String, Value)| {
            let choice = serde_json::from_value::<Choice>(value.clone());
            choice.map(|choice| (name.clone(), choice)).map_err(|_| {
                let hint = "values are texts, numbers, True, False and None";
                Advice::new(format!("parameter `{name}` cannot be {value}"), hint)
            })
        };
        let point = entries.map(choice).collect::<Result<Vec<_>, _>>()?;
        self.0.change(true, |study| study.enqueue(&point))
    }

    /// All trials as a list of JSON, as `sirtaki search export` has them, with their attributes.
    pub fn trials(&mut self) -> Result<String, Advice> {
        self.0.refresh()?;
        let study = self.0.study();
        let one = |trial: &sirtaki_search::study::Trial| {
            let mut data = summary::trial_as_json(study, trial);
            let domain = |setting: &sirtaki_search::journal::Setting| {
                (setting.name.clone(), Value::from(setting.domain.to_string()))
            };
            data["domains"] = trial.settings.iter().map(domain).collect::<serde_json::Map<_, _>>().into();
            let attributes = trial.attributes.iter().map(|(owner, key, value)| {
                json!([if *owner == Owner::User { "user" } else { "system" }, key, value.to_string()])
            });
            data["attributes"] = attributes.collect::<Vec<_>>().into();
            data
        };
        Ok(Value::from(study.trials().iter().map(one).collect::<Vec<_>>()).to_string())
    }

    /// The number of the best trial.
    pub fn best(&mut self) -> Result<Option<u64>, Advice> {
        self.0.refresh()?;
        Ok(self.0.study().best().map(|trial| trial.number))
    }

    /// The numbers of the trials that no other beats in every objective.
    pub fn front(&mut self) -> Result<Vec<u64>, Advice> {
        self.0.refresh()?;
        Ok(self.0.study().front().iter().map(|trial| trial.number).collect())
    }

    /// The attributes of the study that users gave it: names, and values as JSON.
    pub fn attributes(&mut self) -> Result<Vec<(String, String)>, Advice> {
        self.0.refresh()?;
        let study = self.0.study();
        let record = study.archive().studies().find(|record| record.name == study.definition().name);
        let own = |record: &StudyRecord| -> Vec<(String, String)> {
            let users = record
                .attributes
                .iter()
                .filter(|(owner, key, _)| *owner == Owner::User && !key.starts_with("sirtaki:"));
            users.map(|(_, key, value)| (key.clone(), value.to_string())).collect()
        };
        Ok(record.map(own).unwrap_or_default())
    }

    /// The share of the spread of values that each parameter explains.
    pub fn importance(&mut self) -> Result<Vec<(String, f64)>, Advice> {
        self.0.refresh()?;
        let definition = self.0.study().definition();
        let shares = importance(&definition.space, self.0.study().history(), 0, definition.seed);
        Ok(definition.space.parameters().iter().map(|known| known.name.clone()).zip(shares).collect())
    }

    /// Has no more than so many trials asked for in all.
    pub fn limit(&mut self, trials: u64) -> Result<(), Advice> {
        self.0.change(true, |study| {
            if study.definition().trials != Some(trials) {
                study.set_trials(trials);
            }
            Ok(())
        })
    }

    /// Takes over what finished in a study of another journal. Says how many trials that were.
    pub fn warm_start(&mut self, path: &Path, name: Option<&str>) -> Result<usize, Advice> {
        let earlier = look(path, name)?;
        let name = earlier.definition().name.clone();
        let Some(record) = earlier.archive().studies().find(|record| record.name == name) else { return Ok(0) };
        self.0.change(true, |study| Ok(study.warm_start(record)))
    }
}

fn parsed(text: &str) -> Result<Value, Advice> {
    serde_json::from_str(text).map_err(|error| Advice::bare(format!("{text:.80} is not JSON: {error}")))
}

fn definition(about: &Value) -> Result<Definition, Advice> {
    let text = |key: &str| about[key].as_str();
    let space = match &about["space"] {
        Value::Null => Space::default(),
        Value::String(line) => Space::from_str(line).map_err(advice)?,
        Value::Array(lines) => Space::from_lines(lines.iter().filter_map(Value::as_str)).map_err(advice)?,
        Value::Object(table) => {
            let parameter = |(name, value): (&String, &Value)| Parameter::from_value(name, value);
            let parameters = table.iter().map(parameter).collect::<Result<_, SearchError>>();
            parameters.and_then(Space::new).map_err(advice)?
        }
        other => return Err(Advice::bare(format!("the space cannot be {other}"))),
    };
    let mut definition = Definition::new(text("name").unwrap_or("study"), space);
    let sampler = text("sampler").unwrap_or(&definition.sampler);
    definition.sampler = sirtaki_search::sampler::find(sampler).map_err(advice)?.name.into();
    if let Some(objectives) = about["objectives"].as_array() {
        let parse = |one: &Value| one.as_str().unwrap_or_default().parse::<Objective>();
        definition.objectives = objectives.iter().map(parse).collect::<Result<_, _>>().map_err(advice)?;
    }
    if !about["stop"].is_null() {
        definition.stopper = Stopper::from_value(&about["stop"]).map_err(advice)?;
    }
    definition.seed = about["seed"].as_u64().unwrap_or(0);
    definition.trials = about["trials"].as_u64();
    definition.attempts = about["attempts"].as_u64().unwrap_or(definition.attempts);
    Ok(definition)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_study_speaks_json() {
        let about = r#"{"name": "s", "space": {"lr": {"log": [1e-5, 1]}, "kind": ["a", null, 3]}, "objectives": ["maximize acc"], "trials": 3}"#;
        let mut study = StudyByText::open(about, None, "any").unwrap();
        assert_eq!(study.enqueue(r#"{"lr": 0.5, "kind": null}"#).unwrap(), 0);
        let asked: Value = serde_json::from_str(&study.ask().unwrap().unwrap()).unwrap();
        assert_eq!(asked, json!({"number": 0, "parameters": {"lr": 0.5, "kind": null}, "origin": 0}));
        assert!(!study.report(0, 1, 0.5).unwrap());
        study.attribute(0, "note", "[1, 2]").unwrap();
        assert_eq!(study.tell(0, "finished", vec![0.75], "").unwrap(), "finished");
        study.ask().unwrap();
        assert_eq!(study.tell(1, "failed", vec![], "boom").unwrap(), "failed");
        let trials: Value = serde_json::from_str(&study.trials().unwrap()).unwrap();
        assert_eq!((&trials[0]["values"]["acc"], &trials[1]["reason"]), (&json!(0.75), &json!("boom")));
        assert_eq!(trials[0]["domains"]["lr"], "log:1e-5..1.0");
        assert_eq!((study.best().unwrap(), study.front().unwrap()), (Some(0), vec![0]));
        study.annotate("owner", "\"me\"").unwrap();
        assert_eq!(study.attributes().unwrap(), [("owner".to_owned(), "\"me\"".to_owned())]);
    }

    #[test]
    fn parameters_come_one_by_one() {
        let mut study = StudyByText::open(r#"{"name": "s"}"#, None, "any").unwrap();
        let number = study.ask_open().unwrap().unwrap();
        let value: f64 = study.suggest(number, "x", r#"{"float": [0, 1], "step": 0.25}"#).unwrap().parse().unwrap();
        assert!((0.0..=1.0).contains(&value) && (value * 4.0).fract() == 0.0);
        let refused = study.suggest(number, "y", r#"{"log": [0, 1]}"#).unwrap_err();
        assert!(refused.message.contains("starts above 0"), "{}", refused.message);
        assert!(StudyByText::open("{", None, "any").is_err());
        assert!(StudyByText::open(r#"{"sampler": "tpee"}"#, None, "any").err().unwrap().message.contains("`tpe`"));
    }

    #[test]
    fn workers_share_a_file() {
        let place = tempfile::tempdir().unwrap();
        let (path, about) = (place.path().join("below/journal.log"), r#"{"name": "s", "space": "x=float:0..1"}"#);
        let mut first = StudyByText::open(about, Some(&path), "any").unwrap();
        let mut second = StudyByText::open(about, Some(&path), "any").unwrap();
        assert!(first.ask().unwrap().unwrap().contains("\"number\":0"));
        assert!(second.ask().unwrap().unwrap().contains("\"number\":1"));
        first.tell(1, "finished", vec![0.5], "").unwrap();
        assert_eq!(second.best().unwrap(), Some(1));
        let other = StudyByText::open(&about.replace("0..1", "0..2"), Some(&path), "any").err().unwrap();
        assert!(other.message.contains("`x` was"), "{}", other.message);
    }
}
