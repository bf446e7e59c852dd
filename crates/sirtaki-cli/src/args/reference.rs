//! The reference page of all commands, from what `--help` says.

use std::fmt::Write;

use clap::CommandFactory;

use super::Arguments;

const HEAD: &str = "# Commands

Written by `cargo xtask docs` from the commands themselves; change them there. `-h` shows the most important options,
`--help` all; `sirtaki man run` prints a manual page.
";

/// The page `docs/commands.md`.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    // A terminal of any width would be asked otherwise.
    describe(Arguments::command().term_width(80), "sirtaki", &mut page);
    page
}

fn describe(mut command: clap::Command, name: &str, page: &mut String) {
    command = command.bin_name(name).display_name(name);
    let help = command.render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    // Writing to a text cannot fail.
    let _ = write!(page, "\n## `{name}`\n\n```text\n{}\n```\n", help.join("\n").trim_end());
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help") {
        describe(inner.clone().term_width(80), &format!("{name} {}", inner.get_name()), page);
    }
}
