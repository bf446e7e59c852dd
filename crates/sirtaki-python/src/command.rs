//! The `sirtaki` command from the wheel: the same as the binary, started by a Python script.
//!
//! The launcher starts itself again, as agents and as ranks of benchmarks. Here that is not the running program, which
//! is Python, but the script, so its path is passed on as the first argument.

use std::{ffi::OsString, path::PathBuf};

use pyo3::{PyResult, Python, pyfunction, types::PyAnyMethods};
use sirtaki_cli::{env, printer::Printer};

use crate::error;

/// Runs the command in Python's `sys.argv` and returns its exit code. It finds the data sets that come with the package.
#[pyfunction]
pub(crate) fn main(py: Python<'_>) -> PyResult<u8> {
    let package: Vec<PathBuf> = py.import("sirtaki")?.getattr("__path__")?.extract()?;
    if let Some(package) = package.first() {
        let environment = py.import("os")?.getattr("environ")?;
        environment.call_method1("setdefault", (env::DATA_FOLDER, package.join("_share").into_os_string()))?;
    }
    let mut arguments: Vec<OsString> = py.import("sys")?.getattr("argv")?.extract()?;
    let program = script(py, arguments.first())?;
    arguments.splice(..1, [program.into_os_string()]);
    command(py, arguments)
}

/// Runs the command in `arguments`, preceded by a program that starts it again, and returns its exit code.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, arguments: Vec<OsString>) -> PyResult<u8> {
    // Python's own handlers only take notes, which nobody would read.
    let signal = py.import("signal")?;
    signal.call_method1("signal", (signal.getattr("SIGINT")?, signal.getattr("SIG_DFL")?))?;
    Ok(py.detach(|| sirtaki_cli::run(arguments, &mut Printer::terminal())))
}

/// The script that starts the command: the running one, or else the one next to Python.
fn script(py: Python<'_>, running: Option<&OsString>) -> PyResult<PathBuf> {
    let os = py.import("os")?;
    let python: PathBuf = py.import("sys")?.getattr("executable")?.extract()?;
    let choices = running.map(PathBuf::from).into_iter().chain([python.with_file_name("sirtaki")]);
    for path in choices {
        let path = std::path::absolute(&path).unwrap_or(path);
        if path.is_file() && os.call_method1("access", (&path, os.getattr("X_OK")?))?.extract()? {
            return Ok(path);
        }
    }
    let text = format!(
        "there is no `sirtaki` script beside {}, and it is needed to start processes\nhint: install the package with pip",
        python.display()
    );
    Err(error::raised(py, text, None))
}
