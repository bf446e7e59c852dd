//! Times as Optuna's journal writes them, such as `2026-11-16T14:26:11.518556+00:00`.

/// Microseconds since 1970 in UTC. This crate reads no clock; times come in as arguments and go out unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Time(pub i64);

const DAY: i64 = 86_400_000_000;

impl Time {
    /// Reads a time; one without an offset is taken to be in UTC.
    pub fn parse(text: &str) -> Option<Self> {
        let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok().filter(|number| *number >= 0);
        let signs = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
        if !text.is_ascii() || signs.iter().any(|(at, sign)| text.as_bytes().get(*at) != Some(sign)) {
            return None;
        }
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let mut rest = &text[19..];
        let mut micros = 0;
        if let Some(fraction) = rest.strip_prefix('.') {
            let digits = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
            micros = format!("{:0<6.6}", &fraction[..digits]).parse().ok()?;
            rest = &fraction[digits..];
        }
        let offset = match rest.as_bytes() {
            [] | [b'Z'] => 0,
            [sign @ (b'+' | b'-'), _, _, b':', _, _, ..] => {
                let minutes = rest[1..3].parse::<i64>().ok()? * 60 + rest[4..6].parse::<i64>().ok()?;
                if *sign == b'-' { -minutes } else { minutes }
            }
            _ => return None,
        };
        let seconds = (hour * 60 + minute - offset) * 60 + second;
        Some(Self(days(year, month, day) * DAY + seconds * 1_000_000 + micros))
    }
}

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (year, month, day) = date(self.0.div_euclid(DAY));
        let micros = self.0.rem_euclid(DAY);
        let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}+00:00")
    }
}

/// Days from 1970 to a date. Years begin in March here, so that the leap day is the last one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month < 3 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month < 3), month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_times() {
        assert_eq!(Time(0).to_string(), "1970-01-01T00:00:00.000000+00:00");
        assert_eq!(Time::parse("2000-02-29T23:59:59.5Z"), Some(Time(951_868_799_500_000)));
        assert_eq!(Time::parse("2000-03-01T01:59:59.500000+02:00"), Some(Time(951_868_799_500_000)));
        assert_eq!(Time::parse("2000-02-29T23:59:59"), Some(Time(951_868_799_000_000)));
        for wrong in
            ["", "2000", "2000-13-01T00:00:00", "2000-02-29 23.59.59", "2000-02-29T23:59:59+1", "é000-02-29T23:59:59"]
        {
            assert_eq!(Time::parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(micros in -62_000_000_000_000_000..250_000_000_000_000_000i64) {
            prop_assert_eq!(Time::parse(&Time(micros).to_string()), Some(Time(micros)));
        }

        #[test]
        fn no_text_panics(text in "[0-9TZ:+. é-]{0,40}") {
            let _ = Time::parse(&text);
        }
    }
}
