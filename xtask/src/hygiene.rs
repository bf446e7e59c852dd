//! House rules that no other tool checks.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};

use crate::shell::{Call, Shell};

/// Longest source file; a longer one has more than one concern.
const LINES: usize = 400;

/// Checks every source file that git knows or would add.
pub(crate) fn check(shell: &Shell) -> Result<()> {
    let list =
        shell.read(&Call::new("git").args(["ls-files", "--cached", "--others", "--exclude-standard", "*.rs"]))?;
    // A file that is deleted but not yet committed is listed too.
    let read = |path: &str| Some((PathBuf::from(path), fs::read_to_string(shell.root.join(path)).ok()?));
    let files: Vec<(PathBuf, String)> = list.lines().filter_map(read).collect();
    let mut problems: Vec<String> = files.iter().flat_map(|(path, text)| examine(path, text)).collect();
    problems.extend(same_names(&files));
    let count = files.len();
    for problem in &problems {
        println!("  {problem}");
    }
    if !problems.is_empty() {
        bail!("{} problems in {count} files", problems.len());
    }
    println!("  {count} files");
    Ok(())
}

/// What is wrong with one file.
fn examine(path: &Path, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let (shown, lines) = (path.display(), text.lines().count());
    if lines > LINES {
        problems.push(format!("{shown}: {lines} lines, at most {LINES}: split it by concern"));
    }
    let tests = path.file_name().is_some_and(|name| name.to_string_lossy().ends_with("tests.rs"));
    if !tests && !text.starts_with("//!") {
        problems.push(format!("{shown}:1: starts without `//!` saying what it is and why this way"));
    }
    for (number, line) in text.lines().enumerate() {
        // Written in two parts, so that this file passes its own check.
        for word in [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:")] {
            if line.contains(word) {
                problems.push(format!("{shown}:{}: `{word}`: do it, or open an issue", number + 1));
            }
        }
    }
    problems
}

/// Types of one crate that share a name and can be seen from outside their module. Two in one file are versions of the
/// same type, for different targets.
fn same_names(files: &[(PathBuf, String)]) -> Vec<String> {
    let mut places: BTreeMap<(&Path, &str), Vec<&Path>> = BTreeMap::new();
    for (path, text) in files {
        let Some(crate_root) = path.ancestors().find(|folder| folder.ends_with("src")) else { continue };
        for name in text.lines().filter_map(public_type) {
            let places = places.entry((crate_root, name)).or_default();
            if !places.contains(&path.as_path()) {
                places.push(path);
            }
        }
    }
    let shared = places.into_iter().filter(|(_, places)| places.len() > 1);
    let problem = |((_, name), places): ((&Path, &str), Vec<&Path>)| {
        let places: Vec<String> = places.iter().map(|path| path.display().to_string()).collect();
        format!("{}: `{name}` is the name of several types: give each its own", places.join(", "))
    };
    shared.map(problem).collect()
}

/// The name of the type that a line makes visible outside its module.
fn public_type(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(')')?.1,
        None => rest,
    };
    let (keyword, rest) = rest.trim_start().split_once(' ')?;
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (matches!(keyword, "struct" | "enum" | "trait" | "type" | "union") && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_is_noticed() {
        let path = Path::new("a.rs");
        assert!(examine(path, "//! What.\nfn a() {}\n").is_empty());
        assert_eq!(examine(path, "fn a() {}\n").len(), 1);
        assert!(examine(Path::new("a/tests.rs"), "fn a() {}\n").is_empty());
        assert_eq!(examine(path, &format!("//! What.\n// {}: later\n", concat!("TO", "DO"))).len(), 1);
        assert_eq!(examine(path, &format!("//! What.\n{}", "\n".repeat(LINES))).len(), 1);
    }

    #[test]
    fn types_of_one_name_are_noticed() {
        let file = |path: &str, text: &str| (PathBuf::from(path), text.to_owned());
        let problems = |other: &str, text: &str| {
            same_names(&[file("crates/a/src/one.rs", "pub struct Job {\n"), file(other, text)]).len()
        };
        for text in ["pub enum Job {", "    pub(crate) type Job<'a> = u8;", "pub(super) trait Job: Send {"] {
            assert_eq!(problems("crates/a/src/deep/two.rs", text), 1, "{text}");
            assert_eq!(problems("crates/b/src/two.rs", text), 0, "{text}");
        }
        for text in ["struct Job {", "pub struct Jobs;", "pub fn Job() {", "// pub struct Job"] {
            assert_eq!(problems("crates/a/src/two.rs", text), 0, "{text}");
        }
        let versions = file("crates/a/src/one.rs", "pub struct Bell;\npub struct Bell;\n");
        assert!(same_names(&[versions]).is_empty());
    }
}
