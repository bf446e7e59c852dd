//! What the tests need besides Rust: found, installed if that is allowed, or named.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use anyhow::{Context, Result, bail};

use crate::shell::{Call, Shell, cargo, has};

/// A Debian package, the program or successful command that shows that it is there, and what needs it.
struct Package {
    name: &'static str,
    program: &'static str,
    needed_for: &'static str,
}

const SSH: &str = "tests of starting over ssh";
const SLURM: &str = "tests of starting in a Slurm cluster";
const BROWSER: &str = "tests of pages in a browser";

const PACKAGES: &[Package] = &[
    Package { name: "openmpi-bin", program: "mpirun.openmpi", needed_for: "tests of the MPI back end" },
    Package { name: "mpich", program: "mpirun.mpich", needed_for: "tests of the MPI back end" },
    Package { name: "iproute2", program: "ip", needed_for: "tests with network namespaces" },
    Package { name: "openssh-server", program: "sshd", needed_for: SSH },
    Package { name: "openssh-client", program: "ssh", needed_for: SSH },
    Package { name: "munge", program: "munged", needed_for: SLURM },
    Package { name: "slurmctld", program: "slurmctld", needed_for: SLURM },
    Package { name: "slurmd", program: "slurmd", needed_for: SLURM },
    Package { name: "slurm-client", program: "srun", needed_for: SLURM },
    Package { name: "g++", program: "g++", needed_for: "fuzzing" },
    Package { name: "python3", program: "python3", needed_for: "tests with Python programs" },
    Package {
        name: "python3-venv",
        program: "python3 -m ensurepip --version",
        needed_for: "tests of the Python package",
    },
    Package { name: "chromium", program: "chromium", needed_for: BROWSER },
    Package { name: "chromium-driver", program: "chromedriver", needed_for: BROWSER },
    Package { name: "groff-base", program: "groff", needed_for: "tests of the manual pages" },
];

const CARGO_DENY: &str = "0.20.2";
const MDBOOK: &str = "0.5.4";

fn is_there(shell: &Shell, program: &str) -> bool {
    match program.split_once(' ') {
        None => has(program),
        Some((program, arguments)) => shell.succeeds(&Call::new(program).args(arguments.split(' '))),
    }
}

/// Makes sure that all packages are there.
pub(crate) fn check(shell: &Shell) -> Result<()> {
    let missing: Vec<&Package> = PACKAGES.iter().filter(|package| !is_there(shell, package.program)).collect();
    if missing.is_empty() {
        let names: Vec<_> = PACKAGES.iter().map(|package| package.name).collect();
        println!("  found: {}", names.join(", "));
        if !is_root(shell) {
            bail!("the tests need root: they make network namespaces and run OpenSSH servers and a Slurm cluster");
        }
        return Ok(());
    }
    for Package { name, program, needed_for } in &missing {
        println!("  missing: {name} (`{program}`), needed for {needed_for}");
    }
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    if has("apt-get") && is_root(shell) {
        return install(shell, &names);
    }
    bail!("please install {0}: on Debian or Ubuntu, `sudo apt-get install {0}`", names.join(" "))
}

/// Installs packages without starting their daemons: the tests start their own.
pub(crate) fn install(shell: &Shell, names: &[&str]) -> Result<()> {
    shell.run(Call::new("apt-get").args(["update", "-q"]))?;
    let policy = Path::new("/usr/sbin/policy-rc.d");
    let ours = !policy.exists();
    if ours {
        fs::write(policy, "#!/bin/sh\nexit 101\n").context("cannot forbid daemons to start")?;
        fs::set_permissions(policy, Permissions::from_mode(0o755))?;
    }
    let install = Call::new("apt-get").args(["install", "-q", "-y", "--no-install-recommends"]).args(names.to_vec());
    let result = shell.run(install.env("DEBIAN_FRONTEND", "noninteractive"));
    if ours {
        fs::remove_file(policy).context("cannot allow daemons to start again")?;
    }
    result
}

fn is_root(shell: &Shell) -> bool {
    shell.read(&Call::new("id").args(["-u"])).is_ok_and(|id| id.trim() == "0")
}

/// How to call cargo-deny.
pub(crate) fn cargo_deny(shell: &Shell) -> Result<Call> {
    tool(shell, "cargo-deny", CARGO_DENY, "")
}

/// How to call mdBook.
pub(crate) fn mdbook(shell: &Shell) -> Result<Call> {
    tool(shell, "mdbook", MDBOOK, "search")
}

/// How to call a program in Rust; built into `target/tools` when it is not installed, once. It runs for a second or so:
/// optimising it would take longer than it saves.
fn tool(shell: &Shell, name: &str, version: &str, features: &str) -> Result<Call> {
    if has(name) {
        return Ok(Call::new(name));
    }
    let folder = shell.root.join("target/tools");
    let program = folder.join("bin").join(name).display().to_string();
    if !shell.succeeds(&Call::new(&program).args(["--version"])) {
        println!("  building {name} {version} into target/tools, once");
        let install = cargo(["install", "--quiet", "--locked", "--debug", "--no-default-features"]);
        let root = folder.display().to_string();
        let which = [name, "--version", version, "--features", features, "--root", &root];
        shell.run(install.args(which).env("CARGO_PROFILE_DEV_DEBUG", "0"))?;
    }
    Ok(Call::new(program))
}
