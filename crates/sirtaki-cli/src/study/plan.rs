//! `study.toml`: what to try, with which command, and what is wanted. Whoever has a [`StudyPlan`] knows that it can run:
//! mistakes are told with the line they are in.

use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use sirtaki_search::{
    SearchError,
    space::{Choice, Parameter, Space},
    stopper::Stopper,
    study::{Definition, Objective},
};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    entries::{as_duration, as_limits, as_points, as_positive, as_text, as_texts, as_variables, as_words, is_name},
    limits::Limit,
    template::Template,
};
use crate::printer::Advice;

/// A key and where it stands.
type Key<'a> = Spanned<std::borrow::Cow<'a, str>>;

const WHOLE: &str = "must be a whole number greater than 0";
const KEYS: [&str; 17] = [
    "name",
    "command",
    "train",
    "objective",
    "trials",
    "ranks",
    "stop",
    "sampler",
    "seed",
    "timeout",
    "attempts",
    "env",
    "enqueue",
    "constraints",
    "warm_start",
    "gpus",
    "space",
];

/// What a trial runs.
#[derive(Debug, Clone, PartialEq)]
pub enum TrialWork {
    /// A command, once per rank.
    Command(Template),
    /// `sirtaki train` with these options in addition to the parameters.
    Train(Template),
}

impl TrialWork {
    /// The words of the command.
    pub fn template(&self) -> &Template {
        match self {
            TrialWork::Command(template) | TrialWork::Train(template) => template,
        }
    }
}

/// A study and how its trials run.
#[derive(Debug, Clone, PartialEq)]
pub struct StudyPlan {
    /// What is searched.
    pub definition: Definition,
    /// What a trial runs.
    pub work: TrialWork,
    /// Ranks of a trial.
    pub ranks: NonZeroUsize,
    /// How long a trial may take.
    pub timeout: Option<Duration>,
    /// Variables of every trial.
    pub env: BTreeMap<String, String>,
    /// Points to try first.
    pub enqueue: Vec<Vec<(String, Choice)>>,
    /// What trials have to keep to.
    pub limits: Vec<Limit>,
    /// Folders or journals of earlier studies to learn from.
    pub warm_start: Vec<PathBuf>,
    /// GPUs of each trial, where that is said.
    pub gpus: Option<NonZeroUsize>,
}

impl StudyPlan {
    /// Reads a file. `name` is the study's name where the file gives none.
    pub fn parse(path: &Path, text: &str, name: &str) -> Result<Self, Advice> {
        let source = path.display().to_string();
        let at = |position: usize| {
            format!("{source}:{}", text.bytes().take(position).filter(|&byte| byte == b'\n').count() + 1)
        };
        let table = DeTable::parse(text).map_err(|error| {
            let place = error.span().map_or(source.clone(), |span| at(span.start));
            Advice::new(format!("{place}: {}", error.message()), "the file must be TOML; docs/search.md has examples")
        })?;
        let mut entries: Vec<Entry> = Vec::new();
        for (key, value) in in_order(table.get_ref()) {
            let place = at(key.span().start);
            if !KEYS.contains(&key.get_ref().as_ref()) {
                let error = SearchError::unknown("key", key.get_ref(), KEYS);
                return Err(Advice::new(format!("{place}: {error}"), format!("the keys are {}", KEYS.join(", "))));
            }
            let value = if key.get_ref() == "space" {
                Found::Space(space(value.get_ref(), &at)?)
            } else {
                Found::Value(json(value.get_ref()))
            };
            entries.push(Entry { place, key: key.get_ref().to_string(), value });
        }
        Reader { source, entries }.plan(name)
    }

    /// A study of `sirtaki train` itself, in a space as it is typed, such as `lr=log:1e-4..1`.
    pub fn train(space: &str, options: &[String], name: &str) -> Result<Self, Advice> {
        let space: Space = space.parse().map_err(|error: SearchError| {
            Advice::new(error.to_string(), "write it like lr=log:1e-4..1,batch-size=32|64|128")
        })?;
        let mut definition = Definition::new(name, space);
        definition.objectives = vec![train_objective()?];
        let work = train_work(options.to_vec(), &definition.space)?;
        Ok(Self {
            definition,
            work,
            ranks: NonZeroUsize::MIN,
            timeout: None,
            env: BTreeMap::new(),
            enqueue: Vec::new(),
            limits: Vec::new(),
            warm_start: Vec::new(),
            gpus: None,
        })
    }
}

impl StudyPlan {
    /// The names of the values that trials report: objectives, then those with limits.
    pub fn reported(&self) -> Vec<String> {
        let objectives = self.definition.objectives.iter().map(|objective| objective.name.clone());
        objectives.chain(self.limits.iter().map(|limit| limit.name.clone())).collect()
    }
}

fn train_objective() -> Result<Objective, Advice> {
    "minimize test_loss".parse().map_err(super::advice)
}

