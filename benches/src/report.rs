//! The tables as people read them, and as Markdown for the README.

use std::fmt::Write;

use crate::comm::{Column, Row, Table};

/// Bytes in the largest unit that divides them.
pub fn size(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 && b.is_multiple_of(1 << 10) => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

/// Microseconds with three digits and a fitting unit.
pub fn time(micros: f64) -> String {
    let (value, unit) = if micros >= 1000.0 { (micros / 1000.0, "ms") } else { (micros, "µs") };
    let digits = if value >= 100.0 { 0 } else { usize::from(value < 10.0) + 1 };
    format!("{value:.digits$} {unit}")
}

/// What one all-reduce moves per second and rank, by the usual measure.
pub fn bus_bandwidth(bytes: usize, ranks: usize, micros: f64) -> f64 {
    bytes as f64 / micros / 1e3 * 2.0 * (ranks as f64 - 1.0) / ranks as f64
}

fn ratio(column: &Column) -> String {
    let mark = if column.goal.is_none() {
        ""
    } else if column.reached() {
        " ✓"
    } else {
        " ✗"
    };
    format!("{:.2}×{mark}", column.ratio)
}

/// One line per size: our time and bandwidth, then every other library's time and ratio.
pub fn line(row: &Row, ranks: usize) -> String {
    let ours = &row.columns[0];
    let bandwidth = bus_bandwidth(row.bytes, ranks, ours.micros);
    let mut text = format!("{:>8}  {:>9} {bandwidth:>7.2} GB/s", size(row.bytes), time(ours.micros));
    for column in &row.columns[1..] {
        let _ = write!(text, "  | {:>8} {:>9} {:>9}", column.name, time(column.micros), ratio(column));
    }
    text
}

/// The table as Markdown.
pub fn markdown(table: &Table, ranks: usize) -> String {
    let Some(first) = table.rows.first() else { return String::new() };
    let mut text = format!("| {} | {} | bus GB/s |", table.setting, first.columns[0].name);
    for column in &first.columns[1..] {
        let _ = write!(text, " {} | ratio |", label(&column.name));
    }
    let _ = write!(text, "\n|{}", "---|".repeat(1 + 2 * first.columns.len()));
    for row in &table.rows {
        let ours = &row.columns[0];
        let bandwidth = bus_bandwidth(row.bytes, ranks, ours.micros);
        let _ = write!(text, "\n| {} | {} | {bandwidth:.2} |", size(row.bytes), time(ours.micros));
        for column in &row.columns[1..] {
            let _ = write!(text, " {} | {} |", time(column.micros), ratio(column));
        }
    }
    text.push('\n');
    text
}

fn label(name: &str) -> &str {
    match name {
        "openmpi" => "Open MPI",
        "gloo" => "Gloo",
        "works" => "Gloo, tensor by tensor",
        "buckets" => "Gloo, 25 MB buckets",
        "sirtaki" => "one all-reduce of the same bytes",
        "shared" => "sirtaki on its own memory (ratio: limit ÷ it)",
        "add" => "limit: add in place",
        "copy" => "limit: copy",
        other => other,
    }
}

/// The goals that were missed, in words.
pub fn missed(tables: &[Table]) -> Vec<String> {
    let mut texts = Vec::new();
    for table in tables {
        for row in &table.rows {
            for column in row.columns.iter().filter(|column| !column.reached()) {
                let goal = column.goal.map_or(0.0, |goal| goal.0);
                let (size, name) = (size(row.bytes), label(&column.name));
                texts.push(format!("{}, {size}, {name}: {:.2} instead of {goal:.2}", table.setting, column.ratio));
            }
        }
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(
            [time(0.123), time(12.34), time(1234.5), time(123_456.0)],
            ["0.12 µs", "12.3 µs", "1.23 ms", "123 ms"]
        );
        assert_eq!([size(4), size(1 << 10), size(3 << 20)], ["4 B", "1 KiB", "3 MiB"]);
    }

    #[test]
    fn two_ranks_move_their_bytes_once() {
        assert!((bus_bandwidth(1_000_000, 2, 1000.0) - 1.0).abs() < 1e-9);
    }
}
