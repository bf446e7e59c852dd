//! Tests of the Python package, in environments that have only what `pip install` installs.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};

use crate::{
    python::{pip_install, wheel_for_tests},
    shell::{Call, Shell, cargo},
};

/// Where PyTorch and the following are installed, once.
const ENVIRONMENT: &str = "target/python/environment";
/// What the tests need besides the wheel and PyTorch.
const NEEDS: [&str; 23] = [
    "accelerate",
    "cloudpickle",
    "flax",
    "imagecodecs",
    "jax",
    "keras",
    "mpi4py",
    "mrcfile",
    "mypy",
    "nibabel",
    "numpy",
    "onnx",
    "onnxruntime",
    "optax",
    "optuna",
    "optuna_dashboard",
    "pytest",
    "scipy",
    "selenium",
    "tensorflow-cpu",
    "tifffile",
    "viztracer",
    "zarr",
];
const PYTEST: [&str; 7] = ["-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider"];
/// Tests that one process runs.
const ALONE: [&str; 19] = [
    "python/tests/test_command.py",
    "python/tests/test_horovodrun.py",
    "python/tests/test_torch_jobs.py",
    "python/tests/test_elastic_jobs.py",
    "python/tests/test_distributed_jobs.py",
    "python/tests/test_distributed_hosts.py",
    "python/tests/test_tensorflow_jobs.py",
    "python/tests/test_keras_jobs.py",
    "python/tests/test_jax_jobs.py",
    "python/tests/test_surface.py",
    "python/tests/test_types.py",
    "python/tests/test_examples.py",
    "python/tests/test_perfetto.py",
    "python/tests/test_search.py",
    "python/tests/test_mpi.py",
    "python/tests/test_volumes.py",
    "python/tests/test_infer.py",
    "python/tests/test_infer_hosts.py",
    "python/tests/test_infer_python.py",
];

/// Modules that are not imported beside PyTorch: a process that has imported TensorFlow aborts in PyTorch's compiler,
/// because both bring LLVM along. The last two have no examples.
const APART: [&str; 7] =
    ["tensorflow/*", "keras/*", "jax/*", "data/tensorflow.py", "data/keras.py", "_horovod/*", "_tf1/*"];

/// Tests that several ranks run together.
#[derive(Clone, Copy)]
struct Suite {
    folder: &'static str,
    /// The back end of Keras.
    keras: Option<&'static str>,
}

const TORCH: Suite = Suite { folder: "python/tests/ranks", keras: None };
const TENSORFLOW: Suite = Suite { folder: "python/tests/tensorflow", keras: None };
const JAX: Suite = Suite { folder: "python/tests/jax", keras: None };
const KERAS: Suite = Suite { folder: "python/tests/keras", keras: Some("tensorflow") };
const KERAS_ON_JAX: Suite = Suite { keras: Some("jax"), ..KERAS };
const KERAS_ON_TORCH: Suite = Suite { keras: Some("torch"), ..KERAS };
/// The ranks that each suite runs on. The back ends of Keras differ in how they compute, not in what ranks exchange.
const TOGETHER: [(Suite, &[&str]); 6] = [
    (TORCH, &["1", "2", "4"]),
    (TENSORFLOW, &["1", "2", "4"]),
    (JAX, &["1", "2", "4"]),
    (KERAS_ON_TORCH, &["1", "2", "4"]),
    (KERAS, &["2"]),
    (KERAS_ON_JAX, &["2"]),
];

/// Older versions of a framework that are supported.
struct Older {
    framework: &'static str,
    version: &'static str,
    /// What else is installed, as its requirements leave it open.
    with: &'static [&'static str],
    suites: &'static [Suite],
}

const OLDER: [Older; 5] = [
    Older { framework: "torch", version: "1.13.1", with: &["numpy<2", "setuptools"], suites: &[TORCH] },
    // The last one before hooks on accumulated gradients.
    Older { framework: "torch", version: "2.0.1", with: &["numpy<2", "setuptools"], suites: &[TORCH] },
    Older { framework: "tensorflow-cpu", version: "2.12.1", with: &[], suites: &[TENSORFLOW, KERAS] },
    // The last one with Keras 2.
    Older { framework: "tensorflow-cpu", version: "2.15.1", with: &[], suites: &[TENSORFLOW, KERAS] },
    Older { framework: "jax", version: "0.5.0", with: &["jaxlib==0.5.0", "optax==0.2.4"], suites: &[JAX] },
];
/// Names a Python that has PyTorch, and maybe other frameworks, so that they need not be downloaded; tells tests which one
/// to use.
pub(crate) const WITH_TORCH: &str = "SIRTAKI_BENCH_PYTHON";

/// Builds and installs the wheel, and runs its tests.
pub(crate) fn test(shell: &Shell) -> Result<()> {
    let folder = "target/python/tests";
    let python = install(shell, folder, &environment(shell)?, &[])?;
    for (suite, ranks) in TOGETHER {
        for &ranks in ranks {
            on_ranks(shell, folder, suite, ranks)?;
        }
    }
    let examples = Call::new(&python).args(PYTEST).args(["--doctest-modules", "--pyargs"]);
    let apart: Vec<_> = APART.iter().map(|place| format!("--ignore-glob=*/sirtaki/{place}")).collect();
    shell.run(examples.clone().args(["sirtaki"]).args(apart.iter().map(String::as_str)))?;
    shell.run(examples.clone().args([
        "sirtaki.tensorflow",
        "sirtaki.data.tensorflow",
        "sirtaki.keras",
        "sirtaki.data.keras",
    ]))?;
    shell.run(examples.args(["sirtaki.jax"]))?;
    // The program that the tests of volumes drive.
    shell.run(cargo(["build", "--workspace", "--example", "convert", "--locked"]))?;
    shell.run(Call::new(&python).args(PYTEST).args(ALONE))
}

