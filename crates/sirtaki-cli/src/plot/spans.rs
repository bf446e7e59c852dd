//! What happened when: rows of bars, each from its beginning to its end.

use super::{LETTER, WIDTH, axis::Axis, axis::Scale, svg::Svg};
use crate::commands::report::words::shorten;

/// Letters of a row's name.
const NAME: usize = 14;
const BAR: f64 = 13.0;
const GAP: f64 = 6.0;
const BOTTOM: f64 = 40.0;

/// One bar.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    /// Its index in the legend.
    pub(crate) part: usize,
    /// From when to when.
    pub(crate) ends: (f64, f64),
    /// What it is, in a tooltip.
    pub(crate) tip: String,
}

/// A plot of bars over time.
#[derive(Debug, Clone)]
pub(crate) struct Spans {
    /// Of the plot, for those who cannot see it.
    pub(crate) title: String,
    /// What goes to the right.
    pub(crate) x: (&'static str, Scale),
    /// Names of the kinds of bars.
    pub(crate) parts: Vec<&'static str>,
    /// From top to bottom: a name, and bars.
    pub(crate) rows: Vec<(String, Vec<Span>)>,
}

impl Spans {
    /// The plot.
    pub(crate) fn draw(&self) -> String {
        let mut x = 4.0;
        let mut svg = Svg::new(30.0 + self.rows.len() as f64 * (BAR + GAP) + BOTTOM);
        for (part, name) in self.parts.iter().enumerate().filter(|(part, _)| self.has(*part)) {
            svg.bar(part, (x, 5.0), (10.0, 10.0), "");
            svg.text("tick", "start", (x + 14.0, 14.0), name);
            x += 26.0 + LETTER * name.chars().count() as f64;
        }
        let letters = |name: &str| name.chars().count().min(NAME) as f64 * LETTER;
        let left = 10.0 + self.rows.iter().map(|row| letters(&row.0)).fold(14.0, f64::max);
        let right = WIDTH - 16.0;
        let mut times: Vec<f64> = self.rows.iter().flat_map(|row| row.1.iter().map(|span| span.ends.1)).collect();
        times.push(0.0);
        let axis = Axis::new(self.x.1, &times, true);
        let place = |time: f64| left + axis.place(time) * (right - left);
        let (top, bottom) = (26.0, 30.0 + self.rows.len() as f64 * (BAR + GAP));
        for (time, text) in axis.ticks() {
            svg.line("grid", (place(time), top), (place(time), bottom));
            svg.text("tick", "middle", (place(time), bottom + 15.0), &text);
        }
        for (index, (name, spans)) in self.rows.iter().enumerate() {
            let y = 30.0 + index as f64 * (BAR + GAP);
            svg.text("tick", "end", (left - 7.0, y + BAR - 3.0), &shorten(name, NAME));
            for Span { part, ends: (from, to), tip } in spans {
                svg.bar(*part, (place(*from), y), ((place(*to) - place(*from) - 0.5).max(0.5), BAR), tip);
            }
        }
        svg.line("axis", (left, top), (left, bottom));
        svg.text("unit", "end", (right, bottom + BOTTOM - 8.0), &axis.label(self.x.0));
        svg.finish(&self.title, &self.description())
    }

    fn has(&self, part: usize) -> bool {
        self.rows.iter().any(|row| row.1.iter().any(|span| span.part == part))
    }

    fn description(&self) -> String {
        let row = |(name, spans): &(String, Vec<Span>)| {
            let busy: f64 = spans.iter().map(|span| span.ends.1 - span.ends.0).sum();
            format!("{name}: {} bars, {busy:.0} seconds in all", spans.len())
        };
        self.rows.iter().take(32).map(row).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_stand_where_their_times_are() {
        let span = |part, from, to| Span { part, ends: (from, to), tip: format!("{from}") };
        let rows = vec![("a/0".into(), vec![span(0, 0.0, 2.0), span(1, 2.0, 4.0)]), ("a/1".into(), vec![])];
        let x = ("time since the start", Scale::Time);
        let svg = Spans { title: "Slots".into(), x, parts: vec!["finished", "failed", "never"], rows }.draw();
        assert!(
            svg.contains(">finished</text>") && svg.contains(">failed</text>") && !svg.contains(">never<"),
            "{svg}"
        );
        assert!(svg.contains("a/0: 2 bars, 4 seconds") && !svg.contains("NaN"));
        let empty = Spans { title: String::new(), x, parts: vec![], rows: vec![] }.draw();
        assert!(!empty.contains("NaN"));
    }
}
