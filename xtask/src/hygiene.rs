//! House rules that no other tool checks.

use std::{fs, path::Path};

use anyhow::{Result, bail};

use crate::shell::{Call, Shell};

/// Longest source file; a longer one has more than one concern.
const LINES: usize = 400;

/// Checks every source file that git knows or would add.
pub(crate) fn check(shell: &Shell) -> Result<()> {
    let list =
        shell.read(&Call::new("git").args(["ls-files", "--cached", "--others", "--exclude-standard", "*.rs"]))?;
    let mut problems = Vec::new();
    let mut count = 0;
    for path in list.lines() {
        // A file that is deleted but not yet committed is listed too.
        if let Ok(text) = fs::read_to_string(shell.root.join(path)) {
            problems.extend(examine(Path::new(path), &text));
            count += 1;
        }
    }
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
}
