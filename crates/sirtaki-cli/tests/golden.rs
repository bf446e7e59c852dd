//! What users read, word for word: help, refusals of wrong arguments, and nothing where it does not belong.
//!
//! `cargo xtask docs` writes the expected texts anew; look at the difference before committing it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{path::PathBuf, process::Command};

/// Runs the command away from the caller's settings and returns exit code, output and messages as one text.
fn sirtaki(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sirtaki"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SIRTAKI_")) {
        command.env_remove(name);
    }
    let output = command.args(arguments).env("COLUMNS", "100").output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    format!(
        "$ sirtaki {}\nexit code {}\n--- stdout\n{}--- stderr\n{}",
        arguments.join(" "),
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr)
    )
}

fn compare(name: &str, arguments: &[&str]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name).with_extension("txt");
    let got = sirtaki(arguments);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &got).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(got, expected, "{} differs; if that is meant, run `cargo xtask docs`", path.display());
}

#[test]
fn help() {
    compare("help", &["--help"]);
    compare("help_doctor", &["doctor", "--help"]);
    compare("help_bench", &["bench", "--help"]);
    compare("help_allreduce", &["bench", "allreduce", "--help"]);
}

#[test]
fn version() {
    let expected =
        format!("$ sirtaki --version\nexit code 0\n--- stdout\nsirtaki {}\n--- stderr\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(sirtaki(&["--version"]), expected);
}

#[test]
fn wrong_arguments() {
    compare("no_ranks", &["bench", "allreduce", "-n", "0"]);
    compare("bad_algorithm", &["bench", "allreduce", "--algorithm", "rnig"]);
    compare("bad_sizes", &["bench", "allreduce", "--sizes", "4,huge"]);
    compare("bad_dtype", &["bench", "allreduce", "--dtype", "f31"]);
    compare("bad_timeout", &["bench", "allreduce", "--timeout", "0"]);
    compare("unknown_command", &["docter"]);
}

#[test]
fn a_wrong_variable_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_sirtaki"))
        .args(["bench", "allreduce", "--sizes", "4"])
        .env("SIRTAKI_TLS", "perhaps")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let expected = "error: SIRTAKI_TLS is `perhaps`, but must be 1, true, yes, on, 0, false, no or off\n\
                    hint: correct or unset it; docs/environment.md lists all variables\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), expected);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let script = format!("{} doctor --json | true", env!("CARGO_BIN_EXE_sirtaki"));
    let output = Command::new("bash").args(["-c", &format!("set -o pipefail; {script}")]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn doctor_speaks_json() {
    let output = Command::new(env!("CARGO_BIN_EXE_sirtaki")).args(["doctor", "--json"]).output().unwrap();
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = findings.as_array().unwrap();
    assert!(findings.len() > 10);
    for finding in findings {
        assert!(finding["name"].is_string() && finding["value"].is_string(), "{finding}");
        assert!(["ok", "missing", "warning"].contains(&finding["state"].as_str().unwrap()), "{finding}");
    }
}
