//! Values of variables, as pure functions over texts. An empty variable counts as not set.

use std::time::Duration;

use super::{
    JobError,
    variables::{SECONDS, SECONDS_OR_OFF, SECRET, allowed},
};

/// How variables are looked up, so that tests need not touch those of the process.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Beyond any machine's memory, so certainly a typing error.
const LIMIT: usize = 1 << 40;

/// The value of a variable, without surrounding space; `None` if nothing else is there.
pub(super) fn text(get: Lookup<'_>, name: &str) -> Option<String> {
    get(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// The value of one of our variables, if it is set.
pub(super) fn optional<T>(
    get: Lookup<'_>,
    name: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, JobError> {
    let Some(value) = text(get, name) else { return Ok(None) };
    match parse(&value) {
        Some(parsed) => Ok(Some(parsed)),
        None => {
            let value = if name == SECRET { "(not shown)".into() } else { value };
            Err(JobError::Bad { name, value, allowed: allowed(name).into() })
        }
    }
}

/// The value of one of our variables, which has to be set.
pub(super) fn required<T>(
    get: Lookup<'_>,
    name: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, JobError> {
    optional(get, name, parse)?.ok_or_else(|| JobError::Missing { name, allowed: allowed(name).into() })
}

/// Seconds that mean never, but can still be added to any point in time.
const NEVER: f64 = 1e9;

/// A duration from a number of seconds. More than thirty years mean forever.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|&number| number > 0.0).map(|number| number.min(NEVER));
    number.and_then(|number| Duration::try_from_secs_f64(number).ok()).ok_or_else(|| format!("must be {SECONDS}"))
}

/// A number of seconds, or never.
pub(super) fn seconds_or_off(text: &str) -> Option<Option<Duration>> {
    match off(text) {
        true => Some(None),
        false => seconds(text).ok().map(Some),
    }
}

/// The text, if it is a number of seconds or a word for never.
pub fn seconds_or_never(text: &str) -> Result<String, String> {
    let known = seconds_or_off(text).map(|_| text.to_owned());
    known.ok_or_else(|| format!("must be {SECONDS_OR_OFF}"))
}

/// A switch, in the words people use for it.
pub fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// Whether a value that may be more than a switch says no.
fn off(text: &str) -> bool {
    switch(text) == Some(false)
}

/// Bytes, with an optional unit. Units are powers of 1024.
pub fn bytes(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let bad = || format!("`{text}` is not a size; write bytes, or add K, M or G, such as 64K");
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit: usize = match text[digits.len()..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return Err(bad()),
    };
    let bytes = digits.parse::<usize>().ok().and_then(|number| number.checked_mul(unit)).ok_or_else(bad)?;
    if bytes > LIMIT {
        return Err(format!("`{text}` is more than 1 TiB; choose a size that fits in memory, such as 1G"));
    }
    Ok(bytes)
}

/// Bytes, or 0 for off.
pub(super) fn bytes_or_off(text: &str) -> Option<usize> {
    if off(text) { Some(0) } else { bytes(text).ok() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_read_as_people_write_them() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!((seconds("1e19"), seconds("inf")), (seconds("1e9"), seconds("1e9")));
        assert_eq!((seconds_or_off("0"), seconds_or_off("Off")), (Some(None), Some(None)));
        assert_eq!(seconds_or_off("2"), Some(Some(Duration::from_secs(2))));
        assert_eq!((switch("YES"), switch("off"), switch("2")), (Some(true), Some(false), None));
        assert_eq!((bytes_or_off("16M"), bytes_or_off("off"), bytes_or_off("much")), (Some(16 << 20), Some(0), None));
    }

    proptest! {
        #[test]
        fn no_text_makes_them_panic(text in "\\PC{0,20}|[0-9.eEkKmMgG+-]{0,12}") {
            let _ = (seconds(&text), seconds_or_off(&text), switch(&text), bytes(&text), bytes_or_off(&text));
        }
    }
}
