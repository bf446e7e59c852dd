//! What the tests need beside Rust: found, installed where that is allowed, or named.

use anyhow::{Result, bail};

use crate::shell::{Call, Shell, cargo, has};

/// A Debian package, a program that shows it is there, and who needs it.
struct Package {
    name: &'static str,
    program: &'static str,
    needed_for: &'static str,
}

const PACKAGES: &[Package] = &[
    Package { name: "openmpi-bin", program: "mpirun.openmpi", needed_for: "tests of the MPI back end" },
    Package { name: "mpich", program: "mpirun.mpich", needed_for: "tests of the MPI back end" },
    Package { name: "iproute2", program: "ip", needed_for: "tests with network namespaces" },
    Package { name: "g++", program: "g++", needed_for: "fuzzing" },
    Package { name: "groff-base", program: "groff", needed_for: "tests of the manual pages" },
];

const CARGO_DENY: &str = "0.20.2";

/// Makes sure that all packages are there.
pub(crate) fn check(shell: &Shell) -> Result<()> {
    let missing: Vec<&Package> = PACKAGES.iter().filter(|package| !has(package.program)).collect();
    if missing.is_empty() {
        let names: Vec<_> = PACKAGES.iter().map(|package| package.name).collect();
        println!("  found: {}", names.join(", "));
        return Ok(());
    }
    for Package { name, program, needed_for } in &missing {
        println!("  missing: {name} (`{program}`), needed for {needed_for}");
    }
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    if has("apt-get") && is_root(shell) {
        shell.run(Call::new("apt-get").args(["update", "-q"]))?;
        let install = ["install", "-q", "-y", "--no-install-recommends"];
        return shell.run(Call::new("apt-get").args(install).args(names).env("DEBIAN_FRONTEND", "noninteractive"));
    }
    bail!("please install {0}: on Debian or Ubuntu, `sudo apt-get install {0}`", names.join(" "))
}

fn is_root(shell: &Shell) -> bool {
    shell.read(&Call::new("id").args(["-u"])).is_ok_and(|id| id.trim() == "0")
}

/// How to call cargo-deny; built into `target/tools` when it is not installed, which takes a few minutes once.
pub(crate) fn cargo_deny(shell: &Shell) -> Result<Call> {
    if has("cargo-deny") {
        return Ok(Call::new("cargo-deny"));
    }
    let folder = shell.root.join("target/tools");
    let program = folder.join("bin/cargo-deny").display().to_string();
    if !shell.succeeds(&Call::new(&program).args(["--version"])) {
        println!("  building cargo-deny {CARGO_DENY} into target/tools, once");
        let install = cargo(["install", "--quiet", "--locked", "cargo-deny", "--version", CARGO_DENY, "--root"]);
        shell.run(install.args([folder.display().to_string()]))?;
    }
    Ok(Call::new(program))
}
