//! The page: one file of HTML with everything in it, without scripts, that a browser shows in light or dark and on a
//! phone. Its own content security policy would refuse anything loaded from elsewhere.

use std::fmt::Write;

use super::{
    document::{Document, Table},
    figures::{Figure, Section},
    findings::Findings,
    words::escape,
};
use crate::plot;

const STYLE: &str = include_str!("page.css");
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
/// Cells with at least this many letters may be broken into lines.
const LONG: usize = 32;

/// The page of a report on runs.
pub(crate) fn write(findings: &Findings, document: &Document, sections: &[Section]) -> String {
    assemble(document, &legend(findings), sections, &super::document::READING, Appearance::Inside)
}

/// Where a page has its style from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Appearance {
    /// It is in the page, which is one file.
    Inside,
    /// From the server, which has a policy of its own and a new page every few seconds.
    Live,
}

/// The style of all pages.
pub(crate) fn style() -> String {
    [plot::STYLE, STYLE].concat()
}

/// A whole page; `legend` is HTML, and `reading` says how to read the figures.
pub(crate) fn assemble(
    document: &Document,
    legend: &str,
    sections: &[Section],
    reading: &[&str],
    appearance: Appearance,
) -> String {
    let title = escape(&document.title);
    let style = match appearance {
        Appearance::Inside => format!(
            "<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n<style>\n{}</style>\n",
            style()
        ),
        Appearance::Live => {
            let again = "<meta http-equiv=\"refresh\" content=\"2\">";
            format!("{again}\n<link rel=\"icon\" href=\"data:,\">\n<link rel=\"stylesheet\" href=\"page.css\">\n")
        }
    };
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n{style}</head>\n<body>\n{}\n",
        plot::patterns()
    );
    head(&mut page, document, legend);
    page.push_str("<main>\n");
    for section in sections {
        let _ = writeln!(page, "<section>\n<h2>{}</h2>\n<div class=\"grid\">", escape(section.title));
        section.figures.iter().for_each(|one| figure(&mut page, one));
        page.push_str("</div>\n</section>\n");
    }
    document.tables.iter().for_each(|one| table(&mut page, one));
    page.push_str("</main>\n");
    foot(&mut page, reading);
    page.push_str("</body>\n</html>\n");
    page
}

fn head(page: &mut String, document: &Document, legend: &str) {
    let (title, sentence, census) = (escape(&document.title), escape(&document.sentence), escape(&document.census));
    let _ = writeln!(
        page,
        "<header>\n<h1>{title}</h1>\n<p class=\"result\">{sentence}</p>\n<p class=\"soft\">{census}</p>\n</header>\n<dl class=\"keys\">"
    );
    for key in &document.keys {
        let (name, value, detail) = (escape(key.name), escape(&key.value), escape(&key.detail));
        let _ = writeln!(
            page,
            "<div><dt>{name}</dt><dd class=\"value\">{value}</dd><dd class=\"detail\">{detail}</dd></div>"
        );
    }
    page.push_str("</dl>\n");
    page.push_str(legend);
    if !document.notes.is_empty() {
        page.push_str("<ul class=\"notes\" aria-label=\"What to keep in mind\">\n");
        for note in &document.notes {
            let _ = writeln!(page, "<li>{}</li>", escape(note));
        }
        page.push_str("</ul>\n");
    }
}

/// The groups of runs, where there are several.
fn legend(findings: &Findings) -> String {
    let mut text = String::new();
    if findings.groups.len() > 1 {
        text.push_str("<ul class=\"legend\" aria-label=\"Groups of runs\">\n");
        for (index, group) in findings.groups.iter().enumerate() {
            let (letter, words) = (escape(&group.letter), escape(&findings.describe(index)));
            let _ = writeln!(text, "<li>{}<b>{letter}</b> <span>{words}</span></li>", plot::sample(index));
        }
        text.push_str("</ul>\n");
    }
    text
}

fn figure(page: &mut String, figure: &Figure) {
    let (title, note) = (escape(&figure.title), escape(&figure.note));
    let _ = writeln!(
        page,
        "<figure>\n<figcaption><h3>{title}</h3></figcaption>\n{}\n<p class=\"note\">{note}</p>\n</figure>",
        figure.svg
    );
}

fn table(page: &mut String, table: &Table) {
    let (title, note) = (escape(&table.title), escape(&table.note));
    let _ = writeln!(page, "<section>\n<h2>{title}</h2>\n<p class=\"note\">{note}</p>");
    let _ = writeln!(
        page,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\">\n<table>\n<thead><tr>"
    );
    let numbers: Vec<bool> = table.head.iter().map(|name| name.starts_with('#')).collect();
    let class = |column: usize| if numbers.get(column) == Some(&true) { " class=\"number\"" } else { "" };
    let names = table.head.iter().map(|name| name.trim_start_matches('#')).chain(table.more.iter().map(String::as_str));
    for (column, name) in names.enumerate() {
        let _ = write!(page, "<th scope=\"col\"{}>{}</th>", class(column), escape(name));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        page.push_str(if row.marked { "<tr class=\"marked\">" } else { "<tr>" });
        for (column, cell) in row.cells.iter().enumerate() {
            let text = escape(cell);
            if column == 0 {
                let mark = if row.marked && !table.more.is_empty() { "≠ " } else { "" };
                let _ = write!(page, "<th scope=\"row\"{}>{mark}{text}</th>", class(column));
            } else {
                let class = if class(column).is_empty() && cell.chars().count() > LONG {
                    " class=\"long\""
                } else {
                    class(column)
                };
                let _ = write!(page, "<td{class}>{text}</td>");
            }
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table>\n</div>\n</section>\n");
}

fn foot(page: &mut String, reading: &[&str]) {
    let _ = writeln!(page, "<footer class=\"soft\">");
    for line in reading {
        let _ = writeln!(page, "<p>{}</p>", escape(line));
    }
    let _ = writeln!(page, "<p>Made by sirtaki {}.</p>\n</footer>", env!("CARGO_PKG_VERSION"));
}