/// The rule of a study whose trials can go on from checkpoints: unless it says otherwise, those that were stopped do so when
/// they turn out to be good.
pub fn promoting(stopper: Stopper, typed: &Value) -> Stopper {
    let said = typed.get("promote").is_some() || typed.as_str().is_some_and(|text| text.contains("promote"));
    match stopper {
        Stopper::Asha { min, max, factor, promote } => Stopper::Asha { min, max, factor, promote: promote || !said },
        other => other,
    }
}

/// Every parameter becomes the option of its name.
fn train_work(options: Vec<String>, space: &Space) -> Result<TrialWork, Advice> {
    let own = space.parameters().iter().map(|parameter| format!("--{0}={{{0}}}", parameter.name));
    let template = Template::parse(&options.into_iter().chain(own).collect::<Vec<_>>())?;
    template.check(space)?;
    Ok(TrialWork::Train(template))
}

enum Found {
    Space(Space),
    Value(Value),
}

struct Entry {
    place: String,
    key: String,
    value: Found,
}

struct Reader {
    source: String,
    entries: Vec<Entry>,
}

impl Reader {
    fn plan(self, name: &str) -> Result<StudyPlan, Advice> {
        let space = self.entries.iter().find_map(|entry| match &entry.value {
            Found::Space(space) => Some(space.clone()),
            Found::Value(_) => None,
        });
        let space = space.filter(|space| !space.is_empty()).ok_or_else(|| {
            Advice::new(
                format!("{}: there is no [space] to search", self.source),
                "add one, such as `[space]` and `lr = { log = [1e-5, 1] }`",
            )
        })?;
        let work = self.work(&space)?;
        let definition = self.definition(Definition::new(name, space), matches!(work, TrialWork::Train(_)))?;
        let count = |key: &str| {
            let count = self.read(key, as_positive, WHOLE)?;
            Ok::<_, Advice>(count.and_then(|count| NonZeroUsize::new(usize::try_from(count).ok()?)))
        };
        let plan = StudyPlan {
            work,
            ranks: count("ranks")?.unwrap_or(NonZeroUsize::MIN),
            gpus: count("gpus")?,
            timeout: self.read(
                "timeout",
                as_duration,
                "must be seconds, or a text such as \"90s\", \"10m\" or \"1h30m\"",
            )?,
            env: self.read("env", as_variables, "must be a table such as { OMP_NUM_THREADS = 1 }")?.unwrap_or_default(),
            enqueue: self
                .read("enqueue", as_points, "must be a list of tables such as [{ lr = 0.1 }]")?
                .unwrap_or_default(),
            limits: self
                .read("constraints", as_limits, "must be a text such as \"memory <= 8\", or a list of such texts")?
                .unwrap_or_default(),
            warm_start: self
                .read(
                    "warm_start",
                    as_texts,
                    "must be the folder of a study such as \"runs/study\", or a list of such",
                )?
                .map_or_else(Vec::new, |all| all.into_iter().map(PathBuf::from).collect()),
            definition,
        };
        Ok(plan)
    }

    /// What is searched; `train` says that trials are `sirtaki train` itself.
    fn definition(&self, mut definition: Definition, train: bool) -> Result<Definition, Advice> {
        definition.objectives = self.objectives(train)?;
        if let Some(name) = self.read("name", as_text, "must be a text")? {
            definition.name = self.checked(
                "name",
                is_name(&name).then_some(name),
                "must consist of letters, digits, `-`, `_` and `.`",
            )?;
        }
        definition.seed = self.read("seed", Value::as_u64, "must be a whole number that is not negative")?.unwrap_or(0);
        definition.trials = self.read("trials", as_positive, WHOLE)?;
        definition.attempts = self.read("attempts", as_positive, WHOLE)?.unwrap_or(definition.attempts);
        if let Some(sampler) = self.read("sampler", as_text, "must be the name of a sampler")? {
            let known =
                sirtaki_search::sampler::find(&sampler).map_err(|error| self.wrong("sampler", &error.to_string()))?;
            definition.sampler = known.name.into();
        }
        if let Some(value) = self.value("stop") {
            let stopper = Stopper::from_value(value).map_err(|error| self.wrong("stop", &error.to_string()))?;
            definition.stopper = if train { promoting(stopper, value) } else { stopper };
        }
        Ok(definition)
    }

    fn value(&self, key: &str) -> Option<&Value> {
        self.entries.iter().find(|entry| entry.key == key).and_then(|entry| match &entry.value {
            Found::Value(value) => Some(value),
            Found::Space(_) => None,
        })
    }

    fn wrong(&self, key: &str, problem: &str) -> Advice {
        let place = self.entries.iter().find(|entry| entry.key == key).map_or(&self.source, |entry| &entry.place);
        let hint = "docs/search.md explains every key";
        Advice::new(format!("{place}: `{key}`: {}", problem.trim_start_matches("parameter `stop`: ")), hint)
    }

