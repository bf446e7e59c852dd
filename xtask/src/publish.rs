//! Whether every crate could be published: what the registry asks for is there, and each can be packed.
//!
//! Packing does not build the packed sources; `cargo xtask test publish-build` does, which takes minutes.

use std::fs;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{
    python,
    shell::{Shell, cargo},
};

/// What people see of a crate before they use it.
const FIELDS: [&str; 6] = ["description", "license", "readme", "keywords", "categories", "rust_version"];

/// Packs all crates without building them.
pub(crate) fn check(shell: &Shell) -> Result<()> {
    let metadata = shell.read(&cargo(["metadata", "--format-version", "1", "--no-deps", "--offline", "--locked"]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    for package in metadata["packages"].as_array().context("cargo names no packages")? {
        // An empty list: not for any registry.
        if package["publish"].as_array().is_none_or(|registries| !registries.is_empty()) {
            complete(package)?;
        }
    }
    let packages = crates(shell)?.into_iter().flat_map(|name| ["--package".to_owned(), name]);
    let pack = cargo(["package", "--quiet", "--offline", "--locked", "--allow-dirty", "--no-verify"]).args(packages);
    shell.run(pack)
}

/// Packs all crates and builds what was packed, as publishing does.
pub(crate) fn rehearse(shell: &Shell) -> Result<()> {
    let packages = crates(shell)?.into_iter().flat_map(|name| ["--package".to_owned(), name]);
    shell.run(cargo(["publish", "--dry-run", "--locked", "--allow-dirty"]).args(packages))
}

/// Whether a registry could show the wheels in a folder.
pub(crate) fn check_wheels(shell: &Shell, folder: &str) -> Result<()> {
    let wheels: Vec<_> = fs::read_dir(shell.root.join(folder))?.flatten().map(|entry| entry.path()).collect();
    let wheels = wheels.iter().map(|path| path.display().to_string());
    shell.run(python::twine(shell)?.args(["check", "--strict"]).args(wheels))
}

fn complete(package: &Value) -> Result<()> {
    let is_empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    let missing: Vec<_> = FIELDS.into_iter().filter(|field| is_empty(&package[*field])).collect();
    if !missing.is_empty() {
        bail!("{}: its Cargo.toml says nothing about {}", package["manifest_path"], missing.join(", "));
    }
    Ok(())
}

fn crates(shell: &Shell) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(shell.root.join("crates"))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_crate_without_keywords_is_named() {
        let mut package = json!({
            "manifest_path": "crates/some/Cargo.toml", "description": "Some", "license": "MIT", "readme": "README.md",
            "keywords": ["one"], "categories": ["science"], "rust_version": "1.95",
        });
        complete(&package).unwrap();
        package["keywords"] = json!([]);
        let error = complete(&package).unwrap_err().to_string();
        assert!(error.contains("crates/some") && error.contains("keywords"), "{error}");
    }
}
