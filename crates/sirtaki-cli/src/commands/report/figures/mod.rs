//! Which plots there are, and what is in them. A plot without data is left out.

mod course;
mod inside;
mod scaling;

use super::findings::Findings;
use crate::plot::Chart;

/// A plot with what is said about it.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    /// Above it.
    pub(crate) title: String,
    /// Below it: how to read it, and what it is compared with.
    pub(crate) note: String,
    /// The plot.
    pub(crate) svg: String,
    /// What it was drawn from, as JSON that may stand in HTML, where readers can explore it.
    pub(crate) data: Option<String>,
}

impl Figure {
    /// A plot that stands still.
    pub(crate) fn new(title: impl Into<String>, note: impl Into<String>, svg: String) -> Self {
        Self { title: title.into(), note: note.into(), svg, data: None }
    }

    /// A chart, if there is anything in it.
    pub(crate) fn of(chart: &Chart, note: impl Into<String>) -> Option<Self> {
        let figure =
            || Self { title: chart.title.clone(), note: note.into(), svg: chart.draw(), data: Some(chart.data()) };
        (!chart.is_empty()).then(figure)
    }
}

/// A part of the page.
#[derive(Debug)]
pub(crate) struct Section {
    /// Above it.
    pub(crate) title: String,
    /// In it.
    pub(crate) figures: Vec<Figure>,
}

/// What happened inside runs.
pub(crate) fn inside(findings: &Findings) -> Vec<Figure> {
    inside::figures(findings)
}

/// All plots.
pub(crate) fn draw(findings: &Findings) -> Vec<Section> {
    let sections = [
        Section { title: "Scaling".into(), figures: scaling::figures(findings) },
        Section { title: "Learning and speed".into(), figures: course::figures(findings) },
        Section { title: "Inside the step".into(), figures: inside::figures(findings) },
    ];
    sections.into_iter().filter(|section| !section.figures.is_empty()).collect()
}
