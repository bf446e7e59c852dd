//! The tables as people read them, and as Markdown for the README.

use std::fmt::{self, Write};

use crate::{
    comm::{Column, Row, Table},
    engine::{Cost, Scale},
    launch::Start,
};

/// One goal, and whether it was reached.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Whether it was reached.
    pub reached: bool,
    /// What was measured and what the goal was.
    pub text: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.reached { '✓' } else { '✗' }, self.text)
    }
}

/// Bytes in the largest unit that divides them.
pub fn size(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 && b.is_multiple_of(1 << 10) => format!("{} KiB", b >> 10),
        b if b >= 1 << 20 => format!("{:.1} MiB", b as f64 / f64::from(1 << 20)),
        b => format!("{b} B"),
    }
}

/// Microseconds with three digits and a fitting unit.
pub fn time(micros: f64) -> String {
    let (value, unit) = if micros >= 1000.0 { (micros / 1000.0, "ms") } else { (micros, "µs") };
    let digits = if value >= 100.0 { 0 } else { usize::from(value < 10.0) + 1 };
    format!("{value:.digits$} {unit}")
}

/// What one all-reduce moves per second and rank, by the usual definition.
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

/// One line per size: sirtaki's time and bandwidth, then every other library's time and ratio.
pub fn line(row: &Row, ranks: usize) -> String {
    let ours = &row.columns[0];
    let bandwidth = bus_bandwidth(row.bytes, ranks, ours.micros);
    let mut text = format!("{:>8}  {:>9} {bandwidth:>7.2} GB/s", size(row.bytes), time(ours.micros));
    for column in &row.columns[1..] {
        let _ = write!(text, "  | {:>8} {:>9} {:>9}", column.name, time(column.micros), ratio(column));
    }
    for name in &row.absent {
        let _ = write!(text, "  | {name:>8} {:>19}", "not installed");
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
    for name in &first.absent {
        let _ = write!(text, " {} |", label(name));
    }
    let _ = write!(text, "\n|{}", "---|".repeat(1 + 2 * first.columns.len() + first.absent.len()));
    for row in &table.rows {
        let ours = &row.columns[0];
        let bandwidth = bus_bandwidth(row.bytes, ranks, ours.micros);
        let _ = write!(text, "\n| {} | {} | {bandwidth:.2} |", size(row.bytes), time(ours.micros));
        for column in &row.columns[1..] {
            let _ = write!(text, " {} | {} |", time(column.micros), ratio(column));
        }
        text.push_str(&" not installed |".repeat(row.absent.len()));
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
        "hvd gloo" => "Horovod over Gloo",
        "hvd mpi" => "Horovod over MPI",
        "shared" => "sirtaki on its own memory (ratio: limit ÷ it)",
        "add" => "limit: add in place",
        "copy" => "limit: copy",
        other => other,
    }
}

/// What many ranks cost, one line per number of them.
pub fn scales(scales: &[Scale]) -> String {
    let mut text =
        format!("{:>5}  {:^43}  {:^43}", "ranks", "1,000 tensors agreed on", "1,000 tensors in a known order");
    for scale in scales {
        let _ = write!(text, "\n{:>5}", scale.ranks);
        for Cost { wall, cpu } in [scale.agreed, scale.adopted] {
            let each = |total: f64| total / scale.ranks as f64;
            let _ = write!(text, "  {wall:7.1} ms {:6.2} ms/rank {:6.2} ms CPU/rank", each(wall), each(cpu));
        }
    }
    text
}

/// What starting took, one line per way to start.
pub fn starts(title: &str, starts: &[Start]) -> String {
    let mut text = format!("{title:<32} {:>16} {:>14} {:>12}", "first collective", "whole command", "left behind");
    for start in starts {
        let _ = write!(text, "\n  {:<30} ", start.name);
        if start.rounds.is_empty() {
            text.push_str("   not installed");
            continue;
        }
        let collective = start.rounds.iter().flatten().any(|seen| seen.first.is_some());
        let first = if collective { time(start.first()) } else { "-".into() };
        let _ = write!(text, "{first:>16} {:>14} {:>12}", time(start.whole()), start.left());
        if start.hung() > 0 {
            let _ = write!(text, "   {} of {} did not end", start.hung(), start.rounds.len());
        }
    }
    text
}

/// Every goal of the tables.
pub fn verdicts(tables: &[Table]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for table in tables {
        for row in &table.rows {
            for column in &row.columns {
                let Some(goal) = column.goal else { continue };
                let (setting, size, name) = (&table.setting, size(row.bytes), label(&column.name));
                let text =
                    format!("{setting}, {size}, {name}: ratio {:.2}, to be at least {:.2}", column.ratio, goal.0);
                verdicts.push(Verdict { reached: column.reached(), text });
            }
        }
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goals::{Goal, Setting};

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(
            [time(0.123), time(12.34), time(1234.5), time(123_456.0)],
            ["0.12 µs", "12.3 µs", "1.23 ms", "123 ms"]
        );
        assert_eq!([size(4), size(1 << 10), size(3 << 20)], ["4 B", "1 KiB", "3 MiB"]);
    }

    #[test]
    fn every_goal_and_every_absence_is_shown() {
        let column = |name: &str, ratio| Column { name: name.into(), micros: 9.0, ratio, goal: Some(Goal(3.0)) };
        let columns =
            vec![Column { goal: None, ..column("engine", 1.0) }, column("works", 4.0), column("buckets", 2.0)];
        let row = Row { bytes: 4, columns, absent: vec!["hvd mpi".into()] };
        assert!(line(&row, 2).ends_with("hvd mpi       not installed"), "{}", line(&row, 2));
        let table = Table { setting: Setting::Engine(2), rows: vec![row] };
        let texts: Vec<String> = verdicts(std::slice::from_ref(&table)).iter().map(Verdict::to_string).collect();
        assert_eq!(texts.len(), 2);
        assert!(texts[0].starts_with('✓') && texts[1].starts_with('✗'), "{texts:?}");
        let markdown = markdown(&table, 2);
        let cells: Vec<usize> = markdown.lines().map(|line| line.matches('|').count()).collect();
        assert!(
            markdown.contains("| Horovod over MPI |") && cells.iter().all(|&count| count == cells[0]),
            "{markdown}"
        );
    }

    #[test]
    fn two_ranks_move_their_bytes_once() {
        assert!((bus_bandwidth(1_000_000, 2, 1000.0) - 1.0).abs() < 1e-9);
    }
}
