//! `sirtaki report` on folders as runs leave them: what it says, what it refuses, and the page in a real browser.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use sirtaki_tests::{
    browser,
    driver::Driver,
    launch::{Finished, Launch},
    runs::MadeUp,
    wait,
};
use tempfile::TempDir;

const PLOTS: [&str; 14] = [
    "Speed-up",
    "Efficiency",
    "Time to 98.5 % test accuracy",
    "Accuracy over time",
    "Loss over time",
    "Throughput over time",
    "Accuracy over samples",
    "Loss over samples",
    "Throughput and test accuracy",
    "Where the time went",
    "Memory",
    "Message sizes",
    "Who kept the others waiting",
    "How late ranks were",
];

/// A scaling with three seeds, a run that failed and one that is damaged.
fn scaling() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    for seed in 1..=3 {
        for (workers, batch) in [(1, 128), (2, 128), (2, 256), (4, 128), (4, 512)] {
            MadeUp::new(workers, batch, seed).write(place.path());
        }
    }
    let failed = Some("rank 2 on <node1> was killed by SIGKILL".into());
    MadeUp { failed, ..MadeUp::new(4, 128, 4) }.write(place.path());
    let damaged = MadeUp { name: "damaged".into(), ..MadeUp::new(2, 128, 9) }.write(place.path());
    fs::write(damaged.join("run.json"), "{\"format\": \"sirtaki run").unwrap();
    place
}

fn report(folder: &Path, arguments: &[&str]) -> Finished {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sirtaki-under-test"));
    command.current_dir(folder).arg("report").args(arguments);
    Launch::start(command).ends()
}

/// Numbers may differ a little, words may not.
fn nearly_equal(got: &str, golden: &str) -> bool {
    let number = |word: &str| word.replace(',', "").trim_matches(|letter| "();*".contains(letter)).parse::<f64>().ok();
    let close = |a: f64, b: f64| (a - b).abs() <= 0.02 * a.abs().max(b.abs());
    let same = |(a, b): (&str, &str)| a == b || number(a).zip(number(b)).is_some_and(|(a, b)| close(a, b));
    let lines: (Vec<&str>, Vec<&str>) = (got.lines().collect(), golden.lines().collect());
    let words = |line: &'_ str| line.split_whitespace().count();
    lines.0.len() == lines.1.len()
        && lines
            .0
            .iter()
            .zip(&lines.1)
            .all(|(a, b)| words(a) == words(b) && a.split_whitespace().zip(b.split_whitespace()).all(same))
}

#[test]
fn a_scaling_is_told_in_words_and_tables() {
    let place = scaling();
    let done = report(place.path(), &[".", "--markdown"]);
    assert_eq!(done.code, 0, "{}", done.message());
    assert!(
        done.message().contains("warning: damaged is listed as unreadable: run.json is damaged"),
        "{}",
        done.message()
    );
    let got = done.out.join("\n") + "\n";
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/report.md");
    if std::env::var_os("BLESS").is_some() {
        fs::write(path, &got).unwrap();
    }
    let golden = fs::read_to_string(path).unwrap_or_default();
    assert!(nearly_equal(&got, &golden), "{path} differs; if that is meant, run with BLESS=1\n{got}");
}

