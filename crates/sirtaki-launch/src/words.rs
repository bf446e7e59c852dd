//! Ranks, times and numbers as people write them.

use std::time::Duration;

/// `0-2,5` for the ranks 0, 1, 2 and 5, in whatever order they come.
pub fn ranks_in_words(ranks: &[usize]) -> String {
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let runs = sorted.chunk_by(|one, next| one + 1 == *next);
    let words: Vec<String> = runs
        .map(|run| match run {
            [first, .., last] => format!("{first}-{last}"),
            [only] => only.to_string(),
            [] => String::new(),
        })
        .collect();
    words.join(",")
}

/// `350 ms`, `12.3 s`, `3 min 20 s`, `2 h 5 min`.
pub fn duration_in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        _ if time < Duration::from_millis(950) => format!("{} ms", time.as_millis()),
        0..60 => format!("{:.1} s", time.as_secs_f64()),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// The same for seconds that may have any value.
pub fn seconds_in_words(seconds: f64) -> String {
    duration_in_words(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

/// A share as `97.1 %`.
pub fn percent(share: f64, digits: usize) -> String {
    format!("{:.digits$} %", 100.0 * share)
}

/// A whole number with its digits in groups of three.
pub fn grouped(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or("")).collect();
    format!("{}{}", if number <= -0.5 { "-" } else { "" }, groups.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_become_ranges() {
        assert_eq!(ranks_in_words(&[0, 1, 2, 5]), "0-2,5");
        assert_eq!(ranks_in_words(&[7, 3, 4, 3]), "3-4,7");
        assert_eq!(ranks_in_words(&[]), "");
    }

    #[test]
    fn times_have_the_unit_that_fits() {
        let cases = [(12, "12 ms"), (940, "940 ms"), (999, "1.0 s"), (12_340, "12.3 s"), (59_900, "59.9 s")];
        for (milliseconds, words) in cases {
            assert_eq!(duration_in_words(Duration::from_millis(milliseconds)), words);
        }
        assert_eq!(duration_in_words(Duration::from_secs(200)), "3 min 20 s");
        assert_eq!(duration_in_words(Duration::from_secs(7500)), "2 h 5 min");
        assert_eq!([0.04, 9.94, 125.0].map(seconds_in_words), ["40 ms", "9.9 s", "2 min 5 s"]);
        assert!(seconds_in_words(f64::INFINITY).ends_with(" min"));
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!([0.0, 999.4, 1000.0, 1_199_882.0].map(grouped), ["0", "999", "1,000", "1,199,882"]);
        assert_eq!([-0.4, -1234.0].map(grouped), ["0", "-1,234"]);
        assert_eq!(percent(0.9712, 1), "97.1 %");
    }
}
