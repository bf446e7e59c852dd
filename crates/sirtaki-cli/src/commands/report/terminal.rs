//! Tables for a terminal.

use unicode_width::UnicodeWidthStr;

use super::{document::Table, words::unprintable};

/// The table with its note, line by line.
pub(crate) fn lines(table: &Table) -> Vec<String> {
    let head: Vec<String> = table.head.iter().map(|name| name.trim_start_matches('#').to_owned()).collect();
    let rows = || std::iter::once(&head).chain(table.rows.iter().map(|row| &row.cells));
    let width =
        |column: usize| rows().filter_map(|cells| cells.get(column)).map(|cell| cell.width()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &Vec<String>| {
        let cell = |((cell, &width), name): ((&String, &usize), &&str)| {
            let space = " ".repeat(width - cell.width().min(width));
            if name.starts_with('#') { format!("{space}{cell}") } else { format!("{cell}{space}") }
        };
        let cells: Vec<String> = cells.iter().zip(&widths).zip(&table.head).map(cell).collect();
        let plain = |letter: char| if unprintable(letter) { '\u{fffd}' } else { letter };
        cells.join("   ").trim_end().chars().map(plain).collect()
    };
    std::iter::once(table.note.clone()).chain(rows().map(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::document::TableRow;
    use super::*;

    #[test]
    fn numbers_are_aligned_in_columns() {
        let row = |cells: [&str; 2]| TableRow { cells: cells.map(Into::into).to_vec(), marked: false };
        let table = Table {
            title: "T".into(),
            note: "about".into(),
            head: vec!["name", "#speed-up"],
            more: Vec::new(),
            rows: vec![row(["größe", "1.00"]), row(["\u{1b}b", "12.00"])],
        };
        assert_eq!(lines(&table), ["about", "name    speed-up", "größe       1.00", "\u{fffd}b         12.00"]);
    }
}
