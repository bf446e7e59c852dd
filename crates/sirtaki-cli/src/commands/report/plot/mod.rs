//! Plots as SVG, drawn by hand: no library, no script, nothing from elsewhere.
//!
//! Colours come from the page, so that they follow light and dark. Everything can be told apart without them: lines by
//! dashes, marks and a name at their end, bars by hatching and order.

mod axis;
mod bars;
mod chart;
mod dots;
mod svg;

pub(crate) use self::{
    axis::Scale,
    bars::{Bars, Row},
    chart::{Chart, Guide, Series},
    dots::{Dots, Line},
    svg::{patterns, sample},
};

/// Width of every plot, in its own units; a phone shows it a little smaller, a desktop a little larger.
const WIDTH: f64 = 440.0;
/// Width of a letter of labels, in the wide fonts among those that a browser may take.
const LETTER: f64 = 6.9;
