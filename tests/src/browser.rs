//! Pages in a real browser: Chromium without a window, which looks at a page in several widths, light and dark, and
//! reports what it sees.
//!
//! The page is shown in frames of a page of ours, whose script measures it.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

const LOOK: &str = r#"<!doctype html><body>FRAMES<script>
onload = () => {
  const look = frame => {
    const page = frame.contentDocument, view = frame.contentWindow;
    const plots = [...page.querySelectorAll("figure > svg")];
    const sticksOut = plot => text => {
      const inner = text.getBoundingClientRect(), outer = plot.getBoundingClientRect();
      return inner.left < outer.left - 1 || inner.right > outer.right + 1;
    };
    return {
      width: frame.clientWidth,
      too_wide: page.documentElement.scrollWidth > page.documentElement.clientWidth,
      dark: view.matchMedia("(prefers-color-scheme: dark)").matches,
      paper: view.getComputedStyle(page.body).backgroundColor,
      ink: view.getComputedStyle(page.body).color,
      loaded: view.performance.getEntriesByType("resource").map(one => one.name),
      scripts: [...page.scripts].filter(one => one.type !== "application/json").length + [...page.querySelectorAll("*")].filter(one => [...one.attributes].some(a => a.name.startsWith("on"))).length,
      controls: page.querySelectorAll(".controls button").length,
      titles: [...page.querySelectorAll("h1, h2, h3")].map(one => one.textContent),
      result: page.querySelector(".result")?.textContent,
      keys: [...page.querySelectorAll(".keys dt")].map(one => one.textContent),
      marked: [...page.querySelectorAll("tr.marked")].map(one => one.textContent),
      plots: plots.length,
      plots_in_words: plots.filter(plot => plot.getAttribute("role") === "img" && plot.getAttribute("aria-label") && plot.querySelector(":scope > desc")?.textContent).length,
      smallest_text: Math.min(...plots.flatMap(plot => [...plot.querySelectorAll("text")].map(text => text.getBoundingClientRect().height))),
      sticking_out: plots.flatMap(plot => [...plot.querySelectorAll("text")].filter(sticksOut(plot)).map(text => text.textContent)),
    };
  };
  const text = JSON.stringify([...document.querySelectorAll("iframe")].map(look));
  document.body.replaceChildren();
  document.body.textContent = "RESULT" + btoa(unescape(encodeURIComponent(text))) + "RESULT";
};
</script></body>"#;

/// What Chromium sees of a page in frames of these widths, dark or light.
pub fn look(page: &Path, widths: &[u32], dark: bool) -> Vec<Value> {
    frames(page, widths, dark, "")
}

/// What it sees where the page's own scripts do not run.
pub fn look_without_scripts(page: &Path, widths: &[u32]) -> Vec<Value> {
    frames(page, widths, false, " sandbox=\"allow-same-origin\"")
}

fn frames(page: &Path, widths: &[u32], dark: bool, more: &str) -> Vec<Value> {
    let name = page.file_name().unwrap().to_str().unwrap();
    let frame = |width: &u32| format!("<iframe src=\"{name}\" width=\"{width}\" height=\"800\"{more}></iframe>");
    let ours = page.with_file_name("look.html");
    fs::write(&ours, LOOK.replace("FRAMES", &widths.iter().map(frame).collect::<String>())).unwrap();
    let output = chromium(dark, &["--virtual-time-budget=10000", "--dump-dom"], &ours);
    let output = String::from_utf8(output).unwrap();
    let encoded = output.split("RESULT").nth(1).unwrap_or_else(|| panic!("nothing was seen: {output}"));
    serde_json::from_slice(&base64(encoded)).unwrap()
}

/// A picture of the page, as PNG.
pub fn picture(page: &Path, size: (u32, u32), dark: bool, into: &Path) {
    let (window, shot) = (format!("--window-size={},{}", size.0, size.1), format!("--screenshot={}", into.display()));
    chromium(dark, &["--hide-scrollbars", &window, &shot], page);
}

/// The page after its scripts have run for some seconds of the browser's own time.
pub fn dom(url: &str) -> String {
    String::from_utf8(browse(false, &["--virtual-time-budget=4000", "--dump-dom"], url)).unwrap()
}

fn chromium(dark: bool, arguments: &[&str], page: &Path) -> Vec<u8> {
    browse(dark, arguments, &format!("file://{}", page.display()))
}

/// Without a window, without anything from elsewhere.
pub(crate) const ARGUMENTS: [&str; 8] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];

/// The browser's output. It connects to nothing but this machine, and keeps nothing.
fn browse(dark: bool, arguments: &[&str], url: &str) -> Vec<u8> {
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new("timeout");
    command.args(["120", "chromium"]).args(ARGUMENTS).arg("--allow-file-access-from-files");
    command.arg(format!("--user-data-dir={}", profile.path().display()));
    command.arg(format!("--blink-settings=preferredColorScheme={}", i32::from(!dark)));
    command.args(arguments).arg(url);
    let output = command.stdin(Stdio::null()).output().expect("chromium can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

pub(crate) fn base64(text: &str) -> Vec<u8> {
    let value = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::new();
    for four in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits =
            four.iter().fold(0_u32, |bits, &letter| bits << 6 | u32::from(value(letter))) << (6 * (4 - four.len()));
        bytes.extend(&bits.to_be_bytes()[1..four.len()]);
    }
    bytes
}
