//! The book in `docs`: every page is listed, every link and anchor leads somewhere, and mdBook makes pages of it.
//!
//! Links are checked here and not by a plug-in of mdBook's: the same pages are read on disk and in the repository's web
//! view, together with files outside the book.

mod markdown;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use self::markdown::{Link, anchors, links};
use crate::{
    packages,
    shell::{Call, Shell},
};

const FOLDER: &str = "docs";
const SUMMARY: &str = "docs/SUMMARY.md";
/// Where the pages go. Files outside `docs` that pages link to are copied beside that folder, so links stay as they are.
const BUILT: &str = "target/book";

/// Checks pages and links, and builds the book.
pub(crate) fn check(shell: &Shell) -> Result<()> {
    let pages = Pages::read(shell)?;
    let problems = pages.problems(&|path| shell.root.join(path).exists());
    for problem in &problems {
        println!("  {problem}");
    }
    if !problems.is_empty() {
        bail!("{} problems in the pages", problems.len());
    }
    println!(
        "  {} pages, {} links",
        pages.texts.len(),
        pages.texts.values().map(|text| links(text).len()).sum::<usize>()
    );
    shell.run(reference().args(["--check"]))?;
    build(shell)
}

/// How to write the reference of the Python package.
pub(crate) fn reference() -> Call {
    Call::new("python3").args(["python/tools/reference.py"])
}

/// Makes web pages of the book.
pub(crate) fn build(shell: &Shell) -> Result<()> {
    let mdbook = packages::mdbook(shell)?;
    let built = shell.root.join(BUILT);
    if built.exists() {
        fs::remove_dir_all(&built)?;
    }
    let into = built.join(FOLDER).display().to_string();
    shell.run(mdbook.args(["build", FOLDER, "--dest-dir", &into]))?;
    for file in Pages::read(shell)?.outside() {
        let copy = built.join(&file);
        fs::create_dir_all(copy.parent().context("a file has a folder")?)?;
        fs::copy(shell.root.join(&file), copy).with_context(|| format!("cannot copy {}", file.display()))?;
    }
    println!("  {BUILT}/{FOLDER}/index.html");
    Ok(())
}

/// The texts that people read, by their paths from the root of the repository.
struct Pages {
    texts: BTreeMap<PathBuf, String>,
}

impl Pages {
    fn read(shell: &Shell) -> Result<Self> {
        let list = Call::new("git").args(["ls-files", "--cached", "--others", "--exclude-standard", "*.md"]);
        let list = shell.read(&list)?;
        // A file that is deleted but not yet committed is listed, too.
        let read = |path: &str| Some((PathBuf::from(path), fs::read_to_string(shell.root.join(path)).ok()?));
        Ok(Self { texts: list.lines().filter_map(read).collect() })
    }

    /// What is wrong with pages and links; `exists` says which files there are.
    fn problems(&self, exists: &dyn Fn(&Path) -> bool) -> Vec<String> {
        let mut problems = self.unlisted();
        for (path, text) in &self.texts {
            for link in links(text) {
                if let Some(problem) = self.problem(path, &link, exists) {
                    problems.push(format!("{}:{}: `{}` {problem}", path.display(), link.line, link.target));
                }
            }
        }
        problems
    }

    /// Pages that the table of contents does not have, or has twice.
    fn unlisted(&self) -> Vec<String> {
        let summary = Path::new(SUMMARY);
        let listed: Vec<PathBuf> = self
            .texts
            .get(summary)
            .map_or(Vec::new(), |text| links(text).iter().filter_map(|link| resolve(summary, &link.target)).collect());
        let count = |page: &Path| listed.iter().filter(|listed| *listed == page).count();
        let pages = self.texts.keys().filter(|path| path.starts_with(FOLDER) && *path != summary);
        pages
            .filter(|page| count(page) != 1)
            .map(|page| format!("{}: {SUMMARY} must list it once, and does {} times", page.display(), count(page)))
            .collect()
    }

