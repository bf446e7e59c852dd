//! The page: one file of HTML with everything in it that a browser shows in light or dark, on a phone and on paper. One
//! script, which is in the file too, lets readers explore the charts; without it nothing is missing but that. The page's
//! own content security policy refuses any other script and anything loaded from elsewhere.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use super::{
    document::{Document, Link, Table},
    figures::{Figure, Section},
    findings::Findings,
    words::escape,
};
use crate::plot;

const STYLE: &str = include_str!("page.css");
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
            "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n<style>\n{}</style>\n",
            policy(),
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
    head(&mut page, document);
    if !legend.is_empty() {
        let _ = writeln!(page, "<div class=\"tools\">\n{legend}</div>");
    }
    page.push_str("<main>\n");
    for section in sections {
        let _ = writeln!(page, "<section>\n<h2>{}</h2>\n<div class=\"grid\">", escape(&section.title));
        section.figures.iter().for_each(|one| figure(&mut page, one, appearance));
        page.push_str("</div>\n</section>\n");
    }
    document.tables.iter().for_each(|one| table(&mut page, one));
    page.push_str("</main>\n");
    foot(&mut page, reading);
    if appearance == Appearance::Inside {
        let _ = writeln!(page, "<script>{}</script>", plot::SCRIPT);
    }
    page.push_str("</body>\n</html>\n");
    page
}

/// Nothing but what is in the page, and no script but ours.
fn policy() -> String {
    let hash = base64(&Sha256::digest(plot::SCRIPT));
    format!("default-src 'none'; script-src 'sha256-{hash}'; style-src 'unsafe-inline'; img-src data:")
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |three: &[u8]| {
        let bits = three.iter().fold(0, |bits, &byte| bits << 8 | usize::from(byte)) << (8 * (3 - three.len()));
        let letter = |place: usize| match place <= three.len() {
            true => char::from(LETTERS[bits >> (6 * (3 - place)) & 63]),
            false => '=',
        };
        (0..4).map(letter).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

fn head(page: &mut String, document: &Document) {
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
    if !document.links.is_empty() {
        let link = |link: &Link| format!("<a href=\"{}\">{}</a>", address(&link.file), escape(link.words));
        let links: Vec<String> = document.links.iter().map(link).collect();
        let _ = writeln!(page, "<p class=\"links\">See also: {}</p>", links.join(" · "));
    }
    if !document.notes.is_empty() {
        page.push_str("<ul class=\"notes\" aria-label=\"What to keep in mind\">\n");
        for note in &document.notes {
            let _ = writeln!(page, "<li>{}</li>", escape(note));
        }
        page.push_str("</ul>\n");
    }
}

/// The address of a file in the same folder, whatever its name is.
fn address(file: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let letter = |byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    file.bytes().map(letter).collect()
}

/// The groups of runs, or the runs of the only group, where there are several.
fn legend(findings: &Findings) -> String {
    let entries = findings.legend();
    if entries.is_empty() {
        return String::new();
    }
    let mut text = "<ul class=\"legend\" aria-label=\"Runs\">\n".to_owned();
    for (index, name, words) in entries {
        let (name, words, sample) = (escape(&name), escape(&words), plot::sample(index));
        let _ = writeln!(text, "<li data-key=\"{index}\">{sample}<b>{name}</b> <span>{words}</span></li>");
    }
    text.push_str("</ul>\n");
    text
}

fn figure(page: &mut String, figure: &Figure, appearance: Appearance) {
    let (title, note) = (escape(&figure.title), escape(&figure.note));
    let data = figure.data.as_ref().filter(|_| appearance == Appearance::Inside);
    let data = data.map_or(String::new(), |data| format!("<script type=\"application/json\">{data}</script>\n"));
    let _ = writeln!(
        page,
        "<figure>\n<figcaption><h3>{title}</h3></figcaption>\n{}\n{data}<p class=\"note\">{note}</p>\n</figure>",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_allows_the_one_script() {
        assert_eq!(
            ["", "f", "fo", "foo", "foob"].map(|text| base64(text.as_bytes())),
            ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]
        );
        assert!(policy().contains("script-src 'sha256-") && !plot::SCRIPT.contains("</"), "it would end its element");
    }

    #[test]
    fn links_stay_in_the_folder() {
        assert_eq!(address("report-profile.html"), "report-profile.html");
        assert_eq!(address("a:b \"c\"/ü.html"), "a%3Ab%20%22c%22%2F%C3%BC.html");
    }

    #[test]
    fn data_is_in_the_file_and_not_in_the_live_page() {
        let data = Some("{\"series\":[]}".to_owned());
        let one = Figure { data, ..Figure::new("Loss", "of training", "<svg></svg>".into()) };
        let written = |appearance| {
            let mut page = String::new();
            figure(&mut page, &one, appearance);
            page
        };
        assert!(written(Appearance::Inside).contains("<script type=\"application/json\">{\"series\":[]}</script>"));
        assert!(!written(Appearance::Live).contains("script"));
    }
}
