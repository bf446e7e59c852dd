//! The few elements that plots are made of.

use std::fmt::Write;

use super::{LETTER, WIDTH};
use crate::commands::report::words::escape;

/// Dashes of lines. Together with the marks, whose number has no common factor with theirs, they make 30
/// distinguishable styles.
const DASHES: [&str; 5] = ["", "7 3", "2 3", "10 3 2 3", "5 2 1 2 1 2"];
/// Marks.
const MARKS: usize = 6;
/// Colours that the page has.
pub(super) const COLOURS: usize = 8;
/// Ways of hatching that the page has.
const HATCHES: usize = 7;

/// Height of a line of a legend.
const LEGEND: f64 = 18.0;

/// A place in a plot.
pub(super) type Place = (f64, f64);

/// A plot that is being drawn.
pub(super) struct Svg {
    body: String,
    height: f64,
}

impl Svg {
    pub(super) fn new(height: f64) -> Self {
        Self { body: String::new(), height }
    }

    /// The whole plot, with words for those who cannot see it.
    pub(super) fn finish(self, title: &str, description: &str) -> String {
        let (title, description) = (escape(title), escape(description));
        format!(
            "<svg viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-label=\"{title}\"><title>{title}</title>\
             <desc>{description}</desc>{}</svg>",
            self.height, self.body
        )
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let _ = write!(self.body, "<path class=\"{class}\" d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\"/>");
    }

    /// Text at its left (`start`), in its middle (`middle`) or at its right (`end`).
    pub(super) fn text(&mut self, class: &str, anchor: &str, at: (f64, f64), text: &str) {
        if text.is_empty() {
            return;
        }
        let (x, y) = at;
        let anchor = if anchor == "start" { String::new() } else { format!(" text-anchor=\"{anchor}\"") };
        let _ = write!(self.body, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\"{anchor}>{}</text>", escape(text));
    }

    /// A line through points, in the style of this number.
    pub(super) fn path(&mut self, style: usize, faint: bool, points: &[(f64, f64)]) {
        if points.len() < 2 {
            return;
        }
        let mut path = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let _ = write!(path, "{}{x:.1} {y:.1}", if index == 0 { "M" } else { "L" });
        }
        let dashes = if faint { "" } else { dashes(style) };
        let dashes = if dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dashes}\"") };
        let faint = if faint { " faint" } else { "" };
        let _ = write!(self.body, "<path class=\"line c{}{faint}\"{dashes} d=\"{path}\"/>", style % COLOURS);
    }

    /// Many short lines, in the style of this number.
    pub(super) fn strokes(&mut self, style: usize, lines: &[(Place, Place)]) {
        let mut path = String::new();
        for ((x1, y1), (x2, y2)) in lines {
            let _ = write!(path, "M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}");
        }
        let dashes = dashes(style);
        let dashes = if dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dashes}\"") };
        let _ = write!(self.body, "<path class=\"line c{}\"{dashes} d=\"{path}\"/>", style % COLOURS);
    }

    /// The mark of this style, with a tooltip.
    pub(super) fn mark(&mut self, style: usize, at: (f64, f64), tip: &str) {
        let path = format!("M{:.1} {:.1}{}", at.0, at.1, shape(style));
        let tip = if tip.is_empty() { String::new() } else { format!("<title>{}</title>", escape(tip)) };
        let _ = write!(self.body, "<path class=\"mark c{}\" d=\"{path}\">{tip}</path>", style % COLOURS);
    }

    /// What follows, up to [`Svg::end`], is shown and hidden by this entry of the page's legend.
    pub(super) fn begin(&mut self, key: Option<usize>) {
        let _ = match key {
            Some(key) => write!(self.body, "<g data-key=\"{key}\">"),
            None => write!(self.body, "<g>"),
        };
    }

    pub(super) fn end(&mut self) {
        self.body.push_str("</g>");
    }

    /// Samples of parts with their names.
    pub(super) fn legend(&mut self, items: &[(usize, Place, &str)]) {
        for (part, (x, y), name) in items {
            self.bar(*part, (*x, y - 9.0), (10.0, 10.0), "");
            self.text("tick", "start", (x + 15.0, *y), name);
        }
    }

    /// A bar in the colour and hatching of this part.
    pub(super) fn bar(&mut self, part: usize, at: (f64, f64), size: (f64, f64), tip: &str) {
        let ((x, y), (width, height)) = (at, size);
        let place = format!("x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\"", width.max(0.3));
        let tip = if tip.is_empty() { String::new() } else { format!("<title>{}</title>", escape(tip)) };
        let _ = write!(self.body, "<rect class=\"bar c{}\" {place}>{tip}</rect>", part % COLOURS);
        if !part.is_multiple_of(HATCHES) {
            let _ = write!(self.body, "<rect class=\"hatched\" fill=\"url(#h{})\" {place}/>", part % HATCHES);
        }
    }
}

