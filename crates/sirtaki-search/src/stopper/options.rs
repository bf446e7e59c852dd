//! Rules by name with their settings: `asha:min=1,max=27`, or a table with a `method`.

use std::{fmt, str::FromStr};

use serde_json::Value;

use super::Stopper;
use crate::SearchError;

/// The names of all rules: our own, and Optuna's.
pub const STOPPERS: [(&str, &str); 5] = [
    ("none", "NopPruner"),
    ("asha", "SuccessiveHalvingPruner"),
    ("hyperband", "HyperbandPruner"),
    ("median", "MedianPruner"),
    ("patience", "PatientPruner"),
];

impl Stopper {
    /// The rule of a name, with settings by name.
    pub fn new(method: &str, settings: &[(String, f64)]) -> Result<Self, SearchError> {
        let refuse = |problem: String| SearchError::parameter("stop", problem);
        let named = STOPPERS.iter().find(|(name, alias)| *name == method || *alias == method);
        let names = || STOPPERS.iter().flat_map(|(name, alias)| [*name, *alias]);
        let (name, _) = named.ok_or_else(|| SearchError::unknown("way to stop", method, names()))?;
        let known: &[&str] = match *name {
            "asha" => &["min", "max", "factor", "promote"],
            "hyperband" => &["min", "max", "factor"],
            "median" => &["startup", "warmup"],
            "patience" => &["steps", "tolerance"],
            _ => &[],
        };
        if let Some((key, _)) = settings.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            return Err(SearchError::unknown("setting of `stop`", key, known.iter().copied()));
        }
        let get = |key: &str| settings.iter().rev().find(|(name, _)| name == key).map(|(_, value)| *value);
        let whole = |key: &str, usual: u64, least: u64| match get(key) {
            None => Ok(usual),
            Some(value) if value.fract() == 0.0 && (least as f64..=1e15).contains(&value) => Ok(value as u64),
            Some(value) => Err(refuse(format!("`{key}` is {value}, but must be a whole number from {least} on"))),
        };
        let halving = || {
            let (min, max, factor) = (whole("min", 1, 1)?, whole("max", 81, 1)?, whole("factor", 3, 2)?);
            if min > max { Err(refuse(format!("`min` {min} is above `max` {max}"))) } else { Ok((min, max, factor)) }
        };
        Ok(match *name {
            "asha" => {
                let promote = match get("promote") {
                    None => false,
                    Some(value) if value == 0.0 || value == 1.0 => value == 1.0,
                    Some(value) => return Err(refuse(format!("`promote` is {value}, but must be true or false"))),
                };
                halving().map(|(min, max, factor)| Self::Asha { min, max, factor, promote })?
            }
            "hyperband" => halving().map(|(min, max, factor)| Self::Hyperband { min, max, factor })?,
            "median" => Self::Median { startup: whole("startup", 5, 0)?, warmup: whole("warmup", 0, 0)? },
            "patience" => {
                let tolerance = get("tolerance").unwrap_or(0.0);
                if !(tolerance.is_finite() && tolerance >= 0.0) {
                    return Err(refuse(format!("`tolerance` is {tolerance}, but must not be negative")));
                }
                Self::Patience { steps: whole("steps", 10, 1)?, tolerance }
            }
            _ => Self::None,
        })
    }

    /// Reads the `stop` of a study's file: a name, a line or a table such as `{ method = "asha", min = 1, max = 27 }`.
    pub fn from_value(value: &Value) -> Result<Self, SearchError> {
        match value {
            Value::String(text) => text.parse(),
            Value::Object(table) => {
                let method = table.get("method").and_then(Value::as_str);
                let method = method.ok_or_else(|| SearchError::parameter("stop", "its `method` is missing"))?;
                let setting = |(key, value): (&String, &Value)| {
                    let number = value.as_f64().or_else(|| value.as_bool().map(|flag| f64::from(u8::from(flag))));
                    let problem =
                        || SearchError::parameter("stop", format!("`{key}` is {value}, which is not a number"));
                    Ok((key.clone(), number.ok_or_else(problem)?))
                };
                let settings: Result<Vec<_>, SearchError> =
                    table.iter().filter(|(key, _)| *key != "method").map(setting).collect();
                Self::new(method, &settings?)
            }
            _ => Err(SearchError::parameter("stop", "a name or a table with a `method` is expected")),
        }
    }
}

impl FromStr for Stopper {
    type Err = SearchError;

    fn from_str(text: &str) -> Result<Self, SearchError> {
        let (method, rest) = text.split_once(':').unwrap_or((text, ""));
        let setting = |part: &str| {
            let pair = part.split_once('=').and_then(|(key, value)| Some((key.trim(), value.trim().parse().ok()?)));
            let (key, value) =
                pair.ok_or_else(|| SearchError::parameter("stop", format!("`{part}` is not NAME=NUMBER")))?;
            Ok((key.to_owned(), value))
        };
        let parts = rest.split(',').filter(|part| !part.trim().is_empty());
        Self::new(method.trim(), &parts.map(setting).collect::<Result<Vec<_>, SearchError>>()?)
    }
}

impl fmt::Display for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Asha { min, max, factor, promote } => {
                let promote = if *promote { ",promote=1" } else { "" };
                write!(f, "asha:min={min},max={max},factor={factor}{promote}")
            }
            Self::Hyperband { min, max, factor } => write!(f, "hyperband:min={min},max={max},factor={factor}"),
            Self::Median { startup, warmup } => write!(f, "median:startup={startup},warmup={warmup}"),
            Self::Patience { steps, tolerance } => write!(f, "patience:steps={steps},tolerance={tolerance:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for text in [
            "none",
            "asha:min=1,max=27,factor=3,promote=1",
            "median:startup=5,warmup=0",
            "patience:steps=10,tolerance=0.5",
        ] {
            assert_eq!(text.parse::<Stopper>().unwrap().to_string(), text);
        }
        let table = serde_json::json!({"method": "SuccessiveHalvingPruner", "max": 9});
        let asha = |promote: bool| Stopper::Asha { min: 1, max: 9, factor: 3, promote };
        assert_eq!(Stopper::from_value(&table).unwrap(), asha(false));
        let table = serde_json::json!({"method": "asha", "max": 9, "promote": true});
        assert_eq!(Stopper::from_value(&table).unwrap(), asha(true));
    }

    #[test]
    fn refusals_say_what_is_wrong() {
        for (text, reason) in [
            ("asah", "unknown way to stop `asah`; did you mean `asha`?"),
            ("asha:mni=1", "unknown setting of `stop` `mni`; did you mean `min`?"),
            ("asha:min=0", "parameter `stop`: `min` is 0, but must be a whole number from 1 on"),
            ("asha:promote=2", "parameter `stop`: `promote` is 2, but must be true or false"),
            ("asha:min=9,max=3", "parameter `stop`: `min` 9 is above `max` 3"),
            ("median:startup=x", "parameter `stop`: `startup=x` is not NAME=NUMBER"),
        ] {
            assert_eq!(text.parse::<Stopper>().unwrap_err().to_string(), reason);
        }
    }
}
