//! Tests of the Python package, in environments that have only what `pip install` installs.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};

use crate::{
    publish,
    python::{WHEELS_FOR_TESTS, pip_install, wheel_for_tests},
    shell::{Call, Shell, cargo},
    side_by_side,
};

/// Where PyTorch and the following are installed, once.
const ENVIRONMENT: &str = "target/python/environment";
/// What the tests need besides the wheel and PyTorch.
const NEEDS: [&str; 28] = [
    "accelerate",
    "cloudpickle",
    "flax",
    "h5py",
    "imagecodecs",
    "ipykernel",
    "jax",
    "keras",
    "lightning",
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
    "tensorboard",
    "tensorflow-cpu",
    "tifffile",
    "transformers",
    "viztracer",
    "zarr",
];
const PYTEST: [&str; 7] = ["-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider"];
/// Tests that need a launcher from outside the wheel, which `tests/tests/launch_python.rs` gives them.
const ELSEWHERE: &str = "test_run.py";

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
    publish::check_wheels(shell, WHEELS_FOR_TESTS)?;
    // The programs that the tests of volumes drive.
    shell.run(cargo(["build", "--workspace", "--example", "convert", "--example", "volume", "--locked"]))?;
    let together = TOGETHER.into_iter().flat_map(|(suite, ranks)| ranks.iter().map(move |ranks| (suite, ranks)));
    let mut calls: Vec<_> = together.map(|(suite, ranks)| on_ranks(folder, suite, ranks)).collect();
    calls.extend(alone(shell)?.into_iter().map(|file| Call::new(&python).args(PYTEST).args([file])));
    calls.extend(examples(&python));
    side_by_side::run(shell, calls)
}

/// The examples in the package's own documentation.
fn examples(python: &str) -> [Call; 3] {
    let doctest = |modules: &[&str]| {
        let pytest = Call::new(python).args(PYTEST).args(["--doctest-modules", "--pyargs"]);
        pytest.args(modules.to_vec())
    };
    let apart = APART.map(|place| format!("--ignore-glob=*/sirtaki/{place}"));
    [
        doctest(&["sirtaki"]).args(apart),
        doctest(&["sirtaki.tensorflow", "sirtaki.data.tensorflow", "sirtaki.keras", "sirtaki.data.keras"]),
        doctest(&["sirtaki.jax"]),
    ]
}

/// The files with tests that one process runs.
fn alone(shell: &Shell) -> Result<Vec<String>> {
    let folder = "python/tests";
    let entries = fs::read_dir(shell.root.join(folder))?.flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let tests = names.filter(|name| name.starts_with("test_") && name.ends_with(".py") && name != ELSEWHERE);
    let mut paths: Vec<_> = tests.map(|name| format!("{folder}/{name}")).collect();
    paths.sort();
    Ok(paths)
}

/// The tests on several ranks, with older versions of the frameworks, each installed once and kept.
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
                shell.run(on_ranks(&folder, *suite, ranks))?;
            }
        }
        fs::remove_dir_all(shell.root.join(folder))?;
    }
    Ok(())
}

/// Listeners that take long to install, each for real and without a network.
pub(crate) fn test_trackers(shell: &Shell) -> Result<()> {
    let kept = "target/python/trackers";
    let python = environment_for(shell, kept, &[("mlflow", "mlflow"), ("wandb", "wandb"), ("pytest", "pytest")])?;
    let wheel = wheel_for_tests(shell)?;
    shell.run(pip_install(&python).args(["--force-reinstall", "--no-deps", &wheel]))?;
    shell.run(Call::new(&python).args(PYTEST).args(["python/tests/trackers"]))
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

/// How to run tests on several ranks.
fn on_ranks(folder: &str, suite: Suite, ranks: &str) -> Call {
    let [sirtaki, python] = ["sirtaki", "python"].map(|program| format!("{folder}/bin/{program}"));
    let run = Call::new(&sirtaki).args(["run", "-n", ranks, "--oversubscribe", "--", &python]);
    let run = suite.keras.iter().fold(run, |run, back_end| run.env("KERAS_BACKEND", *back_end));
    run.args(PYTEST).args([suite.folder])
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
