//! Numbers with units, as people type them: times, rates and shares.

use std::str::FromStr;

/// A number with a unit, of which the first that fits counts.
fn quantity(text: &str, units: &[(&str, f64)], example: &str) -> Result<f64, String> {
    let bad = || format!("`{text}` is not understood; write {example}");
    let digits = text.trim().trim_end_matches(|letter: char| letter.is_alphabetic() || letter == '/');
    let unit = text.trim()[digits.len()..].trim_end_matches("/s");
    // A small `b` at the end is a bit, a large one a byte; nothing else depends on the case.
    let unit = match unit.strip_suffix('B') {
        Some(prefix) => format!("{}B", prefix.to_ascii_lowercase()),
        None => unit.to_ascii_lowercase(),
    };
    let factor = units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| factor).ok_or_else(bad)?;
    let number: f64 = digits.trim().parse().map_err(|_| bad())?;
    let value = number * factor;
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err(bad()) }
}

/// Bytes per second.
pub(super) fn bandwidth(text: &str) -> Result<f64, String> {
    let bit = 1.0 / 8.0;
    let units = [
        ("kbit", 1e3 * bit),
        ("mbit", 1e6 * bit),
        ("gbit", 1e9 * bit),
        ("tbit", 1e12 * bit),
        ("kb", 1e3 * bit),
        ("mb", 1e6 * bit),
        ("gb", 1e9 * bit),
        ("tb", 1e12 * bit),
        ("kB", 1e3),
        ("mB", 1e6),
        ("gB", 1e9),
        ("tB", 1e12),
    ];
    let example = "bits or bytes per second with a unit, such as 25Gbit, 200Mbit or 3GB";
    match quantity(text, &units, example)? {
        none if none < 1.0 => Err("too slow for any message; write at least 1Kbit".into()),
        value => Ok(value),
    }
}

/// Seconds of something short.
pub(super) fn latency(text: &str) -> Result<f64, String> {
    let units = [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    time(text, &units, "a time with a unit, such as 25us or 0.5ms")
}

/// Seconds of something long.
pub(super) fn duration(text: &str) -> Result<f64, String> {
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("min", 60.0), ("h", 3600.0), ("d", 86_400.0)];
    time(text, &units, "a time with a unit, such as 0.5s, 20s, 10m, 8h or 30d")
}

/// Seconds of something long that is not nothing.
pub(super) fn positive_duration(text: &str) -> Result<f64, String> {
    match duration(text)? {
        seconds if seconds > 0.0 => Ok(seconds),
        _ => Err(format!("`{text}` is no time at all; write one such as 10m or 1000h")),
    }
}

fn time(text: &str, units: &[(&str, f64)], example: &str) -> Result<f64, String> {
    // `/s` at the end would be no time.
    match text.contains('/') {
        true => Err(format!("`{text}` is not understood; write {example}")),
        false => quantity(text, units, example),
    }
}

/// A share of less than one, such as `5%` or `0.05`.
pub(super) fn percentage(text: &str) -> Result<f64, String> {
    let (digits, factor) = text.trim().strip_suffix('%').map_or((text.trim(), 1.0), |digits| (digits, 0.01));
    let share = digits.trim().parse::<f64>().map(|number| number * factor).ok();
    let bad = || format!("`{text}` is not a share from 0% to less than 100%, such as 5%");
    share.filter(|share| (0.0..1.0).contains(share)).ok_or_else(bad)
}

/// How often something happens: after a number of steps, or after a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Interval {
    /// So many.
    Steps(u64),
    /// In seconds.
    Seconds(f64),
}

impl FromStr for Interval {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim().parse::<u64>() {
            Ok(0) => Err("must be at least one step".into()),
            Ok(steps) => Ok(Self::Steps(steps)),
            Err(_) => positive_duration(text).map(Self::Seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_typed_as_people_say_them() {
        assert_eq!(
            (bandwidth("25Gbit"), bandwidth("1 GB/s"), bandwidth("200mbit/s")),
            (Ok(3.125e9), Ok(1e9), Ok(25e6))
        );
        assert_eq!(
            (bandwidth("10Gb"), bandwidth("10Gb/s"), bandwidth("10GB"), bandwidth("8kb")),
            (Ok(1.25e9), Ok(1.25e9), Ok(1e10), Ok(1e3))
        );
        assert_eq!((latency("0.5ms"), latency("2 s"), latency("0us")), (Ok(0.5e-3), Ok(2.0), Ok(0.0)));
        assert!((latency("25us").unwrap() - 25e-6).abs() < 1e-15);
        for wrong in ["25", "fast", "-1Gbit", "0Gbit", "Gbit", "1Gbit/h"] {
            assert!(bandwidth(wrong).is_err(), "{wrong}");
        }
        for wrong in ["25", "-1us", "1us/s", "nanus"] {
            assert!(latency(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn long_times_and_shares_have_units() {
        assert_eq!((duration("1000h"), duration("10m"), duration("0.5s")), (Ok(3.6e6), Ok(600.0), Ok(0.5)));
        assert_eq!((duration("30d"), duration("0s")), (Ok(2_592_000.0), Ok(0.0)));
        assert!(positive_duration("0s").is_err() && duration("10").is_err() && duration("-1h").is_err());
        assert_eq!((percentage("5%"), percentage("0.05"), percentage("0")), (Ok(0.05), Ok(0.05), Ok(0.0)));
        for wrong in ["", "%", "100%", "5", "-1%", "nan"] {
            assert!(percentage(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn intervals_are_steps_or_times() {
        assert_eq!(("500".parse(), "10m".parse()), (Ok(Interval::Steps(500)), Ok(Interval::Seconds(600.0))));
        assert!("0".parse::<Interval>().is_err() && "0s".parse::<Interval>().is_err());
        assert!("often".parse::<Interval>().is_err());
    }
}
