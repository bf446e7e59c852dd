//! What a rank is doing, in words, from its flight record.

use std::time::Duration;

use sirtaki_engine::telemetry::recorder::{FlightEntry, Stage};

/// What the rank was doing at time `now` of the host's monotonic clock; `None` if it has recorded nothing. A rank may
/// have learnt of another's end by then: what it was doing before is more informative.
pub(super) fn describe(records: &[FlightEntry], now: Duration) -> Option<String> {
    let failed = records.iter().rev().take_while(|record| record.stage == Stage::Failed).last();
    let until = failed.map_or(now, |record| Duration::from_nanos(record.time));
    let last = records.iter().rev().find(|record| record.stage != Stage::Failed).or(failed)?;
    let since = until.saturating_sub(Duration::from_nanos(last.time)).as_secs_f64();
    let name = &last.name;
    let operation = match name.is_empty() {
        true => format!("operation #{}", last.sequence),
        false => format!("operation #{} \"{name}\"", last.sequence),
    };
    Some(match last.stage {
        Stage::Submitted => format!("waiting in \"{name}\" for {since:.1} s"),
        Stage::Met => format!("waiting for the others before operation #{} for {since:.1} s", last.sequence),
        Stage::Running => format!("in {operation} for {since:.1} s"),
        Stage::Done => format!("computing for {since:.1} s since {operation}"),
        Stage::Sending => format!("sending \"{name}\" to rank {} for {since:.1} s", last.sequence),
        Stage::Receiving => format!("receiving \"{name}\" for {since:.1} s"),
        Stage::Sent => format!("computing for {since:.1} s since it sent \"{name}\""),
        Stage::Received => format!("computing for {since:.1} s since it received \"{name}\""),
        Stage::Failed => format!("ending; \"{name}\" had failed"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(stage: Stage, sequence: u64, seconds: u64, name: &str) -> FlightEntry {
        FlightEntry { sequence, stage, time: seconds * 1_000_000_000, bytes: 4, name: name.into() }
    }

    #[test]
    fn the_last_record_counts() {
        let now = Duration::from_secs(10);
        assert_eq!(describe(&[], now), None);
        let mut records = vec![record(Stage::Running, 7, 1, "conv1"), record(Stage::Done, 7, 2, "conv1")];
        assert_eq!(describe(&records, now).unwrap(), "computing for 8.0 s since operation #7 \"conv1\"");
        records.push(record(Stage::Submitted, 8, 9, "fc.grad"));
        assert_eq!(describe(&records, now).unwrap(), "waiting in \"fc.grad\" for 1.0 s");
        records.push(record(Stage::Failed, 0, 10, "fc.grad"));
        assert_eq!(describe(&records, now * 2).unwrap(), "waiting in \"fc.grad\" for 1.0 s");
        records.push(record(Stage::Running, 8, 10, "fc.grad"));
        assert_eq!(describe(&records, now).unwrap(), "in operation #8 \"fc.grad\" for 0.0 s");
    }
}
