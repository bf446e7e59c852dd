//! A row cut to a number of columns.
//!
//! Columns are counted per character. Where a terminal joins several characters into one glyph, the row ends early,
//! which is harmless; a row that is too long would wrap and destroy the lines above it.

use unicode_width::UnicodeWidthChar;

use super::scanner::{Scanner, Token};

/// Distance of tab stops.
const TAB: usize = 8;

/// The beginning of `row` that fits into `columns`, with its colours and attributes, which are reset at the end; and
/// how many columns it takes. Invalid characters are shown as the replacement character.
pub(super) fn cut(row: &[u8], columns: usize) -> (String, usize) {
    let (mut shown, mut used, mut full, mut looks) = (String::new(), 0, false, false);
    let mut text = Vec::new();
    let mut put = |text: &mut Vec<u8>, shown: &mut String| {
        for character in String::from_utf8_lossy(text).chars() {
            let width = match character {
                '\t' => TAB - used % TAB,
                other => other.width().unwrap_or(0),
            };
            full |= used + width > columns;
            if full {
                break;
            }
            used += width;
            match character {
                '\t' => shown.extend(std::iter::repeat_n(' ', width)),
                other => shown.push(other),
            }
        }
        text.clear();
    };
    let mut scanner = Scanner::new();
    let mut token = |token: Token<'_>| match token {
        // Characters may come in several pieces.
        Token::Text(bytes) => text.extend_from_slice(bytes),
        Token::Look(look) => {
            put(&mut text, &mut shown);
            shown.push_str(&String::from_utf8_lossy(look));
            looks = true;
        }
        _ => {}
    };
    scanner.feed(row, &mut token);
    scanner.finish(&mut token);
    put(&mut text, &mut shown);
    if looks {
        shown.push_str("\x1b[0m");
    }
    (shown, used)
}

/// Only the text of a line: no colours, nothing else that a terminal would obey.
pub(super) fn text(line: &[u8], columns: usize) -> String {
    let mut plain = Vec::new();
    let mut scanner = Scanner::new();
    let mut token = |token: Token<'_>| {
        if let Token::Text(bytes) = token {
            plain.extend_from_slice(bytes);
        }
    };
    scanner.feed(line, &mut token);
    scanner.finish(&mut token);
    cut(&plain, columns).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_cut_by_what_is_seen() {
        let cases: [(&str, usize, &str, usize); 7] = [
            ("abc", 5, "abc", 3),
            ("abc", 2, "ab", 2),
            ("漢字漢字", 5, "漢字", 4),
            ("e\u{301}x", 1, "e\u{301}", 1),
            ("a\tb", 20, "a       b", 9),
            ("\x1b[31mabc\x1b[0md", 2, "\x1b[31mab\x1b[0m\x1b[0m", 2),
            ("100%|██████▌  |", 8, "100%|███", 8),
        ];
        for (row, columns, shown, used) in cases {
            assert_eq!(cut(row.as_bytes(), columns), (shown.to_owned(), used), "{row}");
        }
        assert_eq!(cut(b"\xff\xfe", 5), ("\u{fffd}\u{fffd}".to_owned(), 2));
    }

    #[test]
    fn text_is_harmless() {
        assert_eq!(text(b"\x1b[1;31merror\x1b[0m \x1b[2J\xffx\x07", 80), "error \u{fffd}x");
    }
}
