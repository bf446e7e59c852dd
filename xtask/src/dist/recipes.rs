//! The recipes in `packaging`, checked as far as that goes without Docker, Spack and EasyBuild.

use std::{fs, path::Path};

use anyhow::Result;

use super::{PLACE, VERSION, make};
use crate::{
    packages,
    shell::{Call, Shell, has},
};

const LMOD: &str = "/usr/share/lmod/lmod/init/bash";

/// Installs the archive, loads its module with Lmod, trains with it, and has Python read the recipes that are Python.
pub(crate) fn check(shell: &Shell) -> Result<()> {
    let archive = shell.root.join(PLACE).join(format!("sirtaki-{VERSION}-{}.tar.gz", shell.host()?));
    if !archive.exists() {
        make(shell, false)?;
    }
    if !Path::new(LMOD).exists() {
        packages::install(shell, &["lmod"])?;
    }
    let place = shell.root.join("target/packaging");
    if place.exists() {
        fs::remove_dir_all(&place)?;
    }
    let modules = place.join("modules/sirtaki");
    fs::create_dir_all(&modules)?;
    fs::create_dir_all(place.join("prefix"))?;
    fs::copy(shell.root.join("packaging/sirtaki.lua"), modules.join(format!("{VERSION}.lua")))?;
    let unpack = ["--extract", "--gzip", "--strip-components=1", "--directory", "target/packaging/prefix", "--file"];
    shell.run(Call::new("tar").args(unpack).args([archive.display().to_string()]))?;
    let use_it = format!(
        "set -e; . {LMOD}; module use ../modules; module load sirtaki; cd ../empty; test \"$(command -v sirtaki)\" = \
         \"$SIRTAKI_PREFIX/bin/sirtaki\"; sirtaki train -n 2 --max-steps 20; man -w sirtaki-run"
    );
    fs::create_dir_all(place.join("empty"))?;
    let prefix = place.join("prefix").display().to_string();
    let script = format!("cd '{prefix}'; {use_it}");
    shell.run(Call::new("bash").args(["-c", &script]).env("SIRTAKI_PREFIX", prefix))?;
    for recipe in ["packaging/spack/package.py", "packaging/sirtaki.eb"] {
        let read = format!("import ast; ast.parse(open({recipe:?}).read())");
        shell.run(Call::new("python3").args(["-c", &read]))?;
    }
    build_container(shell)
}

/// Builds the container where there is an engine for it, and says so where there is none.
fn build_container(shell: &Shell) -> Result<()> {
    let engine = ["podman", "docker"]
        .into_iter()
        .find(|engine| has(engine) && shell.succeeds(&Call::new(*engine).args(["info"])));
    match engine {
        Some(engine) => {
            shell.run(Call::new(engine).args(["build", "-f", "packaging/Dockerfile", "-t", "sirtaki", "."]))
        }
        None => {
            println!("  left out: building the container; neither podman nor docker works here");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECIPES: [&str; 5] = ["Dockerfile", "sirtaki.def", "sirtaki.lua", "sirtaki.eb", "spack/package.py"];

    #[test]
    fn recipes_name_this_version_and_the_archive() {
        let shell = Shell::at_root().unwrap();
        for recipe in RECIPES {
            let text = fs::read_to_string(shell.root.join("packaging").join(recipe)).unwrap();
            assert!(text.contains(VERSION), "{recipe} does not name version {VERSION}");
            let versions = text.split(|c: char| !c.is_ascii_digit() && c != '.').filter(|word| word.starts_with("0."));
            for version in versions.map(|word| word.trim_end_matches('.')) {
                assert_eq!(version, VERSION, "{recipe}");
            }
        }
    }
}
