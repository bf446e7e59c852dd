//! Parallel coordinates: one upright axis per quantity, one line per thing that has them all. The best lines are drawn last,
//! above the others.

use super::{LETTER, WIDTH, svg::Svg};
use crate::commands::report::words::shorten;

const HEIGHT: f64 = 270.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 40.0;
const SIDE: f64 = 40.0;

/// One axis.
#[derive(Debug, Clone)]
pub(crate) struct Upright {
    /// Below it.
    pub(crate) name: String,
    /// At its lower and its upper end.
    pub(crate) ends: (String, String),
}

/// One line: where it crosses each axis, from 0 to 1, and where it does not.
#[derive(Debug, Clone)]
pub(crate) struct Strand {
    /// In the order of the axes.
    pub(crate) places: Vec<Option<f64>>,
    /// Whether it stands out.
    pub(crate) best: bool,
    /// What it is, in a tooltip.
    pub(crate) tip: String,
}

/// A plot of parallel coordinates.
#[derive(Debug, Clone)]
pub(crate) struct Parallel {
    /// Of the plot, for those who cannot see it.
    pub(crate) title: String,
    /// From left to right.
    pub(crate) axes: Vec<Upright>,
    /// In any order.
    pub(crate) strands: Vec<Strand>,
}

impl Parallel {
    /// The plot.
    pub(crate) fn draw(&self) -> String {
        let mut svg = Svg::new(HEIGHT);
        let (last, bottom) = (self.axes.len().saturating_sub(1).max(1), HEIGHT - BOTTOM);
        let gap = (WIDTH - 2.0 * SIDE) / last as f64;
        let place = |axis: usize, at: f64| (SIDE + gap * axis as f64, bottom - at.clamp(0.0, 1.0) * (bottom - TOP));
        let room = ((gap / LETTER) as usize).clamp(3, 14);
        for (index, axis) in self.axes.iter().enumerate() {
            svg.line("axis", place(index, 0.0), place(index, 1.0));
            let x = place(index, 0.0).0;
            let first = x.min(WIDTH - LETTER);
            svg.text("tick", "middle", (first, bottom + 14.0), &shorten(&axis.ends.0, room.min(10)));
            svg.text("tick", "middle", (first, TOP - 8.0), &shorten(&axis.ends.1, room.min(10)));
            svg.text("unit", "middle", (first, HEIGHT - 8.0), &shorten(&axis.name, room.min(11)));
        }
        let (best, others): (Vec<&Strand>, Vec<&Strand>) = self.strands.iter().partition(|strand| strand.best);
        for strand in others.into_iter().chain(best) {
            let known = strand.places.iter().enumerate().map(|(axis, at)| at.map(|at| place(axis, at)));
            let crossings: Vec<(f64, f64)> = known.flatten().collect();
            svg.path(usize::from(strand.best), !strand.best, &crossings);
            if let (true, Some(&end)) = (strand.best, crossings.last()) {
                svg.mark(1, end, &strand.tip);
            }
        }
        svg.finish(&self.title, &self.description())
    }

    fn description(&self) -> String {
        let names: Vec<&str> = self.axes.iter().map(|axis| axis.name.as_str()).collect();
        let best: Vec<&str> =
            self.strands.iter().filter(|strand| strand.best).map(|strand| strand.tip.as_str()).collect();
        format!("{} lines over {}. Best: {}", self.strands.len(), names.join(", "), best.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_cross_their_axes() {
        let axis = |name: &str| Upright { name: name.into(), ends: ("0".into(), "<1>".into()) };
        let strand = |places: [Option<f64>; 3], best| Strand { places: places.into(), best, tip: "trial 1".into() };
        let plot = Parallel {
            title: "Parameters".into(),
            axes: vec![axis("lr"), axis("a very long name of a parameter"), axis("loss")],
            strands: vec![strand([Some(0.0), None, Some(2.0)], true), strand([Some(0.5), Some(0.5), Some(0.5)], false)],
        };
        let svg = plot.draw();
        assert!(svg.contains("<title>trial 1</title>") && svg.contains("&lt;1&gt;") && !svg.contains("NaN"), "{svg}");
        let lonely = Parallel { axes: vec![axis("lr")], ..plot }.draw();
        assert!(!lonely.contains("NaN") && !lonely.contains("inf"));
    }
}
