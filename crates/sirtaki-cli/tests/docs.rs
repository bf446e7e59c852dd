//! What the pages say of commands, options, variables and messages exists.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use clap::CommandFactory;
use sirtaki_cli::{
    args::{Arguments, habits, reference},
    env,
};

/// Options of other programs that pages mention by themselves.
const FOREIGN: &[&str] = &[
    "--blacklist-cooldown-range",
    "--cleanenv",
    "--config-file",
    "--cpus-per-task",
    "--cycle-time-ms",
    "--gloo",
    "--gpus-per-node",
    "--gres",
    "--host-discovery-script",
    "--max-np",
    "--mem",
    "--min-np",
    "--nproc-per-node",
    "--ntasks-per-node",
    "--nv",
    "--signal=B:USR1@120",
    "--slots-per-host",
];
/// Names in pages that begin like our variables and are none: an event of a timeline, and what only benchmarks read.
const NO_VARIABLES: &[&str] = &["SIRTAKI_ALLREDUCE", "SIRTAKI_BENCH_HOROVOD", "SIRTAKI_BENCH_PYTHON", "SIRTAKI_"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All pages of the book, and those of the repository, with their names.
fn pages() -> Vec<(String, String)> {
    let mut folders = vec![root().join("docs")];
    let mut files = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root().join(name)).to_vec();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match path.extension() {
                None if path.is_dir() => folders.push(path),
                Some(extension) if extension == "md" => files.push(path),
                _ => {}
            }
        }
    }
    let name = |path: &Path| path.strip_prefix(root()).unwrap().display().to_string();
    files.iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
}

/// The blocks of code of a page: what follows the backticks, and the text.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    page.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n')).collect()
}

/// The commands of `sirtaki` in a block for a shell, as one line each.
fn typed(block: &str) -> Vec<String> {
    let joined = block.replace("\\\n", " ");
    let lines = joined.lines().map(|line| line.trim().trim_start_matches("$ "));
    lines.filter(|line| line.starts_with("sirtaki ") || line.contains(" sirtaki ")).map(str::to_owned).collect()
}

/// The words of the command of `sirtaki` in a line, as a shell would give them to it: up to a comment, a pipe or the like.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for character in line.chars() {
        match (character, quote) {
            (end, Some(open)) if end == open => quote = None,
            ('"' | '\'', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            ('#', None) if word.is_none() => break,
            ('|' | '>' | '<' | ';' | '&' | ')', None) => break,
            (' ', None) => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    let start = words.iter().position(|word| word == "sirtaki").unwrap_or(words.len());
    words.split_off(start)
}

/// How the command refuses these words, if it does.
fn refusal(words: &[String]) -> Option<String> {
    let words: Vec<OsString> = words.iter().map(Into::into).collect();
    match habits::understand(words, &Arguments::command(), &|word| word == "python") {
        Err(advice) => Some(advice.to_string()),
        Ok(words) => match Arguments::read(words) {
            Err(error) if error.use_stderr() => Some(error.to_string()),
            _ => None,
        },
    }
}

#[test]
fn the_page_of_commands_is_current() {
    let path = root().join("docs/commands.md");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, reference::page()).unwrap();
    }
    let page = fs::read_to_string(path).unwrap_or_default();
    assert_eq!(page, reference::page(), "docs/commands.md is old; write it with `cargo xtask docs`");
}

#[test]
fn every_command_in_a_block_can_be_typed() {
    let mut count = 0;
    for (name, page) in pages() {
        let shells = blocks(&page).into_iter().filter(|(kind, _)| matches!(*kind, "sh" | "bash" | "console"));
        for line in shells.flat_map(|(_, block)| typed(block)) {
            let words = words(&line);
            if words.len() < 2 {
                continue;
            }
            let refused = refusal(&words);
            assert!(refused.is_none(), "{name}: `{line}` is read as {words:?}: {}", refused.unwrap_or_default());
            count += 1;
        }
    }
    assert!(count > 100, "{count}");
}

