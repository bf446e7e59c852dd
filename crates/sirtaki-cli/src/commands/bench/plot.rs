//! Time over size, both logarithmic, one letter per algorithm.

use super::{row::Measurement, sizes::show, table::time};

const HEIGHT: usize = 14;
/// Columns per size, wide enough for its name.
const WIDTH: usize = 9;

/// The plot with its legend, line by line.
pub(super) fn plot(rows: &[Measurement]) -> Vec<String> {
    let measured: Vec<&Measurement> = rows.iter().filter(|row| row.median_us > 0.0).collect();
    let low = measured.iter().map(|row| row.median_us).fold(f64::INFINITY, f64::min);
    let high = measured.iter().map(|row| row.median_us).fold(0.0, f64::max);
    if measured.is_empty() {
        return Vec::new();
    }
    let span = (high / low).ln().max(f64::EPSILON);
    let mut sizes: Vec<usize> = rows.iter().map(|row| row.bytes).collect();
    sizes.dedup();
    let mut names: Vec<&str> = rows.iter().map(|row| row.algorithm.as_str()).collect();
    names.sort_unstable();
    names.dedup();

    let mut grid = vec![vec![' '; sizes.len() * WIDTH]; HEIGHT];
    for row in measured {
        let level = ((row.median_us / low).ln() / span * (HEIGHT - 1) as f64).round() as usize;
        let column = sizes.iter().position(|&bytes| bytes == row.bytes).unwrap_or(0) * WIDTH;
        let line = &mut grid[HEIGHT - 1 - level];
        // Algorithms that are equally fast stand side by side.
        if let Some(free) = line[column..column + WIDTH].iter_mut().find(|cell| **cell == ' ') {
            *free = letter(&row.algorithm);
        }
    }
    let label = |level: usize| match level {
        0 => time(high),
        level if level == HEIGHT / 2 => time((low * high).sqrt()),
        level if level == HEIGHT - 1 => time(low),
        _ => String::new(),
    };
    let line = |(level, cells): (usize, &Vec<char>)| {
        format!("{:>9} | {}", label(level), cells.iter().collect::<String>()).trim_end().to_owned()
    };
    let mut lines: Vec<String> = grid.iter().enumerate().map(line).collect();
    let axis: String = sizes.iter().map(|&bytes| format!("{:<WIDTH$}", show(bytes as u64))).collect();
    lines.push(format!("{:>9} + {}", "", axis.trim_end()));
    let legend: Vec<String> = names.iter().map(|name| format!("{} {name}", letter(name))).collect();
    lines.push(format!("{:>9}   {}", "", legend.join("   ")));
    lines.push(String::new());
    lines
}

/// The first letter, if it is unique.
fn letter(name: &str) -> char {
    match name {
        "auto" => '.',
        "direct" => 'X',
        other => other.chars().next().unwrap_or('?').to_ascii_uppercase(),
    }
}

#[cfg(test)]
mod tests {
    use sirtaki_comm::collective::Algorithm;

    use super::*;

    #[test]
    fn every_algorithm_has_its_own_letter() {
        let mut letters: Vec<char> = Algorithm::ALL.map(|algorithm| letter(algorithm.name())).to_vec();
        letters.push(letter("auto"));
        letters.sort_unstable();
        letters.dedup();
        assert_eq!(letters.len(), Algorithm::ALL.len() + 1);
    }

    #[test]
    fn the_slowest_is_at_the_top_and_the_fastest_at_the_bottom() {
        let row = |algorithm: &str, bytes, median_us| Measurement {
            algorithm: algorithm.into(),
            ranks: 2,
            bytes,
            median_us,
            p99_us: median_us,
            bus_gb_s: 1.0,
        };
        let lines = plot(&[row("ring", 4, 10.0), row("tree", 4, 1.0), row("ring", 8, 100.0), row("tree", 8, 100.0)]);
        assert!(lines[0].starts_with("   100 µs |          RT"), "{lines:#?}");
        assert!(lines[HEIGHT - 1].starts_with("  1.00 µs | T"), "{lines:#?}");
        assert!(plot(&[]).is_empty());
    }
}
