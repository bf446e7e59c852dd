//! The tables as one picture: time over size, both logarithmic, one panel per setting. A plain SVG, readable without
//! colour: every line has its own dashes and its name at its end.

use std::fmt::Write;

use crate::{
    comm::{Row, Table},
    report::{size, time},
};

const PANEL: (f64, f64) = (560.0, 360.0);
const LEFT: f64 = 70.0;
const RIGHT: f64 = 110.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;

/// How each library is drawn: name in the tables, name in the picture, colour, dashes.
const LINES: [(&str, &str, &str, &str); 6] = [
    ("sirtaki", "sirtaki", "#b3261e", ""),
    ("tcp", "sirtaki", "#b3261e", ""),
    ("shared", "sirtaki, shared", "#e07b39", "2 3"),
    ("openmpi", "Open MPI", "#1f5fa8", "8 4"),
    ("gloo", "Gloo", "#2e7d4f", "12 3 2 3"),
    ("add", "limit: add in place", "#777777", "1 4"),
];

/// One panel's axes.
struct Scale {
    /// Smallest and largest, as logarithms.
    x: (f64, f64),
    y: (f64, f64),
}

impl Scale {
    fn of(rows: &[Row]) -> Self {
        let bounds = |values: &mut dyn Iterator<Item = f64>| {
            values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)))
        };
        let x = bounds(&mut rows.iter().map(|row| (row.bytes as f64).log2()));
        let y = bounds(&mut rows.iter().flat_map(|row| row.columns.iter().map(|column| column.micros.log10())));
        Self { x: (x.0, x.1.max(x.0 + 1.0)), y: (y.0.floor(), y.1.ceil()) }
    }

    fn x(&self, bytes: usize) -> f64 {
        LEFT + ((bytes as f64).log2() - self.x.0) / (self.x.1 - self.x.0) * (PANEL.0 - LEFT - RIGHT)
    }

    fn y(&self, micros: f64) -> f64 {
        TOP + (self.y.1 - micros.log10()) / (self.y.1 - self.y.0) * (PANEL.1 - TOP - BOTTOM)
    }
}

/// The picture.
pub fn svg(tables: &[Table]) -> String {
    let (width, height) = (PANEL.0 * tables.len().min(2) as f64, PANEL.1 * tables.len().div_ceil(2) as f64);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\" role=\"img\" aria-label=\"Time of an all-reduce over its size\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    for (index, table) in tables.iter().enumerate() {
        let (x, y) = (PANEL.0 * (index % 2) as f64, PANEL.1 * (index / 2) as f64);
        let _ = writeln!(text, "<g transform=\"translate({x} {y})\">{}</g>", panel(table));
    }
    text.push_str("</svg>\n");
    text
}

fn panel(table: &Table) -> String {
    let scale = Scale::of(&table.rows);
    let mut text = format!(
        "<text x=\"{LEFT}\" y=\"22\" font-weight=\"bold\">{}: time over bytes per rank</text>\n",
        table.setting
    );
    axes(&mut text, table, &scale);
    let mut labels: Vec<(f64, &str, &str)> = Vec::new();
    for (name, title, colour, dashes) in LINES {
        let points: Vec<(f64, f64)> = table
            .rows
            .iter()
            .flat_map(|row| row.columns.iter().filter(|column| column.name == name).map(move |column| (row, column)))
            .map(|(row, column)| (scale.x(row.bytes), scale.y(column.micros)))
            .collect();
        let Some(&(_, end)) = points.last() else { continue };
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>",
            path.join(" ")
        );
        labels.push((end, title, colour));
    }
    labels.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free = f64::MIN;
    for (end, title, colour) in labels {
        // Names that would cover each other move down.
        free = (end + 4.0).max(free);
        let x = PANEL.0 - RIGHT + 6.0;
        let _ = writeln!(text, "<text x=\"{x}\" y=\"{free:.1}\" fill=\"{colour}\" font-size=\"11\">{title}</text>");
        free += 13.0;
    }
    text
}

fn axes(text: &mut String, table: &Table, scale: &Scale) {
    let (right, bottom) = (PANEL.0 - RIGHT, PANEL.1 - BOTTOM);
    for power in scale.y.0 as i32..=scale.y.1 as i32 {
        let micros = 10_f64.powi(power);
        let y = scale.y(micros);
        let _ = writeln!(text, "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>");
        let (x, y, label) = (LEFT - 6.0, y + 4.0, time(micros));
        let _ = writeln!(text, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{label}</text>");
    }
    for row in table.rows.iter().step_by(2) {
        let (x, label) = (scale.x(row.bytes), size(row.bytes));
        let _ = writeln!(text, "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#eeeeee\"/>");
        let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>", bottom + 18.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{comm::Column, goals::Setting};

    #[test]
    fn every_library_has_a_line_and_a_name() {
        let column = |name: &str, micros| Column { name: name.into(), micros, ratio: 1.0, goal: None };
        let row = |bytes| Row {
            bytes,
            columns: vec![column("sirtaki", bytes as f64), column("gloo", 9.0 * bytes as f64)],
            absent: Vec::new(),
        };
        let picture = svg(&[Table { setting: Setting::Shared(2), rows: vec![row(4), row(1024)] }]);
        assert_eq!(picture.matches("<polyline").count(), 2);
        assert!(picture.contains(">Gloo</text>") && picture.contains(">sirtaki</text>"));
        assert!(!picture.contains("NaN") && !picture.contains("inf"));
    }
}
