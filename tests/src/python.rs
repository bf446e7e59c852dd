//! The Python that tests of Python programs use. A missing module is a failure, not a reason to skip a test.

use std::process::{Command, Stdio};

/// The Python that `cargo xtask test` has prepared, which must have this module.
///
/// # Panics
///
/// If it does not have the module.
pub fn python_with(module: &str) -> String {
    let python = std::env::var("SIRTAKI_BENCH_PYTHON").unwrap_or_else(|_| "python3".into());
    let mut command = Command::new(&python);
    command.args(["-c", &format!("import {module}")]).stdout(Stdio::null()).stderr(Stdio::null());
    let found = command.status().is_ok_and(|status| status.success());
    assert!(found, "{python} has no {module}; `cargo xtask test test` installs it, or set SIRTAKI_BENCH_PYTHON");
    python
}
