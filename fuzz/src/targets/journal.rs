//! Any bytes are a journal or none; one that is says the same after it was written again, and its studies can be asked.

use sirtaki_search::{
    journal::{Record, Time, read},
    study::{Archive, Study},
};

pub(crate) fn check(bytes: &[u8]) {
    let Ok(reading) = read(bytes) else { return };
    assert!(reading.length <= bytes.len());
    let lines: String = reading.records.iter().map(Record::line).collect();
    let again = read(lines.as_bytes()).expect("our own lines");
    assert!(again.torn.is_none());
    assert_eq!(again.records.iter().map(Record::line).collect::<String>(), lines);
    let archive = Archive::new(reading.records);
    for record in archive.studies() {
        let Ok(mut study) = Study::open(archive.clone(), &record.name, "fuzz") else { continue };
        if let Ok(Some(asked)) = study.ask(Time(0)) {
            assert!(study.definition().space.contains(&asked.point));
            assert!(study.report(asked.number, 1, f64::NAN).is_ok());
        }
        assert!(read(study.take_lines().as_bytes()).is_ok());
    }
}
