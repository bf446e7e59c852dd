//! `sirtaki report`: recorded runs as a web page, as Markdown or as data.
//!
//! Honest by design, after Hoefler's "Twelve ways to fool the masses": every run that was given is counted, failed ones
//! too; speed is never shown without test accuracy; baseline and units are on every plot; whatever weakens a comparison
//! is stated. From the folders up: `read` (hostile until checked), `measure`, `spread` and `compare` (pure), `findings`
//! (all of it), then `document` (words and tables) and `figures` with [`plot`](crate::plot) (SVG), which `page`,
//! `markdown` and `json` put together. Rejected: a template engine and a plotting library in JavaScript; a page has to
//! open in ten years, and to be complete without any script.

mod compare;
pub(crate) mod document;
pub(crate) mod figures;
mod findings;
mod json;
mod markdown;
mod measure;
mod more;
mod open;
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

use self::document::Document;
pub(crate) use self::{document::busy, findings::Findings};
use crate::{
    args::report::Report,
    env,
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
    let census = document.census.clone();
    let file = match (&arguments.output, arguments.markdown || arguments.json) {
        (output, false) => {
            let file = output.as_deref().unwrap_or(Path::new(PAGE));
            pages(&findings, document, file, printer)?;
            file
        }
        (output, true) => {
            let text = if arguments.json { json::write(&findings, &document) } else { markdown::write(&document) };
            let Some(file) = output else { return Ok(printer.write(Stream::Out, text.as_bytes())?) };
            save(file, &text)?;
            file
        }
    };
    printer.message(&format!("{}: {census}", file.display()));
    if arguments.open { open::open(file, &env::process) } else { Ok(()) }
}

/// Makes the page of these runs for a command that made the runs.
pub(crate) fn page(runs: &[PathBuf], file: &Path, title: &str, printer: &mut Printer) -> Result<Findings> {
    let findings = findings(runs, None, printer)?;
    pages(&findings, document::write(&findings, Some(title)), file, printer)?;
    Ok(findings)
}

/// Writes the page and those beside it.
fn pages(findings: &Findings, document: Document, file: &Path, printer: &mut Printer) -> Result<()> {
    let document = Document { links: more::write(findings, file, printer)?, ..document };
    save(file, &page::write(findings, &document, &figures::draw(findings)))
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
