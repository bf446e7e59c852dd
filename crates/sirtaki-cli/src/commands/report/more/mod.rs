//! Pages beside the report, for who wants to know more than a comparison shows: the profile of every rank, and what
//! timelines say about steps. The report links to them, and they to it.

mod profile;
mod timeline;

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{
    document::{Document, Link, Table},
    figures::Section,
    findings::Findings,
    page::{self, Appearance},
    read::RecordedRun,
    save,
    words::count,
};
use crate::printer::Printer;

/// Runs with a part of their own on such a page.
const MOST: usize = 12;

/// What is on a page: sections, tables and notes.
type Content = (Vec<Section>, Vec<Table>, Vec<String>);

/// Writes the pages for which there is something to say, and says where they are.
pub(super) fn write(findings: &Findings, report: &Path, printer: &mut Printer) -> Result<Vec<Link>> {
    let mut links = Vec::new();
    if let Some(content) = profile::content(&chosen(findings, |run| run.profile.is_some())) {
        let title = "Profile of every rank";
        links.push(put(report, "profile", title, content, &profile::READING)?);
    }
    if let Some(content) = timeline::content(&chosen(findings, timeline::has), printer) {
        let title = "Steps by their timelines";
        links.push(put(report, "timeline", title, content, &timeline::READING)?);
    }
    Ok(links)
}

/// Runs with something to say: the first one of each group, then others, as long as there is room.
fn chosen(findings: &Findings, has: impl Fn(&RecordedRun) -> bool) -> Vec<&RecordedRun> {
    let of = |group: &super::compare::Group| {
        group.members.iter().map(|&run| &findings.runs[run]).filter(|run| has(run)).collect::<Vec<_>>()
    };
    let groups: Vec<Vec<&RecordedRun>> = findings.groups.iter().map(of).collect();
    let first = groups.iter().filter_map(|runs| runs.first());
    let others = groups.iter().flat_map(|runs| runs.iter().skip(1));
    first.chain(others).copied().take(MOST).collect()
}

/// The file beside the report with this word in its name.
fn beside(report: &Path, word: &str) -> PathBuf {
    let stem = report.file_stem().unwrap_or_default().to_string_lossy();
    report.with_file_name(format!("{stem}-{word}.html"))
}

fn put(
    report: &Path,
    word: &str,
    title: &'static str,
    (sections, tables, notes): Content,
    reading: &[&str],
) -> Result<Link> {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let document = Document {
        title: title.into(),
        sentence: format!("{}, one after the other.", count(sections.len(), "run")),
        census: format!("The first run of every group comes first, then others, up to {MOST}."),
        keys: Vec::new(),
        notes,
        tables,
        links: vec![Link { file: name(report), words: "the report" }],
    };
    let file = beside(report, word);
    save(&file, &page::assemble(&document, "", &sections, reading, Appearance::Inside))?;
    Ok(Link { file: name(&file), words: title })
}
