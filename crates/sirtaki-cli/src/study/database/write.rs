//! From a study to a file.

use std::path::Path;

use rusqlite::{Connection, MAIN_DB, Transaction, params};
use sirtaki_engine::files;
use sirtaki_search::{
    journal::{Direction, Json, Owner, Time, domain_to_text},
    study::{State, StudyRecord, Trial},
};

use super::{FINITE, INFINITE, LOWEST, NOT_A_NUMBER, SCHEMA};
use crate::printer::Advice;

const TABLES: &str = include_str!("schema.sql");
/// The number of the one study in a file.
const STUDY: i64 = 1;

/// Writes a study as a SQLite file that Optuna opens with `sqlite:///FILE`.
pub fn write(path: &Path, study: &StudyRecord) -> Result<(), Advice> {
    let bytes =
        database(study).map_err(|error| Advice::bare(format!("the study cannot be made a database: {error}")))?;
    files::write(path, &bytes)
        .map_err(|error| Advice::new(format!("cannot write {}: {error}", path.display()), "is the disk full?"))
}

fn database(study: &StudyRecord) -> rusqlite::Result<Vec<u8>> {
    let mut connection = Connection::open_in_memory()?;
    connection.execute_batch(TABLES)?;
    let change = connection.transaction()?;
    head(&change, study)?;
    for trial in &study.trials {
        self::trial(&change, trial)?;
    }
    change.commit()?;
    Ok(connection.serialize(MAIN_DB)?.to_vec())
}

fn head(change: &Transaction<'_>, study: &StudyRecord) -> rusqlite::Result<()> {
    let by = concat!("sirtaki ", env!("CARGO_PKG_VERSION"));
    change.execute("insert into version_info values (1, ?, ?)", params![SCHEMA.0, by])?;
    change.execute("insert into alembic_version values (?)", [SCHEMA.1])?;
    change.execute("insert into studies values (?, ?)", params![STUDY, study.name])?;
    for (objective, direction) in study.directions.iter().enumerate() {
        let word = if *direction == Direction::Minimize { "MINIMIZE" } else { "MAXIMIZE" };
        let statement = "insert into study_directions (direction, study_id, objective) values (?, ?, ?)";
        change.execute(statement, params![word, STUDY, objective as i64])?;
    }
    attributes(change, "study", STUDY, &study.attributes)
}

fn attributes(
    change: &Transaction<'_>,
    of: &str,
    id: i64,
    attributes: &[(Owner, String, Json)],
) -> rusqlite::Result<()> {
    for (owner, key, value) in attributes {
        let table = if *owner == Owner::User { "user" } else { "system" };
        let statement = format!("insert into {of}_{table}_attributes ({of}_id, key, value_json) values (?, ?, ?)");
        change.execute(&statement, params![id, key, value.to_string()])?;
    }
    Ok(())
}

fn trial(change: &Transaction<'_>, trial: &Trial) -> rusqlite::Result<()> {
    // Optuna counts the trials of a file from 1 on, over all studies.
    let id = trial.number as i64 + 1;
    let state = match trial.state {
        State::Waiting => "WAITING",
        State::Running => "RUNNING",
        State::Finished => "COMPLETE",
        // Optuna itself lets a trial end well with an infinite value.
        State::Diverged if !trial.values.is_empty() => "COMPLETE",
        State::Stopped => "PRUNED",
        State::Diverged | State::TimedOut | State::Failed => "FAIL",
    };
    let (start, end) = (trial.start.map(moment), trial.end.map(moment));
    change.execute(
        "insert into trials values (?, ?, ?, ?, ?, ?)",
        params![id, trial.number as i64, STUDY, state, start, end],
    )?;
    for setting in &trial.settings {
        let statement =
            "insert into trial_params (trial_id, param_name, param_value, distribution_json) values (?, ?, ?, ?)";
        change.execute(statement, params![id, setting.name, setting.value, domain_to_text(&setting.domain)])?;
    }
    for (objective, value) in trial.values.iter().enumerate() {
        let statement = "insert into trial_values (trial_id, objective, value, value_type) values (?, ?, ?, ?)";
        let (value, kind) = number(*value);
        // There is no word for a value that is not a number; Optuna lets no trial end with one.
        let kind = if kind == NOT_A_NUMBER { INFINITE } else { kind };
        change.execute(statement, params![id, objective as i64, value, kind])?;
    }
    for (step, value) in &trial.reports {
        let statement = "insert into trial_intermediate_values \
                         (trial_id, step, intermediate_value, intermediate_value_type) values (?, ?, ?, ?)";
        let (value, kind) = number(*value);
        change.execute(statement, params![id, step, value, kind])?;
    }
    attributes(change, "trial", id, &trial.attributes)
}

/// A number and the word beside it.
fn number(value: f64) -> (Option<f64>, &'static str) {
    match value {
        value if value.is_nan() => (None, NOT_A_NUMBER),
        f64::INFINITY => (None, INFINITE),
        f64::NEG_INFINITY => (None, LOWEST),
        value => (Some(value), FINITE),
    }
}

/// A time as it is in columns, in UTC: `2026-11-16 14:26:11.518556`.
fn moment(time: Time) -> String {
    time.to_string().replace('T', " ").trim_end_matches("+00:00").to_owned()
}
