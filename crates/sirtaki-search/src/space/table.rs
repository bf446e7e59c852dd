//! Spaces as tables, such as the `[space]` of a study's TOML file.
//!
//! ```toml
//! optimizer = ["sgd", "adam"]
//! lr        = { log = [1e-5, 1.0] }
//! layers    = { int = [1, 6] }
//! momentum  = { float = [0, 0.99], when = "optimizer == 'sgd'" }
//! dropout   = "float:0..0.5:0.1"
//! ```

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::{Map, Value};

use super::{Choice, Domain, Parameter, Space, text};
use crate::SearchError;

const KEYS: [&str; 7] = ["float", "log", "int", "logint", "choice", "step", "when"];

impl Parameter {
    /// Reads the value of one key of `[space]`.
    pub fn from_value(name: &str, value: &Value) -> Result<Self, SearchError> {
        let refuse = |problem: String| SearchError::parameter(name, problem);
        match value {
            Value::Array(choices) => Ok(Self::new(name, self::choices(choices).map_err(refuse)?)),
            Value::String(text) => Ok(Self::new(name, text::domain(text).map_err(refuse)?)),
            Value::Object(table) => {
                let parameter = Self::new(name, domain(table).map_err(refuse)?);
                match table.get("when") {
                    None => Ok(parameter),
                    Some(Value::String(condition)) => parameter.when(condition),
                    Some(_) => Err(refuse("its condition `when` is not a text".into())),
                }
            }
            _ => Err(refuse("a list of choices or a table such as { float = [0, 1] } is expected".into())),
        }
    }
}

fn domain(table: &Map<String, Value>) -> Result<Domain, String> {
    if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(SearchError::unknown("key", key, KEYS).to_string());
    }
    // `log = true` beside `float` or `int` says the same as the kinds `log` and `logint`.
    let flag = table.get("log").and_then(Value::as_bool);
    let kinds: Vec<&str> = KEYS[..5].iter().copied().filter(|kind| table.contains_key(*kind)).collect();
    let kinds: Vec<&str> = kinds.into_iter().filter(|kind| *kind != "log" || flag.is_none()).collect();
    let [kind] = kinds[..] else {
        let which = if kinds.is_empty() { "none of them is" } else { "there is more than one" };
        return Err(format!("exactly one of float, log, int, logint and choice is expected, but {which}"));
    };
    let step = table.get("step");
    match kind {
        "choice" if step.is_some() => Err("choices have no step".into()),
        "choice" => choices(table[kind].as_array().ok_or("`choice` is not a list")?),
        "int" | "logint" => {
            let whole = |value: &Value| value.as_i64().ok_or_else(|| format!("{value} is not an integer"));
            let (low, high) = ends(kind, &table[kind])?;
            let log = kind == "logint" || flag == Some(true);
            Ok(Domain::Int { low: whole(low)?, high: whole(high)?, log, step: step.map_or(Ok(1), whole)? })
        }
        _ => {
            let float = |value: &Value| value.as_f64().ok_or_else(|| format!("{value} is not a number"));
            let (low, high) = ends(kind, &table[kind])?;
            let log = kind == "log" || flag == Some(true);
            Ok(Domain::Float { low: float(low)?, high: float(high)?, log, step: step.map(float).transpose()? })
        }
    }
}

fn ends<'a>(kind: &str, value: &'a Value) -> Result<(&'a Value, &'a Value), String> {
    match value.as_array().map(Vec::as_slice) {
        Some([low, high]) => Ok((low, high)),
        _ => Err(format!("`{kind}` is not a list of two numbers, the smallest and the largest")),
    }
}

fn choices(values: &[Value]) -> Result<Domain, String> {
    let choice = |value: &Value| {
        serde_json::from_value::<Choice>(value.clone())
            .map_err(|_| format!("the choice {value} is neither a text, a number, true, false nor null"))
    };
    values.iter().map(choice).collect::<Result<_, _>>().map(Domain::Choices)
}

impl<'de> Deserialize<'de> for Space {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(SpaceVisitor)
    }
}

struct SpaceVisitor;

impl<'de> Visitor<'de> for SpaceVisitor {
    type Value = Space;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a table of parameters")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Space, A::Error> {
        let mut parameters = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            parameters.push(Parameter::from_value(&name, &value).map_err(A::Error::custom)?);
        }
        Space::new(parameters).map_err(A::Error::custom)
    }
}
