//! Who came late and what was done last, for people and programs.

use std::{collections::BTreeMap, fmt, time::Duration};

use sirtaki_comm::{Group, Rank};

use crate::{
    decide::late::LateArrivals,
    runtime::shared::Shared,
    telemetry::recorder::{FlightEntry, Stage},
};

/// What an engine knows about the course of things.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// All ranks.
    pub group: Group,
    /// LateArrivals by rank where tensors were agreed on, since the start; empty but on rank 0.
    pub agreed: LateArrivals,
    /// LateArrivals by rank in the adopted order, of the ranks on this host, as far back as their records go.
    pub followed: LateArrivals,
    /// What this rank did last, oldest first.
    pub records: Vec<FlightEntry>,
}

pub(crate) fn make(shared: &Shared) -> Report {
    let agreed = shared.table().map(|table| table.lateness.clone()).unwrap_or_default();
    let all: Vec<Option<Vec<FlightEntry>>> =
        shared.records.iter().map(|record| Some(record.as_ref()?.read())).collect();
    let followed = meetings(&all);
    let (group, records) = (shared.group.clone(), shared.recorder.read());
    Report { group, agreed, followed, records }
}

/// LateArrivals from flight records: who came when to each meeting that all of them still have.
fn meetings(all: &[Option<Vec<FlightEntry>>]) -> LateArrivals {
    let mut came: BTreeMap<u64, Vec<Option<u64>>> = BTreeMap::new();
    let mut names: BTreeMap<u64, &str> = BTreeMap::new();
    for (rank, records) in all.iter().enumerate() {
        for record in records.iter().flatten() {
            match record.stage {
                Stage::Met => {
                    came.entry(record.sequence).or_insert_with(|| vec![None; all.len()])[rank] = Some(record.time)
                }
                Stage::Running => drop(names.insert(record.sequence, &record.name)),
                _ => {}
            }
        }
    }
    let mut lateness = LateArrivals::new(all.len());
    let present = |rank: Rank| all[rank].is_some();
    for (sequence, times) in came {
        if (0..all.len()).all(|rank| times[rank].is_some() == present(rank)) {
            let since: Vec<Duration> = times.iter().map(|time| Duration::from_nanos(time.unwrap_or(0))).collect();
            lateness.note(names.get(&sequence).copied().unwrap_or_default(), &times, &since);
        }
    }
    lateness
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, lateness) in [("agreed on", &self.agreed), ("followed", &self.followed)] {
            if lateness.meetings == 0 {
                continue;
            }
            writeln!(f, "{} meetings {what}:", lateness.meetings)?;
            for (rank, late) in lateness.ranks.iter().enumerate() {
                let mean = late.total / u32::try_from(lateness.meetings).unwrap_or(u32::MAX);
                write!(f, "  {} last {} times, {mean:.1?} late on average", self.group.describe(rank), late.last)?;
                match late.worst.is_zero() {
                    true => writeln!(f)?,
                    false => writeln!(f, ", at most {:.1?} at \"{}\"", late.worst, late.tensor)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(stage: Stage, sequence: u64, time: u64) -> FlightEntry {
        FlightEntry { sequence, stage, time, bytes: 0, name: "t".into() }
    }

    #[test]
    fn the_last_to_meet_is_late() {
        let one = vec![record(Stage::Met, 1, 10), record(Stage::Running, 1, 11), record(Stage::Met, 2, 30)];
        let other = vec![record(Stage::Met, 1, 25), record(Stage::Met, 2, 30), record(Stage::Met, 3, 70)];
        let lateness = meetings(&[Some(one), None, Some(other)]);
        assert_eq!(lateness.meetings, 2);
        assert_eq!((lateness.ranks[2].last, lateness.ranks[2].total), (1, Duration::from_nanos(15)));
        assert_eq!(lateness.ranks[2].tensor, "t");
        let (group, agreed) = (Group::local(0, 3), LateArrivals::default());
        let report = Report { group, agreed, followed: lateness, records: Vec::new() };
        let text = report.to_string();
        assert!(text.contains("2 meetings followed") && text.contains("at most 15.0ns at \"t\""), "{text}");
    }
}
