//! What a measurement is reduced to, and how a rank reports it to its parent.

use serde::{Deserialize, Serialize};

/// One size by one algorithm; also a line of `--json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Measurement {
    /// The algorithm's name, or `auto`.
    pub algorithm: String,
    /// How many processes.
    pub ranks: usize,
    /// Bytes on every rank.
    pub bytes: usize,
    /// Median time of the slowest rank.
    pub median_us: f64,
    /// Time that 99 of 100 calls stay below.
    pub p99_us: f64,
    /// The least that every rank must send and receive, divided by the median time.
    pub bus_gb_s: f64,
}

impl Measurement {
    /// The row for `seconds`, the slowest rank's time of every call.
    pub(super) fn new(algorithm: &str, ranks: usize, bytes: usize, seconds: &mut [f64]) -> Self {
        seconds.sort_unstable_by(f64::total_cmp);
        let median = quantile(seconds, 0.5);
        let traffic = bytes as f64 * 2.0 * (ranks as f64 - 1.0) / ranks as f64;
        Self {
            algorithm: algorithm.into(),
            ranks,
            bytes,
            median_us: round(median * 1e6),
            p99_us: round(quantile(seconds, 0.99) * 1e6),
            bus_gb_s: if median > 0.0 { round(traffic / median / 1e9) } else { 0.0 },
        }
    }
}

/// Nearest rank: the smallest sample that at least the given share of samples does not exceed.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(at.max(1) - 1).copied().unwrap_or(0.0)
}

/// Four significant digits; more would suggest a precision that is not there.
fn round(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let unit = 10f64.powi(value.abs().log10().floor() as i32 - 3);
    // Dividing by an exact power of ten keeps `0.1` from becoming `0.1000000001`.
    if unit < 1.0 { (value / unit).round() / (1.0 / unit).round() } else { (value / unit).round() * unit }
}

/// One line from a rank to its parent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum WorkerMessage {
    /// The ranks have found each other (rank 0 only).
    Connected {
        /// The back end's name.
        back_end: String,
    },
    /// This algorithm is left out (rank 0 only).
    Skipped {
        /// Its name.
        algorithm: String,
    },
    /// A measurement (rank 0 only).
    Measured(Measurement),
    /// This rank gives up.
    Failed {
        /// What went wrong.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_tails_are_samples_themselves() {
        let mut seconds: Vec<f64> = (1..=200).rev().map(|us| f64::from(us) * 1e-6).collect();
        let row = Measurement::new("ring", 4, 1_000_000, &mut seconds);
        assert_eq!((row.median_us, row.p99_us), (100.0, 198.0));
        assert_eq!(row.bus_gb_s, 15.0);
        assert_eq!(Measurement::new("ring", 1, 8, &mut [1e-6]).bus_gb_s, 0.0);
        assert_eq!(Measurement::new("ring", 2, 8, &mut []).median_us, 0.0);
    }

    #[test]
    fn figures_have_four_digits() {
        assert_eq!([0.123_456, 1.0, 98_765.4].map(round), [0.1235, 1.0, 98_770.0]);
    }

    #[test]
    fn a_row_is_one_flat_object() {
        let line = serde_json::to_string(&Measurement::new("auto", 2, 4, &mut [1e-6])).unwrap();
        let expected = r#"{"algorithm":"auto","ranks":2,"bytes":4,"median_us":1.0,"p99_us":1.0,"bus_gb_s":0.004}"#;
        assert_eq!(line, expected);
        let report = WorkerMessage::Failed { message: "no".into(), hint: None };
        assert_eq!(serde_json::from_str::<WorkerMessage>(&serde_json::to_string(&report).unwrap()).unwrap(), report);
    }
}
