//! Goodput for people.

use super::{
    faults::{Faults, Recovery},
    scale::Prediction,
};

/// What failures leave of each row, within 80 columns; the strategy is named where there are several.
pub(super) fn table(rows: &[Prediction], named: bool) -> Vec<String> {
    let label = |row: &Prediction| row.strategy.label();
    let width = rows.iter().map(|row| label(row).len()).max().unwrap_or(0);
    let name = |text: &str| if named { format!("  {text:<width$}") } else { String::new() };
    let checkpoints = rows.iter().any(|row| row.failures.is_some_and(|found| found.checkpoint_seconds.is_some()));
    let interval = |text: &str, best: &str| match checkpoints {
        true if named => format!("  {text:>10}"),
        true => format!("  {text:>10}  {best:>10}"),
        false => String::new(),
    };
    let head = format!(
        "{:>7}{}  {:>11}{}  {:>8}  {:>8}",
        "workers",
        name("strategy"),
        "fails every",
        interval("checkpoint", "best"),
        "goodput",
        "overall"
    );
    let line = |row: &Prediction| {
        let found = row.failures?;
        let [every, best] =
            [found.checkpoint_seconds, found.best_checkpoint_seconds].map(|time| long(time.unwrap_or(0.0)));
        Some(format!(
            "{:>7}{}  {:>11}{}  {:>6.2} %  {:>6.1} %",
            row.workers,
            name(&label(row)),
            long(found.failure_seconds),
            interval(&every, &best),
            100.0 * found.goodput,
            100.0 * found.goodput * row.efficiency
        ))
    };
    std::iter::once(head).chain(rows.iter().filter_map(line)).collect()
}

/// A time for people: `12.5 h`, `6.1 min`.
pub(super) fn long(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 1.0 => (s * 1e3, "ms"),
        s if s < 120.0 => (s, "s"),
        s if s < 7200.0 => (s / 60.0, "min"),
        s if s < 4.0 * 86_400.0 => (s / 3600.0, "h"),
        s => (s / 86_400.0, "days"),
    };
    let digits = usize::from(value < 100.0);
    format!("{value:.digits$} {unit}")
}

/// What was assumed of failures.
pub(super) fn assumptions(faults: &Faults) -> Vec<String> {
    let (mtbf, restart) = (long(faults.mtbf), long(faults.restart));
    let mut list = vec![format!(
        "Each host fails every {mtbf} on average, by itself and at any time. Goodput is useful time divided by all time; \
         overall is goodput times efficiency."
    )];
    list.push(match faults.recovery {
        Recovery::Checkpoints { seconds, .. } => format!(
            "A checkpoint stops all workers for {}; after a failure they go on from the last one, {restart} later. \
             Best is the interval by Daly's formula.",
            long(seconds)
        ),
        Recovery::Elastic { seconds } => format!(
            "After a failure the others repeat the step {} later, and the lost workers are replaced after {restart}.",
            long(seconds)
        ),
    });
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_for_people() {
        let shown = [0.5, 20.0, 366.0, 10_800.0, 3.6e6].map(long);
        assert_eq!(shown, ["500 ms", "20.0 s", "6.1 min", "3.0 h", "41.7 days"]);
    }
}
