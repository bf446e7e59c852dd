//! Options from files and variables, read by the same parser as the command line: `ranks = 4` in a file and
//! `SIRTAKI_RUN_VIA=ssh` become `--ranks=4` and `--via=ssh`. So there is one set of names, one set of rules, and one
//! place to add an option.

use std::{error::Error, path::Path};

use clap::{CommandFactory, Parser, error::ContextKind};
use toml::de::{DeTable, DeValue};

use sirtaki_launch::outside::Outside;

use super::variables::OPTIONS;
use crate::{args::run::Run, printer::Advice};

/// Options alone, without the command before them.
#[derive(Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Alone {
    #[command(flatten)]
    run: Run,
}

/// One option, and where it was found.
struct Entry {
    /// As messages begin: `job.toml:3: ranks`, or the name of the variable.
    place: String,
    /// The option's long name.
    option: String,
    values: Vec<String>,
}

/// What the environment says.
pub fn from_environment(outside: &Outside<'_>) -> Result<Run, Advice> {
    let entries = OPTIONS.iter().filter_map(|known| {
        let value = outside.variable(known.name)?;
        Some(Entry { place: known.name.into(), option: known.option.into(), values: vec![value] })
    });
    parse("the environment", &entries.collect::<Vec<_>>())
}

/// What a file says.
pub fn from_file(path: &Path, text: &str) -> Result<Run, Advice> {
    let source = path.display().to_string();
    let at = |position: usize| format!("{source}:{}", line(text, position));
    let table = DeTable::parse(text).map_err(|error| {
        let place = error.span().map_or(source.clone(), |span| at(span.start));
        Advice::new(format!("{place}: {}", error.message()), "the file must be TOML, such as `ranks = 4`")
    })?;
    let known = names();
    let (mut entries, mut program) = (Vec::new(), Vec::new());
    for (key, value) in table.get_ref() {
        let (place, name) = (at(key.span().start), key.get_ref().as_ref());
        if !known.iter().any(|known| known == name) {
            return Err(unknown(&place, name, &known));
        }
        let mut entry = Entry { place: format!("{place}: {name}"), option: name.into(), values: Vec::new() };
        let values = read(&entry, value.get_ref())?;
        if name == "program" {
            program = values;
        } else {
            entry.values = values;
            entries.push(entry);
        }
    }
    Ok(Run { program, ..parse(&source, &entries)? })
}

/// The keys a file may have: the long names of the options, and the program.
fn names() -> Vec<String> {
    let command = Alone::command();
    let options = command.get_arguments().filter_map(|argument| argument.get_long());
    options.filter(|&name| name != "config").chain(["program"]).map(Into::into).collect()
}

fn unknown(place: &str, name: &str, known: &[String]) -> Advice {
    let closeness = |known: &String| strsim::jaro_winkler(name, known);
    let nearest = known.iter().max_by(|a, b| closeness(a).total_cmp(&closeness(b)));
    let hint = match nearest.filter(|nearest| closeness(nearest) > 0.8) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("the options are {}", known.join(", ")),
    };
    Advice::new(format!("{place}: there is no option `{name}`"), hint)
}

/// A value from the file, in the form in which it would be typed.
fn read(entry: &Entry, value: &DeValue<'_>) -> Result<Vec<String>, Advice> {
    let or = |values: Option<Vec<String>>, why: &str| values.ok_or_else(|| wrong(entry, why));
    match (entry.option.as_str(), value) {
        ("program", DeValue::Array(words)) => {
            let words = words.iter().map(|word| word.get_ref().as_str().map(Into::into));
            or(words.collect(), "must be strings, such as [\"python\", \"train.py\"]")
        }
        ("program", _) => or(None, "must be an array, such as [\"python\", \"train.py\"]"),
        ("env", DeValue::Table(all)) => {
            let pairs = all.iter().map(|(name, value)| Some(format!("{}={}", name.get_ref(), text(value.get_ref())?)));
            or(pairs.collect(), "must have strings or numbers as values")
        }
        ("hosts", DeValue::Array(items)) => {
            let items: Option<Vec<_>> = items.iter().map(|item| text(item.get_ref())).collect();
            or(items.map(|items| vec![items.join(",")]), "must be strings, such as [\"a:4\", \"b:4\"]")
        }
        (_, DeValue::Array(items)) => or(items.iter().map(|item| text(item.get_ref())).collect(), "must be strings"),
        (_, value) => or(text(value).map(|value| vec![value]), "must be a single value"),
    }
}

fn text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok().map(|n| n.to_string()),
        DeValue::Float(number) => Some(number.as_str().into()),
        DeValue::Boolean(value) => Some(value.to_string()),
        _ => None,
    }
}

/// Reads options as if they had been typed: each by itself, so that mistakes can be located, then together, to find
/// conflicts.
fn parse(source: &str, entries: &[Entry]) -> Result<Run, Advice> {
    let typed =
        |entry: &Entry| entry.values.iter().map(|value| format!("--{}={value}", entry.option)).collect::<Vec<_>>();
    for entry in entries {
        Alone::try_parse_from(typed(entry)).map_err(|error| wrong(entry, &explain(&error)))?;
    }
    let all = Alone::try_parse_from(entries.iter().flat_map(typed)).map_err(|error| {
        let name = |kind| error.get(kind).map(|name| name.to_string()).unwrap_or_default();
        let (one, other) = (name(ContextKind::PriorArg), name(ContextKind::InvalidArg));
        Advice::new(format!("{source}: {one} and {other} exclude each other"), "keep one of them")
    })?;
    Ok(all.run)
}

/// What the argument parser found, without its remarks about the command line.
fn explain(error: &clap::Error) -> String {
    if let Some(source) = error.source() {
        return source.to_string();
    }
    match error.get(ContextKind::ValidValue) {
        Some(allowed) => format!("must be one of {allowed}"),
        None => "must be a single value".into(),
    }
}

fn wrong(entry: &Entry, why: &str) -> Advice {
    let value = if entry.values.is_empty() { String::new() } else { format!(" is `{}`:", entry.values.join(", ")) };
    Advice::new(format!("{}{value} {why}", entry.place), format!("`sirtaki run --help` explains --{}", entry.option))
}

fn line(text: &str, position: usize) -> usize {
    text.bytes().take(position).filter(|&byte| byte == b'\n').count() + 1
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
