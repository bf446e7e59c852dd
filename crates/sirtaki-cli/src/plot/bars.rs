//! Bars that grow to the right, made of parts: one row per rank or run, several bars in a row, a legend above.

use super::{
    LETTER, WIDTH,
    axis::{Axis, Scale},
    svg::{Svg, legend},
};
use crate::commands::report::words::shorten;

/// Letters of a row's name.
const NAME: usize = 20;
const BOTTOM: f64 = 40.0;
/// Height of one bar, and of the space between rows.
const BAR: f64 = 11.0;
const GAP: f64 = 9.0;

/// One row: bars one below the other, each with its parts in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct BarRow {
    /// To the left.
    pub(crate) name: String,
    /// Parts: their index in the legend, and their size.
    pub(crate) bars: Vec<Vec<(usize, f64)>>,
    /// To the right; may be empty.
    pub(crate) note: String,
    /// The entry of the page's legend that shows and hides it.
    pub(crate) key: Option<usize>,
}

/// A plot of bars.
#[derive(Debug, Clone)]
pub(crate) struct Bars {
    /// Of the plot, for those who cannot see it.
    pub(crate) title: String,
    /// What is measured.
    pub(crate) x: (&'static str, Scale),
    /// Names of the parts; none if there is only one kind.
    pub(crate) parts: Vec<String>,
    /// From top to bottom.
    pub(crate) rows: Vec<BarRow>,
    /// How values are written in the tooltip of a bar.
    pub(crate) show: fn(f64) -> String,
}

impl Bars {
    /// The plot.
    pub(crate) fn draw(&self) -> String {
        let legend = legend(self.parts.iter().map(String::as_str));
        let top = legend.last().map_or(8.0, |item| item.1.1 + 14.0);
        let height = |row: &BarRow| row.bars.len() as f64 * BAR + GAP;
        let whole = top + self.rows.iter().map(height).sum::<f64>() + BOTTOM;
        let mut svg = Svg::new(whole);
        svg.legend(&legend);
        let letters = |text: &str, most: usize| text.chars().count().min(most) as f64 * LETTER;
        let left = 18.0 + self.rows.iter().map(|row| letters(&row.name, NAME)).fold(14.0, f64::max);
        let right = WIDTH - 10.0 - self.rows.iter().map(|row| letters(&row.note, NAME)).fold(8.0, f64::max);
        let sums = |row: &BarRow| row.bars.iter().map(|bar| bar.iter().map(|part| part.1).sum()).collect::<Vec<f64>>();
        let mut values: Vec<f64> = self.rows.iter().flat_map(sums).collect();
        values.push(0.0);
        let axis = Axis::new(self.x.1, &values, true);
        let place = |value: f64| left + axis.place(value) * (right - left);
        let bottom = whole - BOTTOM;
        for (value, text) in axis.ticks() {
            svg.line("grid", (place(value), top - 4.0), (place(value), bottom));
            svg.text("tick", "middle", (place(value), bottom + 15.0), &text);
        }
        let mut y = top;
        for row in &self.rows {
            svg.begin(row.key);
            let middle = y + (height(row) - GAP) / 2.0 + 4.0;
            svg.text("tick", "end", (left - 7.0, middle), &shorten(&row.name, NAME));
            let mut end: f64 = left;
            for bar in &row.bars {
                let mut sum = 0.0;
                for &(part, value) in bar.iter().filter(|part| part.1 > 0.0) {
                    let (from, to) = (place(sum), place(sum + value));
                    let tip = format!("{} {}", self.part(part), (self.show)(value));
                    svg.bar(part, (from, y), (to - from, BAR - 1.0), tip.trim());
                    (sum, end) = (sum + value, end.max(to));
                }
                y += BAR;
            }
            svg.text("tick", "start", (end + 5.0, middle), &shorten(&row.note, NAME));
            svg.end();
            y += GAP;
        }
        svg.line("axis", (left, top - 4.0), (left, bottom));
        svg.text("unit", "end", (right, whole - 6.0), &axis.label(self.x.0));
        svg.finish(&self.title, &self.description())
    }

    fn part(&self, part: usize) -> &str {
        self.parts.get(part).map_or("", String::as_str)
    }

    fn description(&self) -> String {
        let part = |&(part, value): &(usize, f64)| format!("{} {}", self.part(part), (self.show)(value));
        let row = |row: &BarRow| {
            let parts: Vec<String> = row.bars.iter().flatten().map(|value| part(value).trim().to_owned()).collect();
            format!("{}: {}", row.name, parts.join(", "))
        };
        self.rows.iter().take(32).map(row).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_and_part_is_there() {
        let row = |name: &str, parts: &[(usize, f64)]| BarRow {
            name: name.into(),
            bars: vec![parts.to_vec()],
            note: "all".into(),
            ..BarRow::default()
        };
        let bars = Bars {
            title: "Time".into(),
            x: ("time", Scale::Time),
            parts: vec!["input".into(), "forward".into()],
            rows: vec![row("rank 0", &[(0, 1.0), (1, 2.0)]), row("rank <1>", &[(0, 0.0), (1, 4.0)])],
            show: |value| format!("{value} s"),
        };
        let svg = bars.draw();
        assert_eq!(svg.matches("<rect class=\"bar").count(), 2 + 3);
        for part in ["rank &lt;1&gt;", "<title>forward 4 s</title>", ">time (s)</text>", ">input</text>"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert!(!svg.contains("NaN"));
    }
}
