//! A surface over two quantities: lines of equal value, and the points that it was made from.
//!
//! Lines are found square by square: where a level lies between the values of two corners, the line crosses the side
//! between them. Levels are those below which equal parts of the area lie, so that there are lines wherever values differ.

use super::{
    LETTER, Upright, WIDTH,
    svg::{Place, Svg},
};
use crate::commands::report::words::shorten;

const HEIGHT: f64 = 300.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 44.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 92.0;
/// How many lines there are.
const LEVELS: usize = 5;
/// Letters of names and numbers.
const ROOM: usize = 9;

/// A place in the unit square that stands for something.
#[derive(Debug, Clone)]
pub(crate) struct Marked {
    /// From left to right and from bottom to top.
    pub(crate) place: (f64, f64),
    /// Whether it stands out.
    pub(crate) best: bool,
    /// What it is, in a tooltip.
    pub(crate) tip: String,
}

/// A plot of a surface.
#[derive(Debug, Clone)]
pub(crate) struct Contour {
    /// Of the plot, for those who cannot see it.
    pub(crate) title: String,
    /// From left to right and from bottom to top.
    pub(crate) axes: (Upright, Upright),
    /// Values at equal distances: rows from bottom to top, all of the same length.
    pub(crate) field: Vec<Vec<f64>>,
    /// What it was made from.
    pub(crate) marks: Vec<Marked>,
    /// How values are written.
    pub(crate) show: fn(f64) -> String,
}

impl Contour {
    /// The plot.
    pub(crate) fn draw(&self) -> String {
        let mut svg = Svg::new(HEIGHT);
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let place = |(x, y): Place| (LEFT + x * (right - LEFT), bottom - y * (bottom - TOP));
        for (from, to) in [((0.0, 0.0), (1.0, 0.0)), ((0.0, 0.0), (0.0, 1.0))] {
            svg.line("axis", place(from), place(to));
        }
        let (across, up) = &self.axes;
        svg.text("tick", "start", (LEFT, bottom + 15.0), &shorten(&across.ends.0, ROOM));
        svg.text("tick", "end", (right, bottom + 15.0), &shorten(&across.ends.1, ROOM));
        svg.text("unit", "middle", ((LEFT + right) / 2.0, HEIGHT - 8.0), &shorten(&across.name, 30));
        svg.text("tick", "end", (LEFT - 6.0, bottom), &shorten(&up.ends.0, ROOM - 1));
        svg.text("tick", "end", (LEFT - 6.0, TOP + 8.0), &shorten(&up.ends.1, ROOM - 1));
        svg.text("unit", "end", (LEFT - 6.0, (TOP + bottom) / 2.0), &shorten(&up.name, ROOM - 1));
        let levels = self.levels();
        for (style, &level) in levels.iter().enumerate() {
            let lines: Vec<(Place, Place)> =
                self.crossings(level).into_iter().map(|(from, to)| (place(from), place(to))).collect();
            svg.strokes(style, &lines);
            let y = TOP + 14.0 + 20.0 * (levels.len() - 1 - style) as f64;
            svg.path(style, false, &[(right + 10.0, y - 4.0), (right + 26.0, y - 4.0)]);
            let room = ((RIGHT - 32.0) / LETTER) as usize;
            svg.text("tick", "start", (right + 30.0, y), &shorten(&(self.show)(level), room));
        }
        let (best, others): (Vec<&Marked>, Vec<&Marked>) = self.marks.iter().partition(|mark| mark.best);
        for mark in others.into_iter().chain(best) {
            svg.mark(usize::from(mark.best), place(mark.place), &mark.tip);
        }
        svg.finish(&self.title, &self.description(&levels))
    }

    fn levels(&self) -> Vec<f64> {
        let mut values: Vec<f64> = self.field.iter().flatten().copied().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let at = |part: usize| values.get(part * values.len() / (LEVELS + 1)).copied();
        let mut levels: Vec<f64> = (1..=LEVELS).filter_map(at).collect();
        levels.dedup();
        levels
    }

    /// The pieces of the line of a level, in the unit square.
    fn crossings(&self, level: f64) -> Vec<(Place, Place)> {
        let rows = self.field.len().saturating_sub(1);
        let columns = self.field.first().map_or(0, |row| row.len().saturating_sub(1));
        let mut pieces = Vec::new();
        for row in 0..rows {
            for column in 0..columns {
                let corner = |(down, along): (usize, usize)| {
                    let place = ((column + along) as f64 / columns as f64, (row + down) as f64 / rows as f64);
                    (place, self.field[row + down][column + along])
                };
                let corners = [(0, 0), (0, 1), (1, 1), (1, 0)].map(corner);
                let crossed = (0..4).filter_map(|side| crossing(corners[side], corners[(side + 1) % 4], level));
                let crossed: Vec<Place> = crossed.collect();
                pieces.extend(crossed.chunks_exact(2).map(|pair| (pair[0], pair[1])));
            }
        }
        pieces
    }

    fn description(&self, levels: &[f64]) -> String {
        let best: Vec<&str> = self.marks.iter().filter(|mark| mark.best).map(|mark| mark.tip.as_str()).collect();
        let levels: Vec<String> = levels.iter().map(|level| (self.show)(*level)).collect();
        let (across, up) = (&self.axes.0.name, &self.axes.1.name);
        format!("lines of {} over {across} and {up}. Best: {}", levels.join(", "), best.join("; "))
    }
}

/// Where a level lies between two corners, if it does.
fn crossing((from, low): (Place, f64), (to, high): (Place, f64), level: f64) -> Option<Place> {
    if (low < level) == (high < level) || !low.is_finite() || !high.is_finite() {
        return None;
    }
    let part = (level - low) / (high - low);
    Some((from.0 + part * (to.0 - from.0), from.1 + part * (to.1 - from.1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slope() -> Contour {
        let axis = |name: &str| Upright { name: name.into(), ends: ("0".into(), "<1>".into()) };
        let field = (0..5).map(|row| (0..5).map(|column| f64::from(column) + 0.0 * f64::from(row)).collect()).collect();
        Contour {
            title: "lr and layers".into(),
            axes: (axis("lr"), axis("a very long name of a parameter")),
            field,
            marks: vec![Marked { place: (0.5, 0.5), best: true, tip: "trial 1".into() }],
            show: |value| format!("{value}"),
        }
    }

    #[test]
    fn lines_are_where_the_values_are() {
        let plot = slope();
        let pieces = plot.crossings(2.5);
        assert_eq!(pieces.len(), 4, "one per row");
        for (from, to) in pieces {
            assert!((from.0 - 0.625).abs() < 1e-9 && (to.0 - 0.625).abs() < 1e-9, "{from:?} {to:?}");
        }
        assert!(plot.crossings(7.0).is_empty());
        let svg = plot.draw();
        assert!(svg.contains("<title>trial 1</title>") && svg.contains("&lt;1&gt;") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn flat_and_empty_surfaces_have_no_lines() {
        let flat = Contour { field: vec![vec![1.0; 3]; 3], ..slope() };
        let empty = Contour { field: Vec::new(), ..slope() };
        let odd = Contour { field: vec![vec![f64::NAN, 1.0], vec![f64::INFINITY, 2.0]], ..slope() };
        for plot in [flat, empty, odd] {
            let svg = plot.draw();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
