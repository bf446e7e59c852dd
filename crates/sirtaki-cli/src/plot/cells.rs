//! Squares side by side, each of one of several kinds: who has what of something that lies in space.

use super::{
    LETTER, WIDTH,
    svg::{Svg, legend},
};

/// The most pixels of a panel along an axis.
const PANEL: f64 = 150.0;
/// The smallest and the largest edge of a square.
const EDGES: (f64, f64) = (2.0, 14.0);
const GAP: f64 = 18.0;
/// Room for the name of a panel.
const NAME: f64 = 16.0;

/// Squares in rows.
pub(crate) struct CellPanel {
    pub(crate) name: String,
    /// The kind of each square; those without one are empty.
    pub(crate) rows: Vec<Vec<Option<usize>>>,
}

/// Panels of squares.
pub(crate) struct Cells {
    pub(crate) title: String,
    pub(crate) panels: Vec<CellPanel>,
    /// What the kinds are called.
    pub(crate) names: Vec<String>,
}

impl Cells {
    /// The plot.
    pub(crate) fn draw(&self) -> String {
        let lengths = self.panels.iter().map(|panel| {
            let columns = panel.rows.iter().map(Vec::len).max().unwrap_or(0);
            (columns, panel.rows.len())
        });
        let (columns, rows) = lengths.fold((1, 1), |most, panel| (most.0.max(panel.0), most.1.max(panel.1)));
        let edge = (PANEL / columns.max(rows) as f64).clamp(EDGES.0, EDGES.1);
        let letters = self.panels.iter().map(|panel| panel.name.chars().count()).max().unwrap_or(0);
        let (width, height) =
            ((columns as f64 * edge).max(letters as f64 * LETTER) + GAP, rows as f64 * edge + NAME + GAP);
        let across = ((WIDTH / width) as usize).max(1);
        let legend = legend(self.names.iter().map(String::as_str));
        let top = legend.last().map_or(0.0, |(_, (_, y), _)| y + GAP);
        let mut svg = Svg::new(top + self.panels.len().div_ceil(across) as f64 * height);
        svg.legend(&legend);
        for (number, panel) in self.panels.iter().enumerate() {
            let (left, above) = ((number % across) as f64 * width, top + (number / across) as f64 * height);
            svg.text("tick", "start", (left, above + NAME - 6.0), &panel.name);
            for (row, cells) in panel.rows.iter().enumerate() {
                for (column, kind) in cells.iter().enumerate().filter_map(|(column, kind)| Some((column, (*kind)?))) {
                    let at = (left + column as f64 * edge, above + NAME + row as f64 * edge);
                    let name = self.names.get(kind).map_or("", String::as_str);
                    svg.bar(kind, at, (edge - 1.0, edge - 1.0), name);
                }
            }
        }
        svg.finish(&self.title, &self.description())
    }

    fn description(&self) -> String {
        let cells = || self.panels.iter().flat_map(|panel| panel.rows.iter().flatten()).flatten();
        let count = |kind: usize| cells().filter(|other| **other == kind).count();
        let names = self.names.iter().enumerate().take(32);
        names.map(|(kind, name)| format!("{name}: {}", count(kind))).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_squares_and_empty_places_none() {
        let rows = vec![vec![Some(0), Some(1)], vec![None, Some(1)]];
        let panels = vec![CellPanel { name: "z 0".to_owned(), rows }];
        let cells = Cells { title: "Who".to_owned(), panels, names: vec!["a".to_owned(), "b<".to_owned()] };
        let svg = cells.draw();
        // One sample each for the legend.
        assert_eq!(svg.matches("<rect class=\"bar c0\"").count(), 1 + 1);
        assert_eq!(svg.matches("<rect class=\"bar c1\"").count(), 1 + 2);
        assert!(svg.contains("a: 1; b&lt;: 2") && svg.contains("z 0"), "{svg}");
    }
}
