//! Spaces in one line: `lr=log:1e-4..1,batch-size=32|64|128`, for command lines and messages.
//!
//! | text | values |
//! |---|---|
//! | `float:0..1`, `float:0..1:0.25` | numbers, with a fixed step |
//! | `log:1e-4..1` | numbers by order of magnitude |
//! | `int:1..6`, `int:0..64:8` | integers, with a fixed step |
//! | `logint:8..1024` | integers by order of magnitude |
//! | `1..6`, `0..0.9` | integers where both ends are, numbers otherwise |
//! | `sgd\|adam`, `32\|64\|128`, `'a,b'\|none` | choices; a quote within quotes is doubled |
//!
//! A condition follows after ` when `, as in `momentum=float:0..0.99 when optimizer == 'sgd'`. Names with signs in them
//! are in backquotes. What is written is read as the same space, to the last bit.

use std::{fmt, str::FromStr};

use super::{Choice, Domain, Parameter, Space};
use crate::SearchError;

impl Space {
    /// Each parameter as one line, in order.
    pub fn lines(&self) -> Vec<String> {
        self.parameters().iter().map(ToString::to_string).collect()
    }

    /// The space of such lines.
    pub fn from_lines<'a>(lines: impl IntoIterator<Item = &'a str>) -> Result<Self, SearchError> {
        Self::new(lines.into_iter().map(parameter).collect::<Result<_, _>>()?)
    }
}

impl FromStr for Space {
    type Err = SearchError;

    fn from_str(text: &str) -> Result<Self, SearchError> {
        Self::from_lines(split(text, ','))
    }
}

fn parameter(text: &str) -> Result<Parameter, SearchError> {
    let Some(at) = find_outside(text, "=") else {
        return Err(SearchError::Space(format!("has the part `{}`, which is not NAME=VALUES", text.trim())));
    };
    let (name, rest) = (unquoted(text[..at].trim(), &['`']), &text[at + 1..]);
    let (values, condition) = match find_outside(rest, " when ") {
        Some(at) => (&rest[..at], Some(&rest[at + " when ".len()..])),
        None => (rest, None),
    };
    let name = name.unwrap_or_else(|| text[..at].trim().to_owned());
    let domain = domain(values.trim()).map_err(|problem| SearchError::parameter(&name, problem))?;
    let parameter = Parameter::new(name, domain);
    condition.map_or(Ok(parameter.clone()), |condition| parameter.when(condition.trim()))
}

/// Reads one domain, or says what is wrong with it.
pub(super) fn domain(text: &str) -> Result<Domain, String> {
    if text.is_empty() {
        return Err("there is nothing to choose from".into());
    }
    let quoted = text.starts_with(['\'', '"']);
    match text.split_once(':').filter(|_| !quoted && find_outside(text, "|").is_none()) {
        Some((kind @ ("float" | "log" | "int" | "logint"), range)) => ranged(kind, range),
        Some((kind, range)) if range.contains("..") => {
            Err(SearchError::unknown("kind of range", kind, ["float", "log", "int", "logint"]).to_string())
        }
        _ if !quoted && text.contains("..") && find_outside(text, "|").is_none() => {
            let whole = |text: &str| text.trim().parse::<i64>().is_ok();
            let (low, high) = text.split_once("..").unwrap_or((text, ""));
            let kind = if whole(low) && whole(high.split(':').next().unwrap_or("")) { "int" } else { "float" };
            ranged(kind, text)
        }
        _ => Ok(Domain::Choices(split(text, '|').iter().map(|choice| self::choice(choice.trim())).collect())),
    }
}

fn ranged(kind: &str, text: &str) -> Result<Domain, String> {
    let shape = || format!("`{text}` is not a range such as 1..10");
    let (low, rest) = text.split_once("..").ok_or_else(shape)?;
    let (high, step) = rest.split_once(':').map_or((rest, None), |(high, step)| (high, Some(step)));
    let float = |text: &str| text.trim().parse::<f64>().map_err(|_| format!("`{}` is not a number", text.trim()));
    let whole = |text: &str| text.trim().parse::<i64>().map_err(|_| format!("`{}` is not an integer", text.trim()));
    let log = kind.starts_with("log");
    if kind.ends_with("int") {
        let step = step.map_or(Ok(1), whole)?;
        return Ok(Domain::Int { low: whole(low)?, high: whole(high)?, log, step });
    }
    Ok(Domain::Float { low: float(low)?, high: float(high)?, log, step: step.map(float).transpose()? })
}