#[test]
fn the_same_as_data() {
    let place = scaling();
    let done = report(place.path(), &[".", "--json", "--target-accuracy", "0.9", "-o", "report.json"]);
    assert_eq!(done.code, 0, "{}", done.message());
    let data: Value = serde_json::from_slice(&fs::read(place.path().join("report.json")).unwrap()).unwrap();
    assert_eq!((data["runs"].as_array().unwrap().len(), data["unreadable"].as_array().unwrap().len()), (16, 1));
    let kinds: Vec<&str> =
        data["scaling"].as_array().unwrap().iter().map(|one| one["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["strong", "weak"]);
    let last = &data["scaling"][0]["points"][2];
    let expected = MadeUp::new(4, 128, 0).rate() / MadeUp::new(1, 128, 0).rate();
    assert_eq!(last["workers"], 4);
    assert!((last["speedup"]["mean"].as_f64().unwrap() / expected - 1.0).abs() < 0.001, "{last}");
    assert_eq!(last["speedup"]["values"].as_array().unwrap().len(), 3, "the failed run is in no mean");
    assert_eq!(data["groups"][0]["time_to_accuracy"]["reached"], 3, "{data}");
}

#[test]
fn what_cannot_be_read_alone_is_an_error_with_a_hint() {
    let place = scaling();
    let only = place.path().join("damaged");
    let done = report(place.path(), &[only.to_str().unwrap()]);
    assert_eq!((done.code, done.err.len()), (1, 2), "{}", done.message());
    assert!(done.err[0].contains("run.json is damaged") && done.err[1].starts_with("hint: "), "{}", done.message());
    assert!(!place.path().join("report.html").exists());
}

fn page(place: &Path, runs: &[&str]) -> PathBuf {
    let done = report(place, &[runs, &["-o", "page.html"]].concat());
    assert_eq!(done.code, 0, "{}", done.message());
    place.join("page.html")
}

#[test]
fn a_browser_shows_the_whole_page_on_desktop_and_phone_in_light_and_dark() {
    let place = scaling();
    let page = page(place.path(), &["."]);
    let mut papers = Vec::new();
    for dark in [false, true] {
        let views = browser::look(&page, &[390, 1280], dark);
        assert_eq!(views.len(), 2);
        for view in views {
            assert_eq!(view["dark"], dark);
            assert_eq!((&view["too_wide"], &view["scripts"]), (&Value::Bool(false), &1.into()), "{view}");
            assert_eq!(view["loaded"].as_array().unwrap().len(), 0, "something was loaded: {view}");
            assert_eq!((&view["plots"], &view["plots_in_words"]), (&PLOTS.len().into(), &PLOTS.len().into()), "{view}");
            assert_eq!(view["sticking_out"].as_array().unwrap().len(), 0, "{view}");
            assert!(view["smallest_text"].as_f64().unwrap() > 9.0, "{view}");
            let titles = view["titles"].to_string();
            assert!(PLOTS.iter().all(|title| titles.contains(title)), "{titles}");
            for title in ["17 runs of lenet compared", "Strong scaling", "Weak scaling", "All runs", "Hyper-parameters"]
            {
                assert!(titles.contains(title), "{title}: {titles}");
            }
            assert!(view["result"].as_str().unwrap().contains("Test accuracy"), "{view}");
            let marked = view["marked"].to_string();
            assert!(marked.contains("killed by SIGKILL") && marked.contains("unreadable: run.json"), "{marked}");
            assert!(marked.contains("global_batch"), "settings that differ stand out: {marked}");
            papers.push((view["paper"].clone(), view["ink"].clone()));
        }
    }
    assert_eq!((&papers[0], &papers[2]), (&papers[1], &papers[3]));
    assert!(papers[0].0 != papers[2].0 && papers[0].1 != papers[2].1, "{papers:?}");
}

#[test]
fn one_run_has_a_page_and_a_picture() {
    let place = tempfile::tempdir().unwrap();
    MadeUp::new(4, 128, 1).write(place.path());
    let page = page(place.path(), &["lenet-4-128-1"]);
    let view = &browser::look(&page, &[390], false)[0];
    assert_eq!(
        (&view["too_wide"], &view["plots"], &view["plots_in_words"]),
        (&Value::Bool(false), &10.into(), &10.into())
    );
    assert_eq!(view["sticking_out"].as_array().unwrap().len(), 0, "{view}");
    let keys = view["keys"].to_string();
    assert!(keys.contains("Test accuracy") && keys.contains("Throughput") && keys.contains("Memory"), "{keys}");
    let picture = place.path().join("page.png");
    browser::picture(&page, (390, 2000), true, &picture);
    let bytes = fs::read(&picture).unwrap();
    assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
    assert_eq!(u32::from_be_bytes(bytes[16..20].try_into().unwrap()), 390);
    assert!(bytes.len() > 20_000, "an empty page has {} bytes", bytes.len());
}

#[test]
fn without_scripts_the_page_is_complete() {
    let place = scaling();
    let view = &browser::look_without_scripts(&page(place.path(), &["."]), &[1280])[0];
    assert_eq!((&view["controls"], &view["plots"]), (&0.into(), &PLOTS.len().into()), "{view}");
    assert_eq!((&view["plots_in_words"], &view["too_wide"]), (&PLOTS.len().into(), &Value::Bool(false)), "{view}");
}

/// A chart in a browser.
struct Charted<'a> {
    browser: &'a Driver,
    title: &'a str,
}

impl Charted<'_> {
    /// What an expression about the `figure` and its `plot` is.
    fn see(&self, expression: &str) -> Value {
        let title = self.title;
        let find = format!(
            "[...document.querySelectorAll('figure')].find(one => one.querySelector('h3').textContent === '{title}')"
        );
        self.browser
            .see(&format!("const figure = {find}, plot = figure.querySelector(':scope > svg'); return {expression};"))
    }

    /// Places of the window from shares of the plot's width and height, wherever the page is scrolled to.
    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let scroll = "plot.scrollIntoView({ block: 'center', behavior: 'instant' })";
        let places = self.see(&format!(
            "({scroll}, [...['left', 'top', 'width', 'height']].map(side => plot.getBoundingClientRect()[side]))"
        ));
        let side = |index: usize| places[index].as_f64().unwrap();
        (side(0) + x * side(2), side(1) + y * side(3))
    }

    fn ticks(&self) -> Vec<f64> {
        let texts =
            "[...plot.querySelectorAll('text.tick[text-anchor=middle]')].map(one => parseFloat(one.textContent))";
        self.see(texts).as_array().unwrap().iter().map(|tick| tick.as_f64().unwrap()).collect()
    }

    fn click(&self, button: &str) {
        self.see(&format!(
            "[...figure.querySelectorAll('button')].find(one => one.textContent.includes('{button}')).click()"
        ));
    }
}