    /// Why a link leads nowhere.
    fn problem(&self, from: &Path, link: &Link, exists: &dyn Fn(&Path) -> bool) -> Option<String> {
        let target = link.target.as_str();
        if is_elsewhere(target) {
            return None;
        }
        let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
        let Some(path) = (if file.is_empty() { Some(from.to_owned()) } else { resolve(from, file) }) else {
            return Some("leaves the repository".into());
        };
        if !exists(&path) {
            return Some(format!("leads to {}, which does not exist", path.display()));
        }
        let is_page = path.extension().is_some_and(|extension| extension == "md");
        if is_page && !link.included && from.starts_with(FOLDER) && !path.starts_with(FOLDER) {
            return Some("is a page outside the book: say its name instead of a link".into());
        }
        let anchor = anchor?;
        let known = self.texts.get(&path).map(|text| anchors(text)).unwrap_or_default();
        (!known.contains(anchor)).then(|| format!("leads to no heading of {}", path.display()))
    }

    /// Files outside the book that its pages link to.
    fn outside(&self) -> BTreeSet<PathBuf> {
        let pages = self.texts.iter().filter(|(path, _)| path.starts_with(FOLDER));
        let targets = pages.flat_map(|(path, text)| {
            let near = links(text).into_iter().filter(|link| !link.included && !is_elsewhere(&link.target));
            near.filter_map(|link| resolve(path, link.target.split('#').next()?)).collect::<Vec<_>>()
        });
        targets.filter(|path| !path.starts_with(FOLDER)).collect()
    }
}

/// Whether a link leads to another site.
fn is_elsewhere(target: &str) -> bool {
    ["http://", "https://", "mailto:"].iter().any(|scheme| target.starts_with(scheme))
}

/// The path from the root of what a page's relative link means; none if it is outside.
fn resolve(from: &Path, target: &str) -> Option<PathBuf> {
    let mut path = from.parent()?.to_owned();
    for part in Path::new(target).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if path.pop() => {}
            Component::Normal(name) => path.push(name),
            _ => return None,
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(texts: &[(&str, &str)]) -> Pages {
        Pages { texts: texts.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect() }
    }

    fn problems(texts: &[(&str, &str)]) -> Vec<String> {
        let pages = pages(texts);
        pages.problems(&|path| pages.texts.contains_key(path) || path == Path::new("examples/a.py"))
    }

    #[test]
    fn good_pages_pass() {
        let summary = ("docs/SUMMARY.md", "# Summary\n\n- [A](a.md)\n  - [B](how/b.md)\n");
        let a = ("docs/a.md", "# A\n[b](how/b.md#two-words) [here](#a) [far](https://x.y/#z) [e](../examples/a.py)");
        let b = ("docs/how/b.md", "# B\n## Two words\n[a](../a.md)\n`[no](link)`\n```\n[nor](this)\n```\n");
        let readme = ("README.md", "[a](docs/a.md#a)");
        assert_eq!(problems(&[summary, a, b, readme]), Vec::<String>::new());
        assert_eq!(pages(&[summary, a, b]).outside(), [PathBuf::from("examples/a.py")].into());
    }

    #[test]
    fn what_leads_nowhere_is_named() {
        let summary = ("docs/SUMMARY.md", "[A](a.md)");
        let found = |text: &str| problems(&[summary, ("docs/a.md", text), ("README.md", "# R")]).join("\n");
        assert!(found("\n[x](b.md)").contains("docs/a.md:2: `b.md` leads to docs/b.md, which does not exist"));
        assert!(found("[x](#none)").contains("no heading of docs/a.md"));
        assert!(found("[x](../../x)").contains("leaves the repository"));
        assert!(found("[x](../README.md)").contains("outside the book"));
        let unlisted = problems(&[summary, ("docs/a.md", ""), ("docs/b.md", "")]).join("\n");
        assert!(unlisted.contains("docs/b.md: docs/SUMMARY.md must list it once, and does 0 times"), "{unlisted}");
    }
}
