//! Numbers as people write them, and text from elsewhere made harmless.

pub(crate) use sirtaki_launch::words::grouped;
use sirtaki_launch::words::{percent as share_in_words, seconds_in_words};

/// Text for HTML and SVG, also inside quotes. Characters that control a terminal or change the direction of writing
/// become the replacement character.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' => escaped.push(' '),
            letter if unprintable(letter) => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// Text in which every character can be seen: those with an effect become the replacement character.
pub(crate) fn visible(text: &str) -> String {
    text.chars().map(|letter| if unprintable(letter) { '\u{fffd}' } else { letter }).collect()
}

/// Whether a character has an effect instead of being visible.
pub(crate) fn unprintable(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// At most `most` characters.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.into();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// Three digits, or whole thousands.
pub(crate) fn figure(number: f64) -> String {
    match number.abs() {
        size if size >= 100.0 || size == 0.0 => grouped(number),
        size if size >= 10.0 => format!("{number:.1}"),
        size if size >= 1.0 => format!("{number:.2}"),
        size if size >= 0.001 => format!("{number:.3}"),
        _ => format!("{number:.1e}"),
    }
}

/// A share as a percentage with two decimal places.
pub(crate) fn percent(share: f64) -> String {
    share_in_words(share, 2)
}

/// A share as a percentage with up to two decimal places.
pub(crate) fn tidy_percent(share: f64) -> String {
    let text = format!("{:.2}", 100.0 * share);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A share as a percentage without decimal places.
pub(crate) fn rounded_percent(share: f64) -> String {
    share_in_words(share, 0)
}

/// Seconds in a readable unit; less than a few milliseconds in microseconds.
pub(crate) fn duration(seconds: f64) -> String {
    if seconds > 0.0 && seconds < 0.01 {
        let (value, unit) = if seconds < 0.001 { (seconds * 1e6, "µs") } else { (seconds * 1e3, "ms") };
        let digits = usize::from(value < 10.0 && (value - value.round()).abs() > 0.05);
        return format!("{value:.digits$} {unit}");
    }
    seconds_in_words(seconds.max(0.0))
}

/// A size for people.
pub(crate) fn bytes(bytes: f64) -> String {
    crate::commands::bench::sizes::show(bytes.max(0.0) as u64)
}

/// `1 worker`, `2 workers`.
pub(crate) fn count(number: usize, what: &str) -> String {
    format!("{} {what}{}", grouped(number as f64), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_a_name_is_it_stays_text(text in any::<String>()) {
            let escaped = escape(&text);
            prop_assert!(!escaped.contains(['<', '>', '"', '\'']), "{escaped}");
            prop_assert!(!escaped.chars().any(unprintable));
            let known = |rest: &str| ["amp;", "lt;", "gt;", "quot;", "#39;"].iter().any(|known| rest.starts_with(known));
            let all_known = escaped.split('&').skip(1).all(known);
            prop_assert!(all_known, "{escaped}");
        }
    }

    #[test]
    fn names_are_escaped_and_not_more() {
        assert_eq!(
            escape("a<b> & \"c\" 'd'\u{202e}\u{7}"),
            "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;\u{fffd}\u{fffd}"
        );
        assert_eq!(escape("größe 3 µs"), "größe 3 µs");
        assert_eq!((shorten("abcdef", 6), shorten("abcdefg", 6)), ("abcdef".into(), "abcde…".into()));
    }

    #[test]
    fn numbers_have_the_digits_that_matter() {
        assert_eq!(
            [0.0, 12_345.6, 99.94, 2.345_67, 0.0123, -4.0].map(figure),
            ["0", "12,346", "99.9", "2.35", "0.012", "-4.00"]
        );
        assert_eq!(figure(0.00012), "1.2e-4");
        assert_eq!([0.000_02, 0.001, 0.0019, 0.5].map(duration), ["20 µs", "1 ms", "1.9 ms", "500 ms"]);
        assert_eq!([12.34, 200.0].map(duration), ["12.3 s", "3 min 20 s"]);
        assert_eq!((count(1, "run"), count(1200, "run")), ("1 run".into(), "1,200 runs".into()));
        assert_eq!((percent(0.98765), rounded_percent(0.7)), ("98.77 %".into(), "70 %".into()));
        assert_eq!([0.985, 0.9, 1.0, 0.9125].map(tidy_percent), ["98.5 %", "90 %", "100 %", "91.25 %"]);
    }
}
