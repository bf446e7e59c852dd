//! Figures of frameworks other than PyTorch, measured by Python programs in `benches`.

use std::fs;

use anyhow::{Context, Result};

use crate::{
    python,
    shell::{Call, Shell},
};

/// Names a Python that has TensorFlow, so that it need not be downloaded.
const WITH_TENSORFLOW: &str = "SIRTAKI_BENCH_TENSORFLOW";
const FOLDER: &str = "target/python/bench-tensorflow";
/// What the benchmark imports, and the package of each.
const NEEDS: [(&str, &str); 3] = [("tensorflow", "tensorflow-cpu"), ("keras", "keras"), ("tf_keras", "tf_keras")];

/// Keras on TensorFlow beside MultiWorkerMirroredStrategy; the arguments are passed on.
pub(crate) fn bench_tensorflow(shell: &Shell, arguments: &[String]) -> Result<()> {
    let wheel = python::wheel(shell)?;
    shell.run(Call::new("python3").args(["-m", "venv", FOLDER]))?;
    let [python, sirtaki] = ["python", "sirtaki"].map(|program| format!("{FOLDER}/bin/{program}"));
    if let Ok(other) = std::env::var(WITH_TENSORFLOW) {
        borrow_packages(shell, &python, &other)?;
    }
    let pip = || Call::new(&python).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    for (module, package) in NEEDS {
        if !shell.succeeds(&Call::new(&python).args(["-c", &format!("import {module}")])) {
            println!("  installing {package} into {FOLDER}, once");
            shell.run(pip().args([package]))?;
        }
    }
    shell.run(pip().args(["--force-reinstall", "--no-deps", &wheel]))?;
    shell.run(pip().args(["cloudpickle"]))?;
    shell.run(Call::new(&python).args(["benches/tensorflow/bench.py", &sirtaki]).args(arguments))
}

/// Lets an environment see all packages of another one.
fn borrow_packages(shell: &Shell, python: &str, other: &str) -> Result<()> {
    let all = "import site, sys; print('\\n'.join(path for path in sys.path if path.endswith('-packages')))";
    let packages = shell.read(&Call::new(other).args(["-c", all]))?;
    let own = shell.read(&Call::new(python).args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]))?;
    let file = std::path::Path::new(own.trim()).join("borrowed.pth");
    fs::write(&file, packages).with_context(|| format!("cannot write {}", file.display()))
}