/// Letters that stand for keys without one.
const RIGHT: &str = "\u{e014}";

#[test]
fn a_reader_explores_the_charts() {
    let place = scaling();
    let browser = Driver::open(&page(place.path(), &["."]), (1280, 900));
    let loss = Charted { browser: &browser, title: "Loss over time" };
    let said = || loss.see("figure.querySelector('.readout').hidden ? '' : figure.querySelector('.readout').innerText");
    // Values under the pointer.
    let (x, y) = loss.at(0.4, 0.5);
    browser.point(&[(x, y, false)]);
    let hovered = said();
    let hovered = hovered.as_str().unwrap();
    assert!(hovered.starts_with("time since the start: ") && hovered.contains(" training: "), "{hovered}");
    // A part of the time, and all of it again.
    let (whole, (left, _), (right, _)) = (loss.ticks(), loss.at(0.3, 0.5), loss.at(0.45, 0.5));
    browser.point(&[(left, y, true), (right, y, true), (right, y, false)]);
    let part = loss.ticks();
    assert!(part.len() > 2 && part[0] > 0.0 && part.last() < whole.last(), "{whole:?} {part:?}");
    assert_eq!(loss.see("[...figure.querySelectorAll('button')].at(-1).hidden"), false);
    // On a busy machine two clicks may be too far apart to be one double click.
    wait::until("a double click shows the whole chart", || {
        browser.double_click(loss.at(0.5, 0.5));
        loss.ticks() == whole
    });
    assert_eq!(loss.see("[...figure.querySelectorAll('button')].at(-1).hidden"), true);
    // Fewer runs, in every chart that has them.
    let lines = |title, colour: usize| {
        Charted { browser: &browser, title }.see(&format!("plot.querySelectorAll('path.line.c{colour}').length"))
    };
    let legend = "document.querySelector('.legend [data-key=\"0\"] button')";
    let before = lines("Accuracy over samples", 0);
    assert_eq!((&before, lines("Loss over time", 1)), (&6.into(), 6.into()));
    browser.see(&format!("{legend}.click()"));
    assert_eq!((lines("Accuracy over samples", 0), lines("Accuracy over samples", 1)), (0.into(), 6.into()));
    assert_eq!(browser.see(&format!("return {legend}.getAttribute('aria-pressed')")), "false");
    let rows =
        "return [...document.querySelectorAll('figure g[data-key=\"0\"]')].every(row => row.classList.contains('off'))";
    assert_eq!(browser.see(rows), true);
    browser.see(&format!("{legend}.click()"));
    assert_eq!(lines("Accuracy over samples", 0), before);
    // Orders of magnitude.
    let unit = || loss.see("plot.querySelector('text.unit[text-anchor=end]').textContent");
    assert_eq!(unit(), "time since the start (s)");
    loss.click("log x");
    assert_eq!(unit(), "time since the start (s), logarithmic");
    loss.click("log x");
    // By keyboard alone: a mean, and values.
    browser.see("document.querySelector('.smoothing input').focus()");
    browser.press(&RIGHT.repeat(20));
    assert_eq!(loss.see("plot.querySelectorAll('path.raw').length"), 16, "one per run");
    loss.see("plot.focus()");
    browser.press(RIGHT);
    let first = said();
    browser.press(RIGHT);
    let second = said();
    assert!(first.as_str().unwrap().contains(", mean ") && first != second, "{first} {second}");
    assert!(browser.sheets() <= 3, "it prints on {} sheets", browser.sheets());
    assert_eq!(browser.complaints(), Vec::<Value>::new());
}
