//! What a step consists of, as a bar for each number of workers: the computing part is the useful one.

use super::scale::Prediction;

/// Cells of a whole step.
const WIDTH: usize = 60;
/// Computing, waiting for the slowest, communication; distinguishable without colour.
const CELLS: [char; 3] = ['█', '▒', '·'];

/// The bars with their legend, line by line; none if there is nothing to compare.
pub(super) fn bars(rows: &[Prediction]) -> Vec<String> {
    if rows.len() < 2 {
        return Vec::new();
    }
    let [computing, waiting, moving] = CELLS;
    let legend = format!(
        "{:>7}  {computing} computing  {waiting} waiting for the slowest  {moving} communication that nothing hides",
        ""
    );
    let title = format!("{:>7}  of each step", "workers");
    let bar = |row: &Prediction| format!("{:>7}  {}", row.workers, cells(row));
    std::iter::once(title).chain(rows.iter().map(bar)).chain([legend]).collect()
}

/// The bar of one row. Ends are rounded, not lengths, so that all bars are equally long.
fn cells(row: &Prediction) -> String {
    let part = |seconds: f64| (seconds.max(0.0) / row.step_seconds).min(1.0);
    let moving = part(row.communication_seconds);
    let waiting = (moving + part(row.straggler_seconds)).min(1.0);
    let end = |share: f64| (share * WIDTH as f64).round() as usize;
    let (computes, waits) = (end(1.0 - waiting), end(1.0 - moving));
    let cell = |at: usize| CELLS[usize::from(at >= computes) + usize::from(at >= waits)];
    (0..WIDTH).map(cell).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::strategy::Strategy, *};

    fn row(workers: usize, step_seconds: f64, straggler_seconds: f64, communication_seconds: f64) -> Prediction {
        Prediction {
            workers,
            hosts: 1,
            strategy: Strategy::Data,
            step_seconds,
            efficiency: 1.0,
            speedup: 1.0,
            samples_per_second: None,
            straggler_seconds,
            communication_seconds,
            sent_bytes: 0.0,
            memory_bytes: 0,
            failures: None,
            collectives: Vec::new(),
        }
    }

    #[test]
    fn bars_are_equally_long_and_have_all_parts() {
        let lines = bars(&[row(1, 0.5, 0.0, 0.0), row(512, 1.0, 0.25, 0.5), row(1024, 1.0, 0.0, 2.0)]);
        assert_eq!(lines[1], format!("      1  {}", "█".repeat(WIDTH)));
        let parts = ["█".repeat(WIDTH / 4), "▒".repeat(WIDTH / 4), "·".repeat(WIDTH / 2)];
        assert_eq!(lines[2], format!("    512  {}", parts.concat()));
        assert_eq!(lines[3], format!("   1024  {}", "·".repeat(WIDTH)));
        assert!(lines[4].contains("communication"), "{lines:?}");
        assert!(bars(&[row(1, 0.5, 0.0, 0.0)]).is_empty());
    }

    #[test]
    fn no_time_at_all_is_drawn_too() {
        assert_eq!(cells(&row(2, 0.0, 0.0, 0.0)).chars().count(), WIDTH);
    }
}
