//! The same as Markdown: words and tables, for a merge request or a laboratory notebook.

use super::{
    document::{Document, READING, Table},
    words::unprintable,
};

/// All of it.
pub(crate) fn write(document: &Document) -> String {
    let mut lines = vec![format!("# {}", text(&document.title)), String::new(), text(&document.sentence)];
    lines.extend([String::new(), text(&document.census), String::new()]);
    lines.extend(document.keys.iter().map(|key| {
        let detail = if key.detail.is_empty() { String::new() } else { format!(" ({})", text(&key.detail)) };
        format!("- {}: **{}**{detail}", text(key.name), text(&key.value))
    }));
    if !document.notes.is_empty() {
        lines.extend([String::new(), "## To keep in mind".into(), String::new()]);
        lines.extend(document.notes.iter().map(|note| format!("- {}", text(note))));
    }
    document.tables.iter().for_each(|one| table(&mut lines, one));
    lines.extend([String::new(), "## How to read this".into(), String::new()]);
    lines.extend(READING.iter().map(|line| format!("- {line}")));
    lines.push(String::new());
    lines.join("\n")
}

fn table(lines: &mut Vec<String>, table: &Table) {
    lines.extend([String::new(), format!("## {}", text(&table.title)), String::new()]);
    if !table.note.is_empty() {
        lines.extend([text(&table.note), String::new()]);
    }
    let names = table
        .head
        .iter()
        .map(|name| name.trim_start_matches('#').to_owned())
        .chain(table.more.iter().map(|name| text(name)));
    lines.push(format!("| {} |", names.collect::<Vec<_>>().join(" | ")));
    let rule = |name: &&str| if name.starts_with('#') { "--:" } else { "---" };
    let rules = table.head.iter().map(rule).chain(table.more.iter().map(|_| "---"));
    lines.push(format!("|{}|", rules.collect::<Vec<_>>().join("|")));
    for row in &table.rows {
        let mark = if row.marked && !table.more.is_empty() { "≠ " } else { "" };
        let cells: Vec<String> = row.cells.iter().map(|cell| text(cell)).collect();
        lines.push(format!("| {mark}{} |", cells.join(" | ")));
    }
}

/// Text without special meaning in Markdown.
fn text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' => escaped.extend(['\\', letter]),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '\n' | '\t' => escaped.push(' '),
            letter if unprintable(letter) => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_nothing_but_themselves() {
        assert_eq!(text("a|b_c <script> [x](y)\n"), "a\\|b\\_c &lt;script&gt; \\[x\\](y) ");
    }
}
