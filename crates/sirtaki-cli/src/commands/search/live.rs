//! How far a study is, in one line of at most 80 columns. Pure.

use std::time::Duration;

use sirtaki_launch::words::duration_in_words;

use crate::study::summary::short;

/// What the line is made of.
#[derive(Debug, Clone, Default)]
pub(super) struct Standing {
    /// Trials that ended.
    pub(super) ended: usize,
    /// How many there should be, where that is known.
    pub(super) trials: Option<u64>,
    /// Slots in use, and all.
    pub(super) busy: (usize, usize),
    /// Value and number of the best trial.
    pub(super) best: Option<(f64, u64)>,
    /// Trials that failed in one way or another.
    pub(super) failed: usize,
    /// Expected time to the end.
    pub(super) left: Option<Duration>,
}

/// The line.
pub(super) fn line(standing: &Standing, width: usize) -> String {
    let Standing { ended, trials, busy: (busy, slots), best, failed, left } = standing;
    let mut parts = vec![match trials {
        Some(trials) => format!("{ended} of {trials} trials"),
        None => format!("{ended} trials"),
    }];
    parts.push(format!("{busy} of {slots} slots busy"));
    parts.extend(best.map(|(value, number)| format!("best {} (trial {number})", short(value))));
    parts.extend((*failed > 0).then(|| format!("{failed} failed")));
    parts.extend(left.map(|left| format!("{} left", rounded(left))));
    // What matters least goes first where there is no room.
    while parts.len() > 1 && parts.join(" · ").chars().count() >= width {
        parts.remove(1);
    }
    parts.join(" · ").chars().take(width.saturating_sub(1)).collect()
}

/// An estimate is not known to the second.
fn rounded(time: Duration) -> String {
    match time.as_secs() {
        0..60 => duration_in_words(Duration::from_secs(time.as_secs().max(1))).replace(".0 s", " s"),
        60..3600 => format!("{} min", time.as_secs().div_ceil(60)),
        _ => duration_in_words(time),
    }
}

/// How long the rest takes: trials that are left, in rounds of all slots, each as long as the mean of those before. What
/// runs now counts as half done.
pub(super) fn time_left(left: u64, busy: usize, slots: usize, mean: f64) -> Option<Duration> {
    let rounds = (left as f64 + busy as f64 / 2.0) / slots.max(1) as f64;
    Duration::try_from_secs_f64(rounds * mean).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_matters_and_fits() {
        let left = time_left(188, 4, 4, 30.0);
        let standing =
            Standing { ended: 12, trials: Some(200), busy: (4, 4), best: Some((0.03125, 7)), failed: 1, left };
        let whole = "12 of 200 trials · 4 of 4 slots busy · best 0.03125 (trial 7) · 1 failed · 24 min left";
        assert_eq!(line(&standing, 100), whole);
        assert_eq!(line(&standing, 80), "12 of 200 trials · best 0.03125 (trial 7) · 1 failed · 24 min left");
        for width in 1..100 {
            assert!(line(&standing, width).chars().count() < width.max(1), "{width}");
        }
        assert_eq!(line(&Standing::default(), 80), "0 trials · 0 of 0 slots busy");
    }

    #[test]
    fn estimates_are_round() {
        assert_eq!(rounded(Duration::from_millis(300)), "1 s");
        assert_eq!(rounded(Duration::from_secs(61)), "2 min");
        assert_eq!(rounded(Duration::from_secs(7300)), "2 h 1 min");
        assert_eq!(time_left(u64::MAX, 0, 0, f64::MAX), None);
    }
}
