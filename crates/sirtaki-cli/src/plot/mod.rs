//! Plots as SVG, drawn by hand: no library, nothing from elsewhere. Reports include them in their page, benchmarks write
//! them to a separate file. In the page of a report, `SCRIPT` lets readers explore charts, from the data beside each;
//! without it they look the same and stand still.
//!
//! Colours come from `STYLE`, so that they follow light and dark. Everything can be distinguished without them: lines
//! by dashes, marks and a name at their end, bars by hatching and order.

mod axis;
mod bars;
mod cells;
mod chart;
mod contour;
mod data;
mod dots;
mod parallel;
mod spans;
mod svg;

pub use self::{
    axis::Scale,
    chart::{Chart, Guide, Series},
};
pub(crate) use self::{
    bars::{BarRow, Bars},
    cells::{CellPanel, Cells},
    contour::{Contour, Marked},
    dots::{Dots, Dotted},
    parallel::{Parallel, Strand, Upright},
    spans::{Span, Spans},
    svg::{patterns, sample},
};

use std::fmt::Write;

/// Colours and strokes of all plots, for the page that has them.
pub(crate) const STYLE: &str = include_str!("plot.css");
/// What lets readers explore charts: values, zoom, logarithms, means, and which runs to see.
pub(crate) const SCRIPT: &str = concat!(include_str!("numbers.js"), include_str!("explore.js"));

/// Width of every plot, in its own units; a phone shows it a little smaller, a desktop a little larger.
const WIDTH: f64 = 440.0;
/// Width of a letter of labels, in the widest of the fonts that a browser may choose.
const LETTER: f64 = 6.9;

/// Some charts as one picture, two beside each other, with everything it needs in it.
pub fn picture(title: &str, charts: &[Chart]) -> String {
    let (width, height) = (WIDTH * charts.len().clamp(1, 2) as f64, chart::HEIGHT * charts.len().div_ceil(2) as f64);
    let title = crate::commands::report::words::escape(title);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\" role=\"img\" aria-label=\"{title}\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"var(--paper)\"/>\n"
    );
    for (index, chart) in charts.iter().enumerate() {
        let (x, y) = (WIDTH * (index % 2) as f64, chart::HEIGHT * (index / 2) as f64);
        let place = format!("<svg x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{}\" ", chart::HEIGHT);
        text.push_str(&chart.draw().replacen("<svg ", &place, 1));
        let title = crate::commands::report::words::escape(&chart.title);
        let (right, top) = (x + WIDTH - 14.0, y + 13.0);
        let _ = write!(text, "<text class=\"unit\" x=\"{right}\" y=\"{top}\" text-anchor=\"end\">{title}</text>");
        text.push('\n');
    }
    text.push_str("</svg>\n");
    text
}