/// Where the sample and the name of each part are, in as many lines as they need.
pub(super) fn legend<'a>(names: impl Iterator<Item = &'a str>) -> Vec<(usize, Place, &'a str)> {
    let (mut x, mut y) = (4.0, 14.0);
    let mut items = Vec::new();
    for (part, name) in names.enumerate() {
        let width = 32.0 + LETTER * name.chars().count() as f64;
        if x + width > WIDTH && x > 4.0 {
            (x, y) = (4.0, y + LEGEND);
        }
        items.push((part, (x, y), name));
        x += width;
    }
    items
}

/// How a line of this style is dashed.
pub(super) fn dashes(style: usize) -> &'static str {
    DASHES[style % DASHES.len()]
}

/// The mark of this style, from its middle.
pub(super) fn shape(style: usize) -> &'static str {
    match style % MARKS {
        0 => "m-3.4 0a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0-6.8 0z",
        1 => "m-3 -3h6v6h-6z",
        2 => "m0 -4l3.8 6.6h-7.6z",
        3 => "m0 -4.4l4 4.4l-4 4.4l-4-4.4z",
        4 => "m0 4l3.8 -6.6h-7.6z",
        _ => "m-1.2 -4h2.4v2.8h2.8v2.4h-2.8v2.8h-2.4v-2.8h-2.8v-2.4h2.8z",
    }
}

/// A short piece of a line in this style, for a legend outside of plots.
pub(crate) fn sample(style: usize) -> String {
    let mut svg = Svg::new(12.0);
    svg.path(style, false, &[(1.0, 6.0), (35.0, 6.0)]);
    svg.mark(style, (18.0, 6.0), "");
    format!("<svg class=\"sample\" viewBox=\"0 0 36 12\" aria-hidden=\"true\">{}</svg>", svg.body)
}

/// The ways of hatching, once per page.
pub(crate) fn patterns() -> String {
    let shapes = [
        ("8", "8", "M-2 10L10 -2M-2 2L2 -2M6 10L10 6"),
        ("6", "6", "M1 1h1.6v1.6h-1.6zM4 4h1.6v1.6h-1.6z"),
        ("8", "8", "M-2 -2L10 10M-2 6L2 10M6 -2L10 2"),
        ("5", "5", "M0 2.5H5"),
        ("5", "5", "M2.5 0V5"),
        ("8", "8", "M0 0L8 8M8 0L0 8"),
    ];
    let pattern = |(index, (width, height, path)): (usize, &(&str, &str, &str))| {
        format!(
            "<pattern id=\"h{}\" width=\"{width}\" height=\"{height}\" patternUnits=\"userSpaceOnUse\">\
             <path class=\"hatch\" d=\"{path}\"/></pattern>",
            index + 1
        )
    };
    let patterns: String = shapes.iter().enumerate().map(pattern).collect();
    format!("<svg class=\"patterns\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs>{patterns}</defs></svg>")
}
