//! `sirtaki report`: recorded runs as a web page, as Markdown or as data.
//!
//! Honest by design, after Hoefler's "Twelve ways to fool the masses": every run that was given is counted, failed ones
//! too; speed is never shown without test accuracy; baseline and units are on every plot; whatever weakens a comparison
//! is stated. From the folders up: `read` (hostile until checked), `measure`, `spread` and `compare` (pure), `findings`
//! (all of it), then `document` (words and tables) and `figures` with [`plot`](crate::plot) (SVG), which `page`,
//! `markdown` and `json` put together. Rejected: a template engine and a plotting library in JavaScript; a page has to
//! open in ten years.

mod compare;
pub(crate) mod document;
pub(crate) mod figures;
mod findings;
mod json;
mod markdown;
mod measure;
pub(crate) mod page;
pub(crate) mod read;
mod spread;
mod terminal;
#[cfg(test)]
mod tests;
pub(crate) mod words;

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use sirtaki_engine::files;

pub(crate) use self::{document::busy, findings::Findings};
use crate::{
    args::report::Report,
    printer::{Advice, Printer, Stream},
};

/// Where the page goes by default.
const PAGE: &str = "report.html";
/// Progress is not reported before this time.
const QUIET: Duration = Duration::from_secs(1);

/// Reads, compares, writes.
pub fn run(arguments: &Report, printer: &mut Printer) -> Result<()> {
    let findings = findings(&arguments.runs, arguments.target_accuracy, printer)?;
    let document = document::write(&findings, arguments.title.as_deref());
    let text = match (arguments.markdown, arguments.json) {
        (true, _) => markdown::write(&document),
        (_, true) => json::write(&findings, &document),
        _ => page::write(&findings, &document, &figures::draw(&findings)),
    };
    let file = match &arguments.output {
        None if arguments.markdown || arguments.json => return Ok(printer.write(Stream::Out, text.as_bytes())?),
        None => Path::new(PAGE),
        Some(file) => file,
    };
    save(file, &text)?;
    printer.message(&format!("{}: {}", file.display(), document.census));
    Ok(())
}

/// Makes the page of these runs for a command that made the runs.
pub(crate) fn page(runs: &[PathBuf], file: &Path, title: &str, printer: &mut Printer) -> Result<Findings> {
    let findings = findings(runs, None, printer)?;
    let document = document::write(&findings, Some(title));
    save(file, &page::write(&findings, &document, &figures::draw(&findings)))?;
    Ok(findings)
}

/// The tables of all scalings, as data.
pub(crate) fn print_scalings(findings: &Findings, printer: &mut Printer) -> Result<()> {
    for (index, table) in document::scalings(findings).iter().enumerate() {
        if index > 0 {
            printer.data("")?;
        }
        for line in terminal::lines(table) {
            printer.data(&line)?;
        }
    }
    Ok(())
}

fn save(file: &Path, text: &str) -> Result<()> {
    files::write(file, text.as_bytes()).with_context(|| format!("cannot write {}", file.display()))
}

/// Reads everything, and warns about what cannot be read.
fn findings(typed: &[PathBuf], target: Option<f64>, printer: &mut Printer) -> Result<Findings> {
    let folders = read::find(typed)?;
    let (mut runs, mut unreadable) = (Vec::new(), Vec::new());
    let start = Instant::now();
    for (index, folder) in folders.iter().enumerate() {
        if start.elapsed() > QUIET {
            printer.progress(&format!("reading run {} of {}", index + 1, folders.len()));
        }
        match read::read(folder) {
            Ok(run) => runs.push(run),
            Err(lost) => unreadable.push(lost),
        }
    }
    if runs.is_empty() {
        let why = unreadable.first().map_or(String::new(), |lost| format!("{}: {}", lost.name, lost.why));
        let hint = "record it again, or repair the file; docs/telemetry.md says what is in a run folder";
        return Err(Advice::new(format!("none of the runs can be read. {why}"), hint).into());
    }
    for lost in &unreadable {
        printer.message(&format!("warning: {} is listed as unreadable: {}", lost.name, lost.why));
    }
    Ok(Findings::new(runs, unreadable, target))
}
