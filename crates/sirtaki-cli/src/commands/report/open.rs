//! Opening a page in a browser: the one that the variable `BROWSER` names, as other programs do, or the desktop's own.

use std::{
    ffi::OsString,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::printer::Advice;

/// The variable that names a browser, or several, separated by colons, of which the first that works is meant. `%s` stands for
/// the address.
const BROWSER: &str = "BROWSER";
/// Where a desktop shows its windows.
const SCREENS: [&str; 2] = ["WAYLAND_DISPLAY", "DISPLAY"];
/// The desktop's own way to open a file.
const DESKTOP: &str = "xdg-open";
/// A browser that has not failed by now shows the page; it may run for hours.
const EARLY: Duration = Duration::from_secs(2);

/// Opens a file that exists.
pub(super) fn open(file: &Path, variable: &dyn Fn(&str) -> Option<String>) -> Result<()> {
    let file = std::path::absolute(file)?;
    let hint = format!("set {BROWSER} to the command of a browser, or open {} yourself", file.display());
    let mut problems = Vec::new();
    for command in commands(variable) {
        match start(&command, &file) {
            Ok(()) => return Ok(()),
            Err(problem) => problems.push(format!("`{command}` {problem}")),
        }
    }
    let why = match problems.is_empty() {
        true => format!("there is no browser here: neither {BROWSER} nor {} is set", SCREENS[1]),
        false => format!("the page cannot be opened: {}", problems.join("; ")),
    };
    Err(Advice::new(why, hint).into())
}

/// What to try, in this order.
fn commands(variable: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
    let mut commands: Vec<String> = set(BROWSER)
        .map_or(Vec::new(), |list| list.split(':').filter(|one| !one.trim().is_empty()).map(Into::into).collect());
    if SCREENS.iter().any(|screen| set(screen).is_some()) {
        commands.push(DESKTOP.into());
    }
    commands
}

/// Starts a browser, and says what is wrong if it fails at once.
fn start(command: &str, file: &Path) -> Result<(), String> {
    let mut words: Vec<OsString> = command.split_whitespace().map(Into::into).collect();
    match words.iter_mut().find(|word| *word == "%s") {
        Some(place) => *place = file.into(),
        None => words.push(file.into()),
    }
    let (program, arguments) = words.split_first().ok_or("is empty")?;
    let mut browser = Command::new(program);
    browser.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut browser = browser.spawn().map_err(|error| format!("cannot be started: {error}"))?;
    let begin = Instant::now();
    while begin.elapsed() < EARLY {
        match browser.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("failed: {status}")),
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<'a>(set: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn the_browser_that_is_named_comes_before_the_desktops() {
        assert_eq!(commands(&with(&[])), Vec::<String>::new());
        assert_eq!(commands(&with(&[("DISPLAY", ":0")])), [DESKTOP]);
        assert_eq!(commands(&with(&[(BROWSER, "a -x:b"), ("WAYLAND_DISPLAY", "w")])), ["a -x", "b", DESKTOP]);
    }

    #[test]
    fn the_first_that_works_gets_the_page() {
        let place = tempfile::tempdir().unwrap();
        let (page, copy) = (place.path().join("page one.html"), place.path().join("copy"));
        std::fs::write(&page, "the page").unwrap();
        let copying = format!("no-such-browser:false:cp %s {}", copy.display());
        open(&page, &with(&[(BROWSER, &copying)])).unwrap();
        assert_eq!(std::fs::read_to_string(&copy).unwrap(), "the page");
    }

    #[test]
    fn without_a_browser_it_says_what_to_do() {
        let error = open(Path::new("page.html"), &with(&[])).unwrap_err();
        assert_eq!(error.to_string(), "there is no browser here: neither BROWSER nor DISPLAY is set");
        let error = open(Path::new("page.html"), &with(&[(BROWSER, "false")])).unwrap_err();
        assert!(error.to_string().starts_with("the page cannot be opened: `false` failed: "), "{error}");
    }
}
