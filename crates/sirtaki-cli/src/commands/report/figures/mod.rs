//! Which plots there are, and what is in them. A plot without data is left out.

mod course;
mod inside;
mod scaling;

use super::findings::Findings;

/// A plot with what is said about it.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    /// Above it.
    pub(crate) title: String,
    /// Below it: how to read it, and what it is compared with.
    pub(crate) note: String,
    /// The plot.
    pub(crate) svg: String,
}

/// A part of the page.
#[derive(Debug)]
pub(crate) struct Section {
    /// Above it.
    pub(crate) title: &'static str,
    /// In it.
    pub(crate) figures: Vec<Figure>,
}

/// All plots.
pub(crate) fn draw(findings: &Findings) -> Vec<Section> {
    let sections = [
        Section { title: "Scaling", figures: scaling::figures(findings) },
        Section { title: "Learning and speed", figures: course::figures(findings) },
        Section { title: "Inside the step", figures: inside::figures(findings) },
    ];
    sections.into_iter().filter(|section| !section.figures.is_empty()).collect()
}