    fn checked<T>(&self, key: &str, value: Option<T>, expected: &str) -> Result<T, Advice> {
        value.ok_or_else(|| self.wrong(key, expected))
    }

    fn read<T>(&self, key: &str, read: fn(&Value) -> Option<T>, expected: &str) -> Result<Option<T>, Advice> {
        self.value(key).map(|value| self.checked(key, read(value), expected)).transpose()
    }

    fn objectives(&self, train: bool) -> Result<Vec<Objective>, Advice> {
        let texts: Vec<String> = match self.value("objective") {
            Some(Value::String(one)) => vec![one.clone()],
            Some(value) => {
                let all =
                    value.as_array().and_then(|all| all.iter().map(|one| Some(one.as_str()?.to_owned())).collect());
                self.checked("objective", all, "must be a text such as \"minimize val_loss\", or a list of such texts")?
            }
            None if train => return Ok(vec![train_objective()?]),
            None => {
                let hint = "say what is wanted, such as `objective = \"minimize val_loss\"`";
                return Err(Advice::new(format!("{}: `objective` is missing", self.source), hint));
            }
        };
        let objectives: Result<Vec<Objective>, SearchError> = texts.iter().map(|text| text.parse()).collect();
        objectives
            .map_err(|error| self.wrong("objective", error.to_string().trim_start_matches("parameter `objective`: ")))
    }

    fn work(&self, space: &Space) -> Result<TrialWork, Advice> {
        let words = |key: &str| {
            self.read(key, as_words, "must be a list of words, such as [\"python\", \"train.py\", \"--lr\", \"{lr}\"]")
        };
        let train = match self.value("train") {
            None | Some(Value::Bool(false)) => None,
            Some(Value::Bool(true)) => Some(Vec::new()),
            Some(_) => words("train")?,
        };
        match (self.value("command"), train) {
            (Some(_), Some(_)) => Err(self.wrong("train", "there is a `command`, too; keep one of them")),
            (None, None) => {
                let hint = "say what a trial runs, such as `command = [\"python\", \"train.py\", \"--lr\", \"{lr}\"]`, or `train = true`";
                Err(Advice::new(format!("{}: `command` is missing", self.source), hint))
            }
            (None, Some(options)) => train_work(options, space).map_err(|advice| self.placed("train", advice)),
            (Some(_), None) => {
                let words = words("command")?.unwrap_or_default();
                if words.is_empty() {
                    return Err(self.wrong("command", "is empty"));
                }
                let template = Template::parse(&words).and_then(|template| template.check(space).map(|()| template));
                Ok(TrialWork::Command(template.map_err(|advice| self.placed("command", advice))?))
            }
        }
    }

    fn placed(&self, key: &str, advice: Advice) -> Advice {
        Advice { message: self.wrong(key, &advice.message).message, hint: advice.hint }
    }
}

/// The entries of a table as they stand in the file.
fn in_order<'a, 'b>(table: &'a DeTable<'b>) -> Vec<(&'a Key<'b>, &'a Spanned<DeValue<'b>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// The space, whose parameters are checked one by one so that mistakes are told where they are.
fn space(value: &DeValue<'_>, at: &dyn Fn(usize) -> String) -> Result<Space, Advice> {
    let hint = "write it like `lr = { log = [1e-5, 1] }` or `optimizer = [\"sgd\", \"adam\"]`";
    let DeValue::Table(table) = value else {
        return Err(Advice::new("`space` must be a table of parameters", hint));
    };
    let (mut parameters, mut places) = (Vec::new(), Vec::new());
    for (key, value) in in_order(table) {
        let place = at(key.span().start);
        let alone = Parameter::from_value(key.get_ref(), &json(value.get_ref()))
            .and_then(|parameter| Ok((parameter.domain.clone().checked(key.get_ref())?, parameter)));
        let (_, parameter) = alone.map_err(|error| Advice::new(format!("{place}: {error}"), hint))?;
        places.push((parameter.name.clone(), place));
        parameters.push(parameter);
    }
    Space::new(parameters).map_err(|error| {
        let about = |name: &String| error.to_string().contains(&format!("`{name}`"));
        let place = places.iter().find(|(name, _)| about(name)).map_or_else(|| at(0), |(_, place)| place.clone());
        Advice::new(format!("{place}: {error}"), "a condition is like when = \"optimizer == 'sgd'\"")
    })
}

fn json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or_else(|_| number.as_str().into(), Value::from)
        }
        DeValue::Float(number) => number.as_str().parse::<f64>().map_or(Value::Null, Value::from),
        DeValue::Boolean(flag) => Value::from(*flag),
        DeValue::Array(items) => items.iter().map(|item| json(item.get_ref())).collect(),
        DeValue::Table(table) => {
            table.iter().map(|(key, value)| (key.get_ref().to_string(), json(value.get_ref()))).collect()
        }
        DeValue::Datetime(time) => Value::from(time.to_string()),
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
