//! What a report says in words and tables, the same on a page and as Markdown.

mod gpus;
mod notes;
mod result;
mod tables;

pub(crate) use self::{
    notes::busy,
    tables::{or_dash, scalings},
};
use super::findings::Findings;

/// A figure that matters most.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Key {
    /// What it is.
    pub(crate) name: &'static str,
    /// Large.
    pub(crate) value: String,
    /// Small: of what, compared with what.
    pub(crate) detail: String,
}

/// One row of a table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TableRow {
    /// From left to right.
    pub(crate) cells: Vec<String>,
    /// Whether it stands out.
    pub(crate) marked: bool,
}

/// A table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Table {
    /// Above it.
    pub(crate) title: String,
    /// Below the title.
    pub(crate) note: String,
    /// Names of columns; those that begin with `#` are numbers.
    pub(crate) head: Vec<&'static str>,
    /// Columns that follow those in `head`, such as one per group.
    pub(crate) more: Vec<String>,
    /// From top to bottom.
    pub(crate) rows: Vec<TableRow>,
}

/// Another page in the same folder.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Link {
    /// Its file.
    pub(crate) file: String,
    /// What is there.
    pub(crate) words: &'static str,
}

/// Everything but the plots.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Document {
    /// Of the page.
    pub(crate) title: String,
    /// The result.
    pub(crate) sentence: String,
    /// How many runs, and what became of them.
    pub(crate) census: String,
    /// What matters most.
    pub(crate) keys: Vec<Key>,
    /// What to keep in mind.
    pub(crate) notes: Vec<String>,
    /// What was measured and set.
    pub(crate) tables: Vec<Table>,
    /// Where there is more.
    pub(crate) links: Vec<Link>,
}

/// How to read the figures, below every report.
pub(crate) const READING: [&str; 4] = [
    "Throughput: samples of all workers per second from the first to the last recorded row, tests and checkpoints in between \
     included, starting not.",
    "Speed-up: throughput against the baseline, the run or runs with the fewest workers. Strong scaling: all workers together \
     compute the same batch. Weak scaling: each worker computes the same batch.",
    "Time to accuracy: from the start of a run to the first test that reached the goal.",
    "Every run that was given is counted and listed. Means are of finished runs.",
];

/// What there is to say.
pub(crate) fn write(findings: &Findings, title: Option<&str>) -> Document {
    Document {
        title: title.map_or_else(|| result::title(findings), Into::into),
        sentence: result::sentence(findings),
        census: findings.census(),
        keys: result::keys(findings),
        notes: notes::notes(findings),
        tables: tables::tables(findings),
        links: Vec::new(),
    }
}