/// The same on two and four ranks with older versions of the frameworks, each installed once and kept.
pub(crate) fn test_older(shell: &Shell) -> Result<()> {
    for Older { framework, version, with, suites } in OLDER {
        let kept = format!("target/python/{framework}-{version}");
        let python = format!("{kept}/bin/python");
        if !has(shell, &python, &[framework]) {
            println!("  installing {framework} {version} into {kept}, once");
            shell.run(Call::new("python3").args(["-m", "venv", "--clear", &kept]))?;
            // pip's cache would take the same space again.
            let pip = pip_install(&python).args(["--no-cache-dir", &format!("{framework}=={version}")]);
            shell.run(pip.args(with.to_vec()))?;
        }
        let folder = format!("target/python/tests-{framework}-{version}");
        install(shell, &folder, &python, &["pytest"])?;
        for suite in suites {
            for ranks in ["1", "2", "4"] {
                on_ranks(shell, &folder, *suite, ranks)?;
            }
        }
        fs::remove_dir_all(shell.root.join(folder))?;
    }
    Ok(())
}

/// A Python that has the frameworks and everything else that tests need, but not the wheel. It is made once and kept:
/// PyTorch is a download of 3 GB, unless [`WITH_TORCH`] names a Python that has it.
pub(crate) fn environment(shell: &Shell) -> Result<String> {
    let python = shell.root.join(ENVIRONMENT).join("bin/python").display().to_string();
    if !has(shell, &python, &["torch"]) {
        println!("  installing PyTorch into {ENVIRONMENT}, once");
        shell.run(Call::new("python3").args(["-m", "venv", "--clear", ENVIRONMENT]))?;
        let borrowed = match std::env::var(WITH_TORCH) {
            Ok(other) => has(shell, &other, &["torch"]) && borrow_packages(shell, &python, &other).is_ok(),
            Err(_) => false,
        };
        if !borrowed {
            shell.run(pip_install(&python).args(["torch"]))?;
        }
    }
    if !has(shell, &python, &NEEDS) {
        println!("  installing {} into {ENVIRONMENT}, once", NEEDS.join(", "));
        shell.run(pip_install(&python).args(NEEDS))?;
    }
    Ok(python)
}

/// The Python of an environment for a benchmark, made once and kept, with these modules and the packages that have them,
/// and without the wheel.
pub(crate) fn environment_for(shell: &Shell, folder: &str, needs: &[(&str, &str)]) -> Result<String> {
    let python = format!("{folder}/bin/python");
    if !shell.succeeds(&Call::new(&python).args(["-c", "pass"])) {
        shell.run(Call::new("python3").args(["-m", "venv", folder]))?;
        if let Ok(other) = std::env::var(WITH_TORCH) {
            borrow_packages(shell, &python, &other)?;
        }
    }
    for (module, package) in needs {
        if !has(shell, &python, &[module]) {
            println!("  installing {package} into {folder}, once");
            shell.run(pip_install(&python).args([*package]))?;
        }
    }
    Ok(python)
}

/// Makes an environment with the wheel, the packages of `other`, and whatever else is needed; returns its Python.
pub(crate) fn install(shell: &Shell, folder: &str, other: &str, needs: &[&str]) -> Result<String> {
    let wheel = wheel_for_tests(shell)?;
    shell.run(Call::new("python3").args(["-m", "venv", "--clear", folder]))?;
    let python = format!("{folder}/bin/python");
    borrow_packages(shell, &python, other)?;
    shell.run(pip_install(&python).args([wheel.as_str()]).args(needs.to_vec()))?;
    Ok(python)
}

/// Runs tests on several ranks.
fn on_ranks(shell: &Shell, folder: &str, suite: Suite, ranks: &str) -> Result<()> {
    let [sirtaki, python] = ["sirtaki", "python"].map(|program| format!("{folder}/bin/{program}"));
    let mut run = Call::new(&sirtaki).args(["run", "-n", ranks, "--oversubscribe", "--", &python]);
    if let Some(back_end) = suite.keras {
        run = run.env("KERAS_BACKEND", back_end);
    }
    shell.run(run.args(PYTEST).args([suite.folder]))
}

/// Whether a Python has these packages.
fn has(shell: &Shell, python: &str, packages: &[&str]) -> bool {
    let modules: Vec<_> = packages.iter().map(|package| package.trim_end_matches("-cpu")).collect();
    let look = format!("import sys, importlib.util as u; sys.exit(any(u.find_spec(m) is None for m in {modules:?}))");
    shell.succeeds(&Call::new(python).args(["-c", &look]))
}

/// Lets a new environment see the packages of another one, and of those that this one sees.
pub(crate) fn borrow_packages(shell: &Shell, python: &str, other: &str) -> Result<()> {
    let look = "import sys; print('\\n'.join(p for p in sys.path if p.endswith('-packages')))";
    let packages = shell.read(&Call::new(other).args(["-c", look]))?;
    if packages.trim().is_empty() {
        bail!("{other} has no packages\nhint: remove its environment and try again");
    }
    let own = shell.read(&Call::new(python).args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]))?;
    let file = Path::new(own.trim()).join("borrowed.pth");
    fs::write(&file, packages).with_context(|| format!("cannot write {}", file.display()))
}
