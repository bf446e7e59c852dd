//! What the values of a study's file may be, one function per kind; nothing where a value is none of that kind.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;
use sirtaki_search::space::Choice;

use super::limits::Limit;

pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && name.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c))
}

pub(super) fn as_text(value: &Value) -> Option<String> {
    Some(value.as_str()?.to_owned())
}

pub(super) fn as_positive(value: &Value) -> Option<u64> {
    value.as_u64().filter(|&number| number > 0)
}

/// A text, or a number or truth value as it is typed.
pub(super) fn as_word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

pub(super) fn as_words(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(as_word).collect()
}

/// Seconds, or a text such as `90s`, `10m` or `1h30m`.
pub(super) fn as_duration(value: &Value) -> Option<Duration> {
    match value {
        Value::Number(seconds) => Duration::try_from_secs_f64(seconds.as_f64()?).ok().filter(|time| !time.is_zero()),
        other => parse_duration(other.as_str()?),
    }
}

/// Seconds as a number, or a text such as `90s`, `10m` or `1h30m`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero());
    }
    let (mut total, mut digits) = (0.0, String::new());
    for c in text.trim().chars() {
        if c.is_ascii_digit() || c == '.' {
            digits.push(c);
            continue;
        }
        let unit = match c {
            's' => 1.0,
            'm' => 60.0,
            'h' => 3600.0,
            'd' => 86_400.0,
            _ => return None,
        };
        total += std::mem::take(&mut digits).parse::<f64>().ok()? * unit;
    }
    let whole = digits.is_empty() && total > 0.0;
    whole.then(|| Duration::try_from_secs_f64(total).ok()).flatten()
}

pub(super) fn as_variables(value: &Value) -> Option<BTreeMap<String, String>> {
    value.as_object()?.iter().map(|(name, value)| Some((name.clone(), as_word(value)?))).collect()
}

pub(super) fn as_points(value: &Value) -> Option<Vec<Vec<(String, Choice)>>> {
    let choice = |value: &Value| serde_json::from_value::<Choice>(value.clone()).ok();
    let point =
        |value: &Value| value.as_object()?.iter().map(|(name, value)| Some((name.clone(), choice(value)?))).collect();
    value.as_array()?.iter().map(point).collect()
}

/// One text, or a list of such.
pub(super) fn as_texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(one) => Some(vec![one.clone()]),
        list => list.as_array()?.iter().map(as_text).collect(),
    }
}

/// Limits such as `memory <= 8`.
pub(super) fn as_limits(value: &Value) -> Option<Vec<Limit>> {
    as_texts(value)?.iter().map(|text| Limit::parse(text)).collect()
}