/// The text between single backticks, outside of blocks.
fn spans(page: &str) -> Vec<String> {
    let prose: String = page.split("```").step_by(2).collect();
    prose
        .split("\n\n")
        .flat_map(|part| part.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// Whether a command, or one below it, has this option.
fn has(command: &clap::Command, option: &str) -> bool {
    command.get_arguments().any(|known| known.get_long_and_visible_aliases().unwrap_or_default().contains(&option))
        || matches!(option, "help" | "version")
        || command.get_subcommands().any(|inner| has(inner, option))
}

#[test]
fn every_option_exists() {
    let all = Arguments::command();
    for (name, page) in pages() {
        for span in spans(&page) {
            let mut words = span.split_whitespace();
            let first = words.next().unwrap_or_default();
            let command = match first {
                "sirtaki" => {
                    let called = words.next().unwrap_or_default();
                    let known = all.find_subcommand(called);
                    let is_word = called.chars().all(|letter| letter.is_ascii_lowercase()) && !called.is_empty();
                    assert!(known.is_some() || !is_word || first == span, "{name}: `{span}`: no such command");
                    known.unwrap_or(&all)
                }
                _ if first.starts_with("--") && !FOREIGN.contains(&first) => &all,
                _ => continue,
            };
            let ours = span.split_whitespace().take_while(|word| *word != "--" && *word != "|");
            for option in ours.filter_map(|word| word.strip_prefix("--")) {
                let option = option.split(['=', ',', ']', ';']).next().unwrap_or_default();
                assert!(has(command, option), "{name}: `{span}`: there is no option --{option}");
            }
        }
    }
}

#[test]
fn every_variable_is_in_the_table() {
    let table = env::page();
    for (name, page) in pages() {
        for rest in page.split("SIRTAKI_").skip(1) {
            let length =
                rest.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')).unwrap_or(rest.len());
            let variable = format!("SIRTAKI_{}", &rest[..length]);
            let known = table.contains(&format!("`{variable}`")) || NO_VARIABLES.contains(&variable.as_str());
            assert!(known, "{name}: {variable} is not in docs/environment.md");
        }
    }
}

/// The sources with texts that go over several lines joined.
fn sources() -> Vec<String> {
    let mut folders: Vec<PathBuf> = ["crates", "python/sirtaki"].map(|name| root().join(name)).into();
    let mut texts = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "tests" {
                folders.push(path);
            } else if (name.ends_with(".rs") && !name.ends_with("tests.rs")) || name.ends_with(".py") {
                let text = fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]\nmod").next().unwrap_or_default();
                texts.push(joined(code));
            }
        }
    }
    texts
}

/// `"one \` and `two"` on the next line are `"one two"`.
fn joined(code: &str) -> String {
    let mut lines = code.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |text, line| text + line.trim_start())
}

/// Whether the parts of a message follow each other closely in one of the sources.
fn is_said(message: &str, sources: &[String]) -> bool {
    let parts: Vec<&str> = message.split('…').map(str::trim).filter(|part| !part.is_empty()).collect();
    let follows = |text: &str| {
        let mut rest = text;
        for part in &parts[1..] {
            let near: String = rest.chars().take(300).collect();
            let Some(at) = near.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
        true
    };
    sources.iter().any(|text| text.match_indices(parts[0]).any(|(at, part)| follows(&text[at + part.len()..])))
}

#[test]
fn every_message_is_one_that_is_said() {
    let page = fs::read_to_string(root().join("docs/trouble.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let messages: Vec<&str> = rows.map(|(message, _)| message).collect();
    assert!(messages.len() > 25, "{messages:?}");
    let sources = sources();
    let unknown: Vec<_> = messages.iter().filter(|message| !is_said(message, &sources)).collect();
    assert!(unknown.is_empty(), "nobody says {unknown:#?}");
    assert!(!is_said("rank … is no longer with us", &sources));
}
