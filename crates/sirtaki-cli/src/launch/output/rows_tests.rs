use proptest::prelude::*;

use super::*;

fn lines(pieces: &[&[u8]], terminal: bool, limit: usize) -> Vec<String> {
    let mut rows = Rows::new(terminal, limit);
    let mut lines = Vec::new();
    let mut line = |line: OutputLine| {
        let mark = if line.goes_on { "+" } else { "" };
        lines.push(format!("{}{mark}", line.bytes.escape_ascii()));
    };
    pieces.iter().for_each(|piece| rows.feed(piece, &mut line));
    rows.finish(&mut line);
    lines
}

#[test]
fn the_last_state_of_a_row_is_its_line() {
    let cases: [(&[u8], &[&str]); 11] = [
        (b"a\r\n\r\nb\n\nc", &["a", "", "b", "", "c"]),
        (b"\r10%\r20%\r30%\n", &["30%"]),
        (b"10%\r20%\r30%\r\n", &["30%"]),
        (b"10%\r\x1b[2Kdone\n", &["done"]),
        (b"10%\r    \rdone\n", &["done"]),
        (b"10%\r   ", &[]),
        // A bar at the end of a colour keeps it, and is not wiped by it.
        (b"\x1b[32m9%\r\x1b[0m\nx\n", &["\\x1b[32m9%\\x1b[0m", "x"]),
        // Two bars: only the very first state of the upper one is taken for a line.
        (b"\r0%\n\r0%\x1b[A\r5%\n\r6%\x1b[A\r9%\n\r8%\x1b[A\n\n", &["0%", "9%", "8%"]),
        // A program that goes up may do so again, so lines wait; but not for ever.
        (b"\n\rx\x1b[A\ra\nb\nc\nd\n", &["", "a", "b", "c", "d"]),
        (b"\x1b[99999999999A\x1b[70Aa\x1b[5Bb\n", &["a", "b"]),
        (b"bell\x07 \xff\n", &["bell\\x07 \\xff"]),
    ];
    for (bytes, expected) in cases {
        assert_eq!(lines(&[bytes], false, LIMIT), expected, "{}", bytes.escape_ascii());
    }
}

#[test]
fn on_a_terminal_colours_stay_and_movement_goes() {
    let cases: [(&[u8], &[&str]); 3] = [
        (b"a\x1b[2J\x1b[?25lb\x07\x08\n", &["ab"]),
        (b"\x1b[1mx\n\x1b[31my\nz\x1b[m\nu\n", &["\\x1b[1mx", "\\x1b[1m\\x1b[31my", "\\x1b[1m\\x1b[31mz\\x1b[m", "u"]),
        (b"\x1b]0;title\x07\r\x1b[33m5%", &["\\x1b[33m5%"]),
    ];
    for (bytes, expected) in cases {
        assert_eq!(lines(&[bytes], true, LIMIT), expected, "{}", bytes.escape_ascii());
    }
}

#[test]
fn a_line_without_end_comes_in_pieces_of_whole_characters() {
    assert_eq!(lines(&[b"123456789"], false, 4), ["1234+", "5678+", "9"]);
    assert_eq!(lines(&["aé漢字".as_bytes()], false, 5), ["a\\xc3\\xa9+", "\\xe6\\xbc\\xa2+", "\\xe5\\xad\\x97"]);
    assert_eq!(lines(&[&[0x80; 9]], false, 8).len(), 2);
}

#[test]
fn finished_rows_are_not_kept_in_memory() {
    let mut rows = Rows::new(true, 1000);
    let mut given = 0;
    for _ in 0..1000 {
        rows.feed(&[b'x'; 700], &mut |line| given += line.bytes.len());
        rows.feed(b"\x1b[A", &mut |_| {});
        assert!(rows.unfinished().map(<[u8]>::len).sum::<usize>() <= 2000);
    }
    rows.finish(&mut |line| given += line.bytes.len());
    assert_eq!(given, 700_000);
}

/// What lines are, without any of the machinery: of each the last text between returns.
fn reference(bytes: &[u8]) -> Vec<String> {
    let last = |row: &[u8]| row.rsplit(|&byte| byte == b'\r').find(|text| !text.is_empty()).unwrap_or(b"").to_vec();
    let mut rows: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
    rows.pop_if(|open| open.is_empty() || open.contains(&b'\r') && last(open).trim_ascii().is_empty());
    rows.iter().map(|row| last(row).escape_ascii().to_string()).collect()
}

proptest! {
    #[test]
    fn any_split_gives_every_line_once_and_in_order(
        bytes in prop::collection::vec(prop::sample::select(b"ab \t\xff\xc3\xa9\r\n".to_vec()), 0..80),
        size in 1_usize..9,
    ) {
        let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
        prop_assert_eq!(lines(&pieces, false, LIMIT), reference(&bytes));
    }

    #[test]
    fn without_a_terminal_bytes_are_not_changed(
        bytes in prop::collection::vec(any::<u8>().prop_filter("moves", |byte| !b"\r\x1b".contains(byte)), 0..300),
        size in 1_usize..50,
    ) {
        let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
        prop_assert_eq!(lines(&pieces, false, LIMIT), reference(&bytes));
    }

    #[test]
    fn splits_do_not_matter_to_bars_and_long_lines_either(
        bytes in prop::collection::vec(prop::sample::select(b"ab\r\n\x1b[A2Km\xc3".to_vec()), 0..80),
        size in 1_usize..9,
        terminal in any::<bool>(),
    ) {
        let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
        prop_assert_eq!(lines(&pieces, terminal, 12), lines(&[&bytes], terminal, 12));
    }
}
