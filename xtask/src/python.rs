//! The Python package: its wheel, and its tests in an environment that has nothing but what `pip install` brings.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};

use crate::shell::{Call, Shell, has};

const MATURIN: &str = "maturin==1.16.*";
/// What the tests need beside the wheel and PyTorch.
const NEEDS: [&str; 2] = ["pytest", "numpy"];
/// Ranks that each test runs on.
const RANKS: [&str; 3] = ["1", "2", "4"];
/// Names a Python that has PyTorch, so that it need not be downloaded.
const WITH_TORCH: &str = "SIRTAKI_BENCH_PYTHON";

/// Builds the wheel as users get it, and returns its path.
pub(crate) fn wheel(shell: &Shell) -> Result<String> {
    let wheel = build(shell, "target/wheels", &["--release"])?;
    let size = fs::metadata(&wheel)?.len() as f64 / f64::from(1 << 20);
    println!("  {wheel}: {size:.1} MiB");
    Ok(wheel)
}

/// Builds the wheel with what the other tests have built already, installs it, and runs its tests.
pub(crate) fn test(shell: &Shell) -> Result<()> {
    let wheel = build(shell, "target/python/wheels", &[])?;
    let folder = "target/python/tests";
    shell.run(Call::new("python3").args(["-m", "venv", "--clear", folder]))?;
    let python = format!("{folder}/bin/python");
    let torch = borrow_torch(shell, &python)?;
    let pip = Call::new(&python).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    shell.run(pip.args([wheel.as_str()]).args(NEEDS).args(torch.then_some("torch")))?;
    let pytest = ["-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider"];
    let sirtaki = format!("{folder}/bin/sirtaki");
    for ranks in RANKS {
        let run = Call::new(&sirtaki).args(["run", "-n", ranks, "--oversubscribe", "--", &python]);
        shell.run(run.args(pytest).args(["python/tests/ranks"]))?;
    }
    let examples = Call::new(&python).args(pytest).args(["--doctest-modules", "--pyargs", "sirtaki"]);
    shell.run(examples)?;
    shell.run(Call::new(&python).args(pytest).args(["python/tests/test_torch_jobs.py"]))
}

/// Builds a wheel into `folder` and returns its path.
fn build(shell: &Shell, folder: &str, options: &[&str]) -> Result<String> {
    let maturin = maturin(shell)?;
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

/// How to call maturin; installed into `target/tools` when it is not there.
fn maturin(shell: &Shell) -> Result<Call> {
    if has("maturin") {
        return Ok(Call::new("maturin"));
    }
    let program = shell.root.join("target/tools/python/bin/maturin").display().to_string();
    if !shell.succeeds(&Call::new(&program).args(["--version"])) {
        println!("  installing maturin into target/tools, once");
        shell.run(Call::new("python3").args(["-m", "venv", "target/tools/python"]))?;
        let pip = Call::new("target/tools/python/bin/python").args(["-m", "pip", "install", "--quiet", MATURIN]);
        shell.run(pip)?;
    }
    Ok(Call::new(program))
}

/// Lets a new environment see the PyTorch of another; says whether it still has to be installed.
fn borrow_torch(shell: &Shell, python: &str) -> Result<bool> {
    let Ok(other) = std::env::var(WITH_TORCH) else { return Ok(true) };
    let place = "import torch, os; print(os.path.dirname(torch.__path__[0]))";
    let Ok(packages) = shell.read(&Call::new(other).args(["-c", place])) else { return Ok(true) };
    let own = shell.read(&Call::new(python).args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]))?;
    let file = Path::new(own.trim()).join("torch.pth");
    fs::write(&file, packages).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(false)
}
