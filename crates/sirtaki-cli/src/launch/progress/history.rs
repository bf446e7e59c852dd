//! The course of a job, for plots: a bounded number of rows, thinned out as time goes by.

use serde::Serialize;

use super::going::Moment;

/// Most rows.
const ROWS: usize = 600;

/// A job at some moment, as far as plots show it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct HistoryRow {
    /// Seconds since the ranks were started.
    pub(super) seconds: f64,
    /// Steps that were done.
    step: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    loss: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accuracy: Option<f64>,
    /// Only where there was a new test.
    #[serde(skip_serializing_if = "Option::is_none")]
    test_loss: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    test_accuracy: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    samples_per_second: Option<f64>,
    /// The share of the time in which others waited for the rank that was latest.
    #[serde(skip_serializing_if = "Option::is_none")]
    late: Option<f64>,
    /// Of the largest rank.
    memory: u64,
}

impl HistoryRow {
    fn is_test(&self) -> bool {
        self.test_loss.is_some() || self.test_accuracy.is_some()
    }
}

/// All rows.
#[derive(Debug, Default)]
pub(super) struct History {
    rows: Vec<HistoryRow>,
    /// Seconds between rows at least.
    apart: f64,
    /// The last test that was seen.
    tested: (Option<f64>, Option<f64>),
}

impl History {
    /// Adds a moment, unless it comes too soon; one with a new test result is always added.
    pub(super) fn add(&mut self, moment: &Moment) {
        let said = &moment.said;
        let tested = (said.test_loss, said.test_accuracy);
        let news = tested != self.tested;
        let due = self.rows.last().is_none_or(|last| moment.seconds >= last.seconds + self.apart);
        if !due && !news {
            return;
        }
        self.tested = tested;
        self.rows.push(HistoryRow {
            seconds: moment.seconds,
            step: said.step,
            loss: said.loss,
            accuracy: said.accuracy,
            test_loss: said.test_loss.filter(|_| news),
            test_accuracy: said.test_accuracy.filter(|_| news),
            steps_per_second: moment.steps_per_second,
            samples_per_second: moment.samples_per_second,
            late: moment.latest().map(|(_, share)| share),
            memory: moment.ranks.iter().map(|rank| rank.memory).max().unwrap_or(0),
        });
        if self.rows.len() > ROWS {
            self.thin();
        }
    }

    /// All rows, oldest first.
    pub(super) fn rows(&self) -> &[HistoryRow] {
        &self.rows
    }

    /// Leaves out every second row; those with tests only if that is not enough.
    fn thin(&mut self) {
        let mut number = 0;
        let mut every_second = |row: &HistoryRow, tests: bool| {
            number += 1;
            number % 2 == 1 || row.is_test() && !tests
        };
        self.rows.retain(|row| every_second(row, false));
        if self.rows.len() > ROWS * 3 / 4 {
            self.rows.retain(|row| every_second(row, true));
        }
        let span = self.rows.last().map_or(0.0, |last| last.seconds) - self.rows.first().map_or(0.0, |row| row.seconds);
        self.apart = span / (ROWS / 2) as f64;
    }
}

#[cfg(test)]
mod tests {
    use sirtaki_engine::telemetry::Progress;

    use super::*;

    fn moment(second: u64, test: Option<f64>) -> Moment {
        let said = Progress { step: second, loss: Some(1.0), test_accuracy: test, ..Progress::default() };
        Moment { seconds: second as f64, said, ..Moment::default() }
    }

    #[test]
    fn it_never_grows_beyond_its_bound_and_keeps_beginning_end_and_tests() {
        let mut history = History::default();
        for second in 0..100_000 {
            history.add(&moment(second, Some((second / 1000) as f64)));
            assert!(history.rows().len() <= ROWS);
        }
        let rows = history.rows();
        let last = rows.last().unwrap().seconds;
        assert!(rows[0].seconds == 0.0 && last > 99_000.0, "{last}");
        assert_eq!(rows.iter().filter(|row| row.is_test()).count(), 100, "a row for each test");
        let gap = rows.windows(2).map(|pair| pair[1].seconds - pair[0].seconds).fold(0.0, f64::max);
        assert!(gap < 2000.0, "{gap}");
    }

    #[test]
    fn tests_alone_do_not_fill_it() {
        let mut history = History::default();
        (0..5000).for_each(|second| history.add(&moment(second, Some(second as f64))));
        assert!(history.rows().len() <= ROWS);
    }
}
