//! Studies as SQLite files in the schema of Optuna's relational storage, for those who have such files or whose tools want
//! them. Studies themselves stay in journals: a file is written once, as a whole, and read once.
//!
//! The file is built in memory and put in place when it is complete, so nobody sees half of it.

mod read;
mod write;

pub use self::{read::read, write::write};

use std::path::Path;

use crate::printer::Advice;

/// The version of the schema, as Optuna counts them and as its migrations name it.
const SCHEMA: (i64, &str) = (12, "v3.2.0.a");

/// What the columns beside a number say that SQLite cannot keep as one.
const FINITE: &str = "FINITE";
const INFINITE: &str = "INF_POS";
const LOWEST: &str = "INF_NEG";
const NOT_A_NUMBER: &str = "NAN";

fn unusable(path: &Path, error: &rusqlite::Error) -> Advice {
    let hint = "name a SQLite file that Optuna wrote, such as the one behind sqlite:///study.db";
    Advice::new(format!("{} cannot be read as studies of Optuna: {error}", path.display()), hint)
}

#[cfg(test)]
mod tests {
    use sirtaki_search::{
        journal::{Json, Owner, Time, read as read_journal},
        space::Choice,
        study::{Archive, Definition, Ending, Study},
    };

    use super::*;

    const SPACE: &str =
        "optimizer=sgd|adam,lr=log:1e-5..1,layers=int:1..6,momentum=float:0..0.99:0.01 when optimizer == 'sgd'";

    /// A study in which trials ended in all ways there are.
    fn study() -> Study {
        let mut definition = Definition::new("s", SPACE.parse().unwrap());
        definition.objectives = vec!["maximize accuracy".parse().unwrap()];
        definition.stopper = "asha:max=9".parse().unwrap();
        let mut study = Study::create(definition, Archive::default(), "test").unwrap();
        study.annotate(Owner::User, "note", Json::parse(r#"{"a": [1, null, "é'"]}"#).unwrap());
        study.enqueue(&[("lr".into(), Choice::Number(0.25))]).unwrap();
        for number in 0..9 {
            study.ask(Time(1_700_000_000_123_456)).unwrap();
            let value = [0.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN][number as usize % 4];
            study.report(number, 3, value).unwrap();
            let ending = match number {
                0..4 => Ending::Finished(vec![0.1 + 0.2]),
                4 => Ending::Stopped,
                5 => Ending::Failed("exit 1".into()),
                6 => Ending::Finished(vec![f64::NAN]),
                7 => Ending::TimedOut,
                _ => continue,
            };
            study.constrain(number, "memory", -0.5).unwrap();
            study.tell(number, ending, Time(1_700_000_001_000_000)).unwrap();
        }
        study.enqueue(&[("lr".into(), Choice::Number(0.5))]).unwrap();
        study
    }

    fn record(study: &Study) -> sirtaki_search::study::StudyRecord {
        study.archive().studies().next().unwrap().clone()
    }

    /// As texts, because what is not a number is not equal to itself.
    fn told(study: &Study) -> Vec<String> {
        let mut record = record(study);
        for trial in &mut record.trials {
            trial.attributes.sort_by(|a, b| (a.0 as u8, &a.1).cmp(&(b.0 as u8, &b.1)));
            // Which trial ended first and how often each was started is not in the schema.
            (trial.turn, trial.attempts) = (None, 0);
        }
        record.attributes.sort_by(|a, b| (a.0 as u8, &a.1).cmp(&(b.0 as u8, &b.1)));
        record.trials.iter().map(|trial| format!("{trial:?}")).chain([format!("{:?}", record.attributes)]).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let place = tempfile::tempdir().unwrap();
        let (study, file) = (study(), place.path().join("study.db"));
        write(&file, &record(&study)).unwrap();
        let lines = read(&file, None).unwrap().1;
        let archive = Archive::new(read_journal(lines.as_bytes()).unwrap().records);
        let again = Study::open(archive, "s", "test").unwrap();
        assert_eq!(told(&again), told(&study));
        assert_eq!(again.definition(), study.definition());
        write(&file, &record(&study)).unwrap();
        let refused = read(&file, Some("t")).unwrap_err();
        assert!(refused.message.contains("unknown study `t`"), "{}", refused.message);
    }

    #[test]
    fn other_files_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("study.db");
        assert!(read(&file, None).unwrap_err().message.contains("cannot be read"));
        std::fs::write(
            &file,
            "not a database, but text of some length that is longer than a header, which is 100 bytes",
        )
        .unwrap();
        assert!(read(&file, None).unwrap_err().message.contains("cannot be read"));
        std::fs::remove_file(&file).unwrap();
        rusqlite::Connection::open(&file).unwrap().execute("create table t (a)", []).unwrap();
        assert!(read(&file, None).unwrap_err().message.contains("no such table"));
    }
}
