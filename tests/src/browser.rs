//! A real browser, for pages that draw themselves.

use std::process::{Command, Stdio};

use tempfile::TempDir;

/// What a page has become after its scripts have run for some seconds of the browser's own time.
pub fn dom(url: &str) -> String {
    let profile = TempDir::new().expect("a folder for the browser");
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "100", "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]);
    command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
    command.args(["--disable-dev-shm-usage", "--virtual-time-budget=4000", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", profile.path().display())).arg(url);
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().expect("chromium starts");
    assert!(output.status.success(), "chromium: {}", output.status);
    String::from_utf8(output.stdout).expect("a page is text")
}
