//! The Python package: its wheel, and its tests in an environment that has only what `pip install` installs.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::shell::{Call, Shell};

const MATURIN: &str = "maturin==1.16.*";
/// A linker that supports old versions of the C library.
const ZIG: &str = "ziglang==0.17.*";
const RUFF: &str = "ruff==0.17.*";
const MYPY: &str = "mypy==2.4.*";
/// Where these are installed.
const TOOLS: &str = "target/tools/python";
/// The oldest system that wheels are for: its C library is from 2012, and computing centres are slow to upgrade.
const OLDEST: &str = "manylinux_2_17";
/// Where PyTorch and the following are installed, once.
const ENVIRONMENT: &str = "target/python/environment";
/// What the tests need besides the wheel and PyTorch.
const NEEDS: [&str; 8] = ["accelerate", "cloudpickle", "mpi4py", "mypy", "numpy", "pytest", "selenium", "viztracer"];
const PYTEST: [&str; 7] = ["-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider"];
/// Tests that one process runs.
const ALONE: [&str; 9] = [
    "python/tests/test_horovodrun.py",
    "python/tests/test_torch_jobs.py",
    "python/tests/test_distributed_jobs.py",
    "python/tests/test_distributed_hosts.py",
    "python/tests/test_surface.py",
    "python/tests/test_types.py",
    "python/tests/test_examples.py",
    "python/tests/test_perfetto.py",
    "python/tests/test_mpi.py",
];
/// The oldest PyTorch that is supported, and the last one before hooks on accumulated gradients.
const OLDER: [&str; 2] = ["1.13.1", "2.0.1"];
/// Ranks that each test runs on.
const RANKS: [&str; 3] = ["1", "2", "4"];
/// Names a Python that has PyTorch, so that PyTorch need not be downloaded, and tells tests which one to use.
pub(crate) const WITH_TORCH: &str = "SIRTAKI_BENCH_PYTHON";

/// Builds the wheel as users get it, and returns its path.
pub(crate) fn wheel(shell: &Shell) -> Result<String> {
    let options = ["--release", "--zig", "--compatibility", OLDEST, "--target", &shell.host()?];
    let wheel = build(shell, maturin_with_zig(shell)?, "target/wheels", &options)?;
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

/// Builds the wheel with what the other tests have built already, installs it, and runs its tests.
pub(crate) fn test(shell: &Shell) -> Result<()> {
    let folder = "target/python/tests";
    let python = install(shell, folder, &environment(shell)?, &[])?;
    on_ranks(shell, folder)?;
    let examples = Call::new(&python).args(PYTEST).args(["--doctest-modules", "--pyargs", "sirtaki"]);
    shell.run(examples)?;
    shell.run(Call::new(&python).args(PYTEST).args(ALONE))
}

/// The same on ranks with older versions of PyTorch, each installed once and kept.
pub(crate) fn test_older(shell: &Shell) -> Result<()> {
    for version in OLDER {
        let kept = format!("target/python/torch-{version}");
        let torch = format!("{kept}/bin/python");
        if !shell.succeeds(&Call::new(&torch).args(["-c", "import torch"])) {
            println!("  installing PyTorch {version} into {kept}, once");
            shell.run(Call::new("python3").args(["-m", "venv", "--clear", &kept]))?;
            // pip's cache would take the same space again.
            let pip = Call::new(&torch).args(["-m", "pip", "install", "--quiet", "--no-cache-dir"]);
            shell.run(pip.args([&format!("torch=={version}"), "numpy<2", "setuptools"]))?;
        }
        let folder = format!("target/python/tests-{version}");
        install(shell, &folder, &torch, &["pytest"])?;
        on_ranks(shell, &folder)?;
        fs::remove_dir_all(shell.root.join(folder))?;
    }
    Ok(())
}

/// A Python that has PyTorch and everything else that tests need, but not the wheel. It is made once and kept: PyTorch is a
/// download of 3 GB, unless [`WITH_TORCH`] names a Python that has it.
pub(crate) fn environment(shell: &Shell) -> Result<String> {
    let python = shell.root.join(ENVIRONMENT).join("bin/python").display().to_string();
    let imports = format!("import torch, {}", NEEDS.join(", "));
    if !shell.succeeds(&Call::new(&python).args(["-c", &imports])) {
        println!("  installing PyTorch and {} into {ENVIRONMENT}, once", NEEDS.join(", "));
        shell.run(Call::new("python3").args(["-m", "venv", "--clear", ENVIRONMENT]))?;
        let given = std::env::var(WITH_TORCH).ok();
        let missing = match &given {
            Some(other) => !borrow_packages(shell, &python, other)?,
            None => true,
        };
        shell.run(pip_install(&python).args(NEEDS).args(missing.then_some("torch")))?;
    }
    Ok(python)
}

/// Makes an environment with the wheel, the packages of `other`, and whatever else is needed; returns its Python.
fn install(shell: &Shell, folder: &str, other: &str, needs: &[&str]) -> Result<String> {
    let wheel = build(shell, maturin(shell)?, "target/python/wheels", &[])?;
    shell.run(Call::new("python3").args(["-m", "venv", "--clear", folder]))?;
    let python = format!("{folder}/bin/python");
    if !borrow_packages(shell, &python, other)? {
        bail!("{other} has no PyTorch\nhint: remove its environment and try again");
    }
    shell.run(pip_install(&python).args([wheel.as_str()]).args(needs.to_vec()))?;
    Ok(python)
}

fn pip_install(python: &str) -> Call {
    Call::new(python).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
}

/// Runs the tests that several ranks run together.
fn on_ranks(shell: &Shell, folder: &str) -> Result<()> {
    let [sirtaki, python] = ["sirtaki", "python"].map(|program| format!("{folder}/bin/{program}"));
    for ranks in RANKS {
        let run = Call::new(&sirtaki).args(["run", "-n", ranks, "--oversubscribe", "--", &python]);
        shell.run(run.args(PYTEST).args(["python/tests/ranks"]))?;
    }
    Ok(())
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

/// Lets a new environment see the packages of another that has PyTorch; returns whether it has.
fn borrow_packages(shell: &Shell, python: &str, other: &str) -> Result<bool> {
    let place = "import os, sysconfig, torch; print(sysconfig.get_path('purelib')); \
                 print(os.path.dirname(torch.__path__[0]))";
    let Ok(packages) = shell.read(&Call::new(other).args(["-c", place])) else { return Ok(false) };
    let own = shell.read(&Call::new(python).args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]))?;
    let file = Path::new(own.trim()).join("borrowed.pth");
    fs::write(&file, packages).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(true)
}
