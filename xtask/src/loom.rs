//! Model checking of the shared-memory synchronisation.
//!
//! Models are modules under `#[cfg(all(test, loom))]`. The other tests of the crate use real memory and real sleeping,
//! which do not exist under loom, so only the models are run: they are found by that attribute.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};

use crate::shell::{Shell, cargo};

const PACKAGES: [&str; 2] = ["sirtaki-comm", "sirtaki-engine"];
const ATTRIBUTE: &str = "#[cfg(all(test, loom))]";

/// Runs all models.
pub(crate) fn check(shell: &Shell) -> Result<()> {
    PACKAGES.into_iter().try_for_each(|package| check_package(shell, package))
}

fn check_package(shell: &Shell, package: &str) -> Result<()> {
    let sources = shell.root.join("crates").join(package).join("src");
    let mut models = Vec::new();
    find(&sources, "", &mut models)?;
    if models.is_empty() {
        bail!("no module under `{ATTRIBUTE}` in {}", sources.display());
    }
    let test = cargo(["test", "--package", package, "--lib", "--release", "--locked", "--target-dir"]);
    let test = test.args(["target/loom", "--"]).args(models);
    // Optimised, but without the slow parts of a release: the models are small.
    let test = test.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    shell.run(test.env("RUSTFLAGS", "--cfg loom").env("LOOM_MAX_PREEMPTIONS", "3"))
}

/// Collects the paths of modules with models below `folder`, whose own path is `module`.
fn find(folder: &Path, module: &str, models: &mut Vec<String>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let here = if matches!(name.as_str(), "mod" | "lib") { module.into() } else { format!("{module}{name}::") };
        if path.is_dir() {
            find(&path, &here, models)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            models.extend(in_file(&fs::read_to_string(&path)?).into_iter().map(|model| format!("{here}{model}::")));
        }
    }
    Ok(())
}

/// The names of modules that follow the attribute.
fn in_file(text: &str) -> Vec<&str> {
    let modules = text.split(ATTRIBUTE).skip(1);
    modules.filter_map(|rest| rest.split_once("mod ")?.1.split([' ', '{', ';']).next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_found_by_their_attribute() {
        let text = format!("#[cfg(test)]\nmod tests {{}}\n{ATTRIBUTE}\nmod model {{\n}}\n{ATTRIBUTE}\nmod other;\n");
        assert_eq!(in_file(&text), ["model", "other"]);
    }
}
