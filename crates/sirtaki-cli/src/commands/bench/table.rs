//! Results for people: a table, and below it where the algorithms cross over.

use super::{plot::plot, row::Measurement, sizes::show};
use crate::printer::{Printer, Style};

/// Marks the fastest algorithm of a size.
const BEST: &str = "*";

/// Prints all rows, which come size by size.
pub(super) fn print(rows: &[Measurement], printer: &mut Printer) -> std::io::Result<()> {
    let several = rows.iter().any(|row| row.algorithm != rows[0].algorithm);
    for line in lines(rows, several, printer) {
        printer.data(&line)?;
    }
    if several {
        printer.data("")?;
        for line in plot(rows).iter().chain(&crossovers(rows)) {
            printer.data(line)?;
        }
    }
    Ok(())
}

fn lines(rows: &[Measurement], several: bool, printer: &Printer) -> Vec<String> {
    let head = if several {
        format!("{:>9}  {:<10} {:>10}   {:>10}  {:>9}", "size", "algorithm", "median", "p99", "bus GB/s")
    } else {
        format!("{:>9}  {:>10}  {:>10}  {:>9}", "size", "median", "p99", "bus GB/s")
    };
    let mut lines = vec![printer.paint(Style::Bold, head.trim_end())];
    let mut previous = None;
    for row in rows {
        let size = if previous == Some(row.bytes) { String::new() } else { show(row.bytes as u64) };
        previous = Some(row.bytes);
        let (median, p99, bus) = (time(row.median_us), time(row.p99_us), format!("{:.2}", row.bus_gb_s));
        if !several {
            lines.push(format!("{size:>9}  {median:>10}  {p99:>10}  {bus:>9}"));
            continue;
        }
        let best = std::ptr::eq(row, fastest(rows, row.bytes));
        let mark = if best { BEST } else { " " };
        let line = format!("{size:>9}  {:<10} {median:>10} {mark} {p99:>10}  {bus:>9}", row.algorithm);
        lines.push(if best { printer.paint(Style::Good, &line) } else { line });
    }
    if several {
        lines.push(format!("{BEST} fastest at this size, not counting `auto`, which only picks one of the others"));
    }
    lines
}

/// A time for people, three digits.
pub(crate) fn time(microseconds: f64) -> String {
    let (value, unit) = match microseconds {
        us if us < 1000.0 => (us, "µs"),
        us if us < 1e6 => (us / 1e3, "ms"),
        us => (us / 1e6, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

/// The fastest row of a size. `auto` counts only if it is the only one.
fn fastest(rows: &[Measurement], bytes: usize) -> &Measurement {
    let named = |row: &&Measurement| row.bytes == bytes && row.algorithm != "auto";
    let least = |a: &&Measurement, b: &&Measurement| a.median_us.total_cmp(&b.median_us);
    let best = rows.iter().filter(named).min_by(least);
    best.or_else(|| rows.iter().find(|row| row.bytes == bytes)).unwrap_or(&rows[0])
}

/// Which algorithm is fastest from which size on.
fn crossovers(rows: &[Measurement]) -> Vec<String> {
    let mut sizes: Vec<usize> = rows.iter().map(|row| row.bytes).collect();
    sizes.dedup();
    let mut spans: Vec<(&str, usize, usize)> = Vec::new();
    for bytes in sizes {
        let name = fastest(rows, bytes).algorithm.as_str();
        match spans.last_mut() {
            Some((last, _, to)) if *last == name => *to = bytes,
            _ => spans.push((name, bytes, bytes)),
        }
    }
    spans
        .into_iter()
        .map(|(name, from, to)| match from == to {
            true => format!("{name} is fastest at {}", show(from as u64)),
            false => format!("{name} is fastest from {} to {}", show(from as u64), show(to as u64)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(algorithm: &str, bytes: usize, median_us: f64) -> Measurement {
        Measurement { algorithm: algorithm.into(), ranks: 2, bytes, median_us, p99_us: median_us * 2.0, bus_gb_s: 1.0 }
    }

    #[test]
    fn crossovers_join_neighbouring_sizes() {
        let rows = [
            row("auto", 4, 0.5),
            row("ring", 4, 9.0),
            row("tree", 4, 1.0),
            row("ring", 1024, 9.0),
            row("tree", 1024, 8.0),
            row("ring", 1 << 20, 80.0),
            row("tree", 1 << 20, 90.0),
        ];
        assert_eq!(crossovers(&rows), ["tree is fastest from 4 B to 1 KiB", "ring is fastest at 1 MiB"]);
        let printer = Printer::plain(std::io::sink(), std::io::sink());
        let marked: Vec<_> = lines(&rows, true, &printer).into_iter().filter(|line| line.contains(" * ")).collect();
        assert_eq!(marked.len(), 3);
        assert!(marked[0].contains("tree") && marked[2].contains("ring"), "{marked:?}");
    }

    #[test]
    fn times_have_three_digits() {
        assert_eq!(
            [0.251, 12.34, 999.4, 1500.0, 2.5e6].map(time),
            ["0.25 µs", "12.3 µs", "999 µs", "1.50 ms", "2.50 s"]
        );
    }
}
