//! As much of Markdown as links and anchors need: no page uses more.

use std::collections::BTreeSet;

/// A link or picture.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) line: usize,
    pub(super) target: String,
    /// Whether the text itself is shown there.
    pub(super) included: bool,
}

/// Links and pictures of a page, those in code excepted.
pub(super) fn links(text: &str) -> Vec<Link> {
    let mut found = Vec::new();
    for (line, text) in prose(text) {
        let text = without_code(text);
        let inline = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let named = text.strip_prefix('[').and_then(|rest| rest.split_once("]: ")).map(|(_, target)| target);
        for target in inline.chain(named) {
            // A title may follow.
            let target = target.split_whitespace().next().unwrap_or_default().to_owned();
            found.push(Link { line, target, included: false });
        }
        // Lines of the file may follow.
        let included = text.strip_prefix("{{#include ").and_then(|rest| rest.split([':', '}']).next());
        found.extend(included.map(|target| Link { line, target: target.to_owned(), included: true }));
    }
    found
}

/// What a link may name after `#`: the headings of a page, as mdBook and the repository's web view write them.
pub(super) fn anchors(text: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor = kept.collect::<String>().to_lowercase().replace(' ', "-");
        // A heading that comes again gets a number.
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        all.extend(std::iter::once(anchor.clone()).chain(numbered).find(|anchor| !all.contains(anchor)));
    }
    all
}

/// The lines outside of blocks of code, with their numbers from 1 on.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        (!code && !fence).then_some((index + 1, line))
    })
}

/// A line without what is between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_where_they_are_links() {
        let text =
            "[a](one.md) and ![b](two.svg \"title\")\n`[c](no)`\n```sh\n[d](no)\n```\n[e]: three.md\n{{#include 4:5:}}";
        let found: Vec<_> = links(text).into_iter().map(|link| (link.line, link.target, link.included)).collect();
        let expected = [(1, "one.md", false), (1, "two.svg", false), (6, "three.md", false), (7, "4", true)];
        assert_eq!(found, expected.map(|(line, target, included)| (line, target.to_owned(), included)));
    }

    #[test]
    fn headings_are_anchors() {
        let text = "# What's *new*, in `a_b`?\n## Twice\n## Twice\n```\n# no\n```\n#no\n";
        let expected = ["whats-new-in-a_b", "twice", "twice-1"].map(str::to_owned);
        assert_eq!(anchors(text), expected.into());
    }
}