/// A word is a number, a truth value, `none`, or itself; in quotes it is always itself.
fn choice(text: &str) -> Choice {
    if let Some(text) = unquoted(text, &['\'', '"']) {
        return Choice::Text(text);
    }
    match text {
        "true" => return Choice::Flag(true),
        "false" => return Choice::Flag(false),
        "none" => return Choice::Null,
        _ => {}
    }
    if let Ok(number) = text.parse::<i64>() {
        return Choice::Integer(number);
    }
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    number.map_or_else(|| Choice::Text(text.to_owned()), Choice::Number)
}

/// What is between quotes of one of these kinds, with doubled quotes made single.
fn unquoted(text: &str, quotes: &[char]) -> Option<String> {
    let quote =
        text.chars().next().filter(|first| quotes.contains(first) && text.len() > 1 && text.ends_with(*first))?;
    Some(text[1..text.len() - 1].replace(&format!("{quote}{quote}"), &quote.to_string()))
}

fn quoted(text: &str, quote: char) -> String {
    format!("{quote}{}{quote}", text.replace(quote, &format!("{quote}{quote}")))
}

/// Where `wanted` is for the first time outside quotes and brackets.
fn find_outside(text: &str, wanted: &str) -> Option<usize> {
    let (mut quote, mut depth) = (None, 0usize);
    for (index, c) in text.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if depth == 0 && text[index..].starts_with(wanted) => return Some(index),
            None if matches!(c, '\'' | '"' | '`') => quote = Some(c),
            None if c == '[' => depth += 1,
            None if c == ']' => depth = depth.saturating_sub(1),
            None => {}
        }
    }
    None
}

fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while let Some(at) = find_outside(rest, separator.encode_utf8(&mut [0; 4])) {
        parts.push(&rest[..at]);
        rest = &rest[at + separator.len_utf8()..];
    }
    parts.push(rest);
    parts
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Float { low, high, log, step } => {
                write!(f, "{}:{low:?}..{high:?}", if *log { "log" } else { "float" })?;
                step.map_or(Ok(()), |step| write!(f, ":{step:?}"))
            }
            Self::Int { low, high, log, step } => {
                write!(f, "{}:{low}..{high}", if *log { "logint" } else { "int" })?;
                if *step == 1 { Ok(()) } else { write!(f, ":{step}") }
            }
            Self::Choices(choices) => {
                for (index, choice) in choices.iter().enumerate() {
                    f.write_str(if index > 0 { "|" } else { "" })?;
                    write_choice(f, choice, choices.len() == 1)?;
                }
                Ok(())
            }
        }
    }
}

/// Writes a choice so that it is read as the same one.
fn write_choice(f: &mut fmt::Formatter<'_>, choice: &Choice, alone: bool) -> fmt::Result {
    match choice {
        Choice::Number(number) => write!(f, "{number:?}"),
        Choice::Text(text) => {
            let plain = !text.is_empty()
                && text.trim() == text
                && self::choice(text) == *choice
                && !text.contains(['|', ',', '\'', '"', '`', '[', ']'])
                && !text.contains(" when ")
                && !(alone && (text.contains("..") || text.contains(':')));
            f.write_str(&if plain { text.clone() } else { quoted(text, '\'') })
        }
        other => write!(f, "{other}"),
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = self.name.chars().all(|c| c.is_alphanumeric() || "_-./".contains(c));
        let name = if plain { self.name.clone() } else { quoted(&self.name, '`') };
        write!(f, "{name}={}", self.domain)?;
        self.when.as_ref().map_or(Ok(()), |condition| write!(f, " when {condition}"))
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, parameter) in self.parameters().iter().enumerate() {
            write!(f, "{}{parameter}", if index > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}
