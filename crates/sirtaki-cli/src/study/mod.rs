//! Studies in files. The crate [`sirtaki_search`] decides what to try; here is what it leaves to others: the file that
//! describes a study, the journal on disk, and who may write to it. The command `sirtaki search` and the Python package
//! build on the same parts.
//!
//! - [`plan`]: `study.toml`, checked as a whole before anything runs.
//! - [`limits`]: what trials have to keep to.
//! - [`template`]: the command of a trial with its parameters filled in.
//! - [`store`]: a study and its journal on disk, which agree after every change.
//! - [`lock`]: Optuna's lock on a journal, and the claim of the one coordinator of a study.
//! - [`database`]: studies as SQLite files of Optuna.
//! - [`values`]: what trials report on standard output.
//! - [`summary`]: a study in words and as data.
//! - [`by_text`]: a study for other languages.

pub mod by_text;
pub mod database;
mod entries;
pub mod limits;
pub mod lock;
pub mod plan;
pub mod store;
pub mod summary;
pub mod template;
pub mod values;

pub use self::entries::parse_duration;

use std::time::{SystemTime, UNIX_EPOCH};

use sirtaki_search::{SearchError, journal::Time};

use crate::printer::Advice;

/// The journal's file in the folder of a study.
pub const JOURNAL: &str = "journal.log";
/// The attribute that says in which slot a trial runs; only trials that a coordinator started have it.
pub const SLOT: &str = "sirtaki:slot";

/// The time now, as journals have it.
pub fn now() -> Time {
    let micros = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    Time(i64::try_from(micros).unwrap_or(i64::MAX))
}

/// What the pure crate says, with what to do about it where that is known.
pub fn advice(error: SearchError) -> Advice {
    let hint = match &error {
        SearchError::Changed { .. } => "go back to the space in which it began, or give the study another name",
        SearchError::Journal { .. } => {
            "the journal was damaged by something else; restore a copy, or give the study another name"
        }
        _ => "",
    };
    Advice::new(error.to_string(), hint)
}
