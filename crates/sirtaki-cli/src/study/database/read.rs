//! From a file to the lines of a journal.

use std::path::Path;

use rusqlite::{Connection, OpenFlags, Row};
use sirtaki_search::{
    SearchError,
    journal::{
        Direction, Json, NewTrial, Operation, OptunaState, Owner, Record, Setting, Time, domain_from_text,
        read as check,
    },
};

use super::{INFINITE, LOWEST, NOT_A_NUMBER, unusable};
use crate::printer::Advice;

/// The name of a study in a SQLite file of Optuna and its journal; without a name it is the last one.
pub fn read(path: &Path, name: Option<&str>) -> Result<(String, String), Advice> {
    let explain = |error: rusqlite::Error| unusable(path, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(path, flags).map_err(explain)?;
    let source = Source { database: &database };
    let studies: Vec<(i64, String)> = source
        .rows("select study_id, study_name from studies order by study_id", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .map_err(explain)?;
    let found = match name {
        Some(name) => studies.iter().find(|(_, known)| known == name),
        None => studies.last(),
    };
    let (id, name) = found.ok_or_else(|| {
        let known = studies.iter().map(|(_, name)| name.as_str());
        let message = match name {
            Some(name) => SearchError::unknown("study", name, known).to_string(),
            None => "there is no study in it".into(),
        };
        Advice::bare(format!("{}: {message}", path.display()))
    })?;
    let operations = source.study(*id, name).map_err(explain)?;
    let record = |operation: Operation| Record { worker: "sirtaki-import".into(), operation }.line();
    let lines: String = operations.into_iter().map(record).collect();
    // What makes no sense is told now, with the line, and not when the study is used.
    check(lines.as_bytes()).map_err(|error| Advice::bare(format!("{}: {error}", path.display())))?;
    Ok((name.clone(), lines))
}

/// What one column has that is not as it should be.
fn wrong(problem: impl Into<String>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, problem.into().into())
}

struct Source<'a> {
    database: &'a Connection,
}

impl Source<'_> {
    fn rows<T>(
        &self,
        statement: &str,
        values: impl rusqlite::Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Vec<T>> {
        self.database.prepare(statement)?.query_map(values, read)?.collect()
    }

    fn study(&self, id: i64, name: &str) -> rusqlite::Result<Vec<Operation>> {
        let directions = "select direction from study_directions where study_id = ? order by objective";
        let directions = self.rows(directions, [id], |row| match row.get::<_, String>(0)?.as_str() {
            "MAXIMIZE" => Ok(Direction::Maximize),
            "MINIMIZE" => Ok(Direction::Minimize),
            other => Err(wrong(format!("the direction is {other}"))),
        })?;
        let mut operations = vec![Operation::CreateStudy { name: name.to_owned(), directions }];
        for (owner, key, value) in self.attributes("study", id)? {
            operations.push(Operation::SetStudyAttribute { study: 0, owner, key, value });
        }
        let trials = "select trial_id, state, datetime_start, datetime_complete from trials where study_id = ? \
                      order by number, trial_id";
        let trials = self.rows(trials, [id], |row| {
            let mut trial = NewTrial::new(state(&row.get::<_, String>(1)?)?, moment(row.get(2)?)?);
            trial.end = moment(row.get(3)?)?;
            Ok((row.get::<_, i64>(0)?, trial))
        })?;
        for (id, mut trial) in trials {
            self.complete(id, &mut trial)?;
            operations.push(Operation::CreateTrial { study: 0, trial: Box::new(trial) });
        }
        Ok(operations)
    }

    fn complete(&self, id: i64, trial: &mut NewTrial) -> rusqlite::Result<()> {
        let settings =
            "select param_name, param_value, distribution_json from trial_params where trial_id = ? order by param_id";
        trial.settings = self.rows(settings, [id], |row| {
            let domain = domain_from_text(&row.get::<_, String>(2)?).map_err(wrong)?;
            Ok(Setting { name: row.get(0)?, value: row.get(1)?, domain })
        })?;
        let values = "select value, value_type from trial_values where trial_id = ? order by objective";
        let values = self.rows(values, [id], |row| number(row, 0))?;
        trial.values = (!values.is_empty()).then_some(values);
        let reports = "select step, intermediate_value, intermediate_value_type from trial_intermediate_values \
                       where trial_id = ? order by step";
        trial.reports = self.rows(reports, [id], |row| Ok((row.get(0)?, number(row, 1)?)))?;
        trial.attributes = self.attributes("trial", id)?;
        Ok(())
    }

    fn attributes(&self, of: &str, id: i64) -> rusqlite::Result<Vec<(Owner, String, Json)>> {
        let mut found = Vec::new();
        for (owner, word) in [(Owner::User, "user"), (Owner::System, "system")] {
            let table = format!("{of}_{word}_attributes");
            let statement =
                format!("select key, value_json from {table} where {of}_id = ? order by {of}_{word}_attribute_id");
            found.extend(self.rows(&statement, [id], |row| {
                let (key, text): (String, String) = (row.get(0)?, row.get(1)?);
                let value = Json::parse(&text).ok_or_else(|| wrong(format!("attribute `{key}` is not JSON")))?;
                Ok((owner, key, value))
            })?);
        }
        Ok(found)
    }
}

fn state(word: &str) -> rusqlite::Result<OptunaState> {
    Ok(match word {
        "RUNNING" => OptunaState::Running,
        "COMPLETE" => OptunaState::Complete,
        "PRUNED" => OptunaState::Pruned,
        "FAIL" => OptunaState::Fail,
        "WAITING" => OptunaState::Waiting,
        other => return Err(wrong(format!("the state of a trial is {other}"))),
    })
}

fn moment(text: Option<String>) -> rusqlite::Result<Option<Time>> {
    text.map(|text| Time::parse(&text).ok_or_else(|| wrong(format!("the time is {text}")))).transpose()
}

/// A number from a column and the word in the one after it.
fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<f64> {
    let word: String = row.get(column + 1)?;
    match (row.get::<_, Option<f64>>(column)?, word.as_str()) {
        (Some(value), _) => Ok(value),
        (None, INFINITE) => Ok(f64::INFINITY),
        (None, LOWEST) => Ok(f64::NEG_INFINITY),
        (None, NOT_A_NUMBER) => Ok(f64::NAN),
        (None, other) => Err(wrong(format!("a value is missing, and {other}"))),
    }
}
