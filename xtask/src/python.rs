//! The Python package: its wheel, its style, and the tools that are Python packages themselves.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};

use crate::shell::{Call, Shell};

const MATURIN: &str = "maturin==1.16.*";
/// A linker that supports old versions of the C library.
const ZIG: &str = "ziglang==0.17.*";
const RUFF: &str = "ruff==0.17.*";
const MYPY: &str = "mypy==2.4.*";
/// Where these are installed.
const TOOLS: &str = "target/tools/python";
const ZIGBUILD: &str = "cargo-zigbuild==0.24.*";
const TWINE: &str = "twine==7.*";
/// Where the wheel for tests is built.
pub(crate) const WHEELS_FOR_TESTS: &str = "target/python/wheels";
/// The oldest C library that wheels and binaries work with: it is from 2012, and computing centres are slow to upgrade.
pub(crate) const OLDEST_C_LIBRARY: &str = "2.17";
/// The same, as wheels name it.
const OLDEST: &str = "manylinux_2_17";

/// Builds the wheel as users get it, and returns its path.
pub(crate) fn wheel(shell: &Shell) -> Result<String> {
    wheel_for(shell, &shell.host()?, &|call| call)
}

/// Builds the wheel for a kind of machine, with whatever `with` adds to the call, and returns its path.
pub(crate) fn wheel_for(shell: &Shell, target: &str, with: &dyn Fn(Call) -> Call) -> Result<String> {
    let options = ["--release", "--zig", "--compatibility", OLDEST, "--target", target];
    let wheel = build(shell, with(maturin_with_zig(shell)?), "target/wheels", &options)?;
    let size = fs::metadata(&wheel)?.len() as f64 / f64::from(1 << 20);
    println!("  {wheel}: {size:.1} MiB");
    Ok(wheel)
}

/// Style and annotations of the package and its tests. PyTorch is not needed for it.
pub(crate) fn lint(shell: &Shell) -> Result<()> {
    let ruff = installed(shell, "ruff", RUFF)?;
    shell.run(ruff.clone().args(["check", "--no-cache", "python"]))?;
    shell.run(ruff.args(["format", "--no-cache", "--check", "python"]))?;
    let mypy = installed(shell, "mypy", MYPY)?.env("MYPYPATH", "python");
    shell.run(mypy.args(["--config-file", "python/mypy.ini", "--cache-dir", "target/python/mypy", "python/sirtaki"]))
}

/// Builds the wheel for tests, with what other steps have built already, and returns its path.
pub(crate) fn wheel_for_tests(shell: &Shell) -> Result<String> {
    build(shell, maturin(shell)?, WHEELS_FOR_TESTS, &[])
}

/// How to install packages for a Python.
pub(crate) fn pip_install(python: &str) -> Call {
    Call::new(python).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
}

/// Builds a wheel into `folder` and returns its path.
fn build(shell: &Shell, maturin: Call, folder: &str, options: &[&str]) -> Result<String> {
    let path = shell.root.join(folder);
    if path.exists() {
        fs::remove_dir_all(&path)?;
    }
    shell.run(maturin.args(["build", "--quiet", "--out", folder]).args(options.to_vec()))?;
    let entries: Vec<_> = fs::read_dir(&path)?.flatten().map(|entry| entry.file_name()).collect();
    match entries.as_slice() {
        [wheel] => Ok(Path::new(folder).join(wheel).display().to_string()),
        _ => bail!("expected one wheel in {folder}, found {entries:?}"),
    }
}

/// Fetches the wheels of pure Python packages into a folder, without their dependencies.
pub(crate) fn download(shell: &Shell, folder: &Path, packages: &[&str]) -> Result<()> {
    let python = shell.root.join(TOOLS).join("bin/python").display().to_string();
    let pip = Call::new(python).args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    let pure = ["--only-binary=:all:", "--platform=any", "--dest", &folder.display().to_string()];
    shell.run(pip.args(pure).args(packages.to_vec()))
}

/// How to call maturin.
fn maturin(shell: &Shell) -> Result<Call> {
    installed(shell, "maturin", MATURIN)
}

/// How to call a maturin that finds zig.
fn maturin_with_zig(shell: &Shell) -> Result<Call> {
    installed(shell, "ziglang", ZIG)?;
    let bin = shell.root.join(TOOLS).join("bin").display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    Ok(maturin(shell)?.env("PATH", format!("{bin}:{path}")))
}

/// How to build programs with cargo and link them with zig.
pub(crate) fn zigbuild(shell: &Shell) -> Result<Call> {
    installed(shell, "ziglang", ZIG)?;
    installed(shell, "cargo_zigbuild", ZIGBUILD)?;
    let bin = shell.root.join(TOOLS).join("bin").display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    Ok(Call::new(format!("{bin}/cargo-zigbuild")).args(["zigbuild"]).env("PATH", format!("{bin}:{path}")))
}

/// How to call twine, which checks wheels.
pub(crate) fn twine(shell: &Shell) -> Result<Call> {
    installed(shell, "twine", TWINE)
}

/// The folder of a Python package, installed when it is not there.
pub(crate) fn package(shell: &Shell, module: &str, package: &str) -> Result<PathBuf> {
    installed(shell, module, package)?;
    let python = shell.root.join(TOOLS).join("bin/python").display().to_string();
    let place = format!("import {module}; print({module}.__path__[0])");
    Ok(shell.read(&Call::new(python).args(["-c", &place]))?.trim().into())
}

/// How to call a tool that is a Python package, installed when it is not there.
fn installed(shell: &Shell, module: &str, package: &str) -> Result<Call> {
    let python = shell.root.join(TOOLS).join("bin/python").display().to_string();
    if !shell.succeeds(&Call::new(&python).args(["-c", &format!("import {module}")])) {
        println!("  installing {module} into {TOOLS}, once");
        shell.run(Call::new("python3").args(["-m", "venv", TOOLS]))?;
        shell.run(Call::new(&python).args(["-m", "pip", "install", "--quiet", package]))?;
    }
    Ok(Call::new(python).args(["-m", module]))
}
