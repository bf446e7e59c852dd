//! The bill of materials of a release, in the format CycloneDX: every package that command and wheel are made of.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::shell::{Shell, cargo};

/// The packages that a release is built from.
const ROOTS: [&str; 2] = ["sirtaki-cli", "sirtaki-python"];

/// The bill as text. It contains no time and no random number, so that the same sources give the same bill.
pub(crate) fn of_materials(shell: &Shell) -> Result<String> {
    let host = shell.host()?;
    let metadata = cargo(["metadata", "--format-version", "1", "--locked", "--filter-platform", &host]);
    let bill = from_metadata(&serde_json::from_str(&shell.read(&metadata)?)?)?;
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

fn from_metadata(metadata: &Value) -> Result<Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|package| (text(&package["id"]), package)).collect();
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|node| (text(&node["id"]), node)).collect();
    let is_root = |package: &Value| ROOTS.contains(&text(&package["name"]).as_str());
    let mut waiting: Vec<String> =
        packages.iter().filter(|(_, package)| is_root(package)).map(|(id, _)| id.clone()).collect();
    let mut used = BTreeSet::new();
    let mut uses = Vec::new();
    while let Some(id) = waiting.pop() {
        if !used.insert(id.clone()) {
            continue;
        }
        let node = nodes.get(&id).with_context(|| format!("cargo names no dependencies of {id}"))?;
        let mut next: Vec<String> =
            list(&node["deps"]).iter().filter(|dep| is_built_in(dep)).map(|dep| text(&dep["pkg"])).collect();
        next.sort();
        uses.push(json!({ "ref": reference(&packages[&id]), "dependsOn": next.iter().map(|id| reference(&packages[id])).collect::<Vec<_>>() }));
        waiting.extend(next);
    }
    uses.sort_by_key(|entry| text(&entry["ref"]));
    let components: Vec<Value> = used.iter().map(|id| component(&packages[id])).collect();
    Ok(
        json!({ "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": components, "dependencies": uses }),
    )
}

/// Whether a dependency ends up in the result, unlike those of tests and build scripts.
fn is_built_in(dependency: &Value) -> bool {
    dependency["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
}

fn component(package: &Value) -> Value {
    json!({
        "type": "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(package),
        "licenses": [{ "expression": package["license"] }],
    })
}

fn reference(package: &Value) -> String {
    format!("pkg:cargo/{}@{}", text(&package["name"]), text(&package["version"]))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_tests_need_is_not_in_the_bill() {
        let package = |name: &str| json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT" });
        let needs = |name: &str, kind: Option<&str>| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [package("sirtaki-cli"), package("used"), package("tested"), package("other")],
            "resolve": { "nodes": [
                { "id": "sirtaki-cli", "deps": [needs("used", None), needs("tested", Some("dev"))] },
                { "id": "used", "deps": [] }, { "id": "tested", "deps": [] }, { "id": "other", "deps": [] },
            ] },
        });
        let bill = from_metadata(&metadata).unwrap();
        let names: Vec<_> = bill["components"].as_array().unwrap().iter().map(|part| text(&part["name"])).collect();
        assert_eq!(names, ["sirtaki-cli", "used"]);
        assert_eq!(bill["dependencies"][0]["dependsOn"], json!(["pkg:cargo/used@1.0.0"]));
        assert_eq!(bill["components"][1]["licenses"][0]["expression"], "MIT");
    }
}
