//! A prediction as one page with plots, in the form of the pages of `sirtaki report`. Every heading says that it is
//! simulated, and what was recorded stands beside what is predicted for it: a page is passed on without the command that
//! made it.

use std::path::Path;

use anyhow::{Context, Result};
use sirtaki_engine::files;

use super::{
    failure_table::long,
    scale::Prediction,
    show::{Forecast, LEFT_OUT, seconds},
    strategy::Strategy,
};
use crate::{
    commands::report::{
        document::{Document, Key, Table, TableRow},
        figures::{Figure, Section},
        page::{self, Appearance},
        words::{bytes, count, figure, percent, tidy_percent},
    },
    plot::{Chart, Guide, Scale, Series},
};

/// How to read the figures.
const READING: [&str; 4] = [
    "Simulated: computed by sirtaki predict from one recorded run or a described network; docs/predict.md describes the \
     model, its accuracy and its limits.",
    "Efficiency: the speed of N workers divided by N times the speed of one.",
    "Goodput: the time in which a job does what it need not do again, divided by all time.",
    "Waiting: for workers that compute longer. Communication: what computing does not hide.",
];

/// Writes the page.
pub(super) fn save(forecast: &Forecast, file: &Path) -> Result<()> {
    files::write(file, write(forecast).as_bytes()).with_context(|| format!("cannot write {}", file.display()))
}

/// The page.
pub(super) fn write(forecast: &Forecast) -> String {
    let mut notes = vec!["Simulated: nothing here was measured but what is called recorded.".to_owned()];
    if forecast.calibration.is_none() {
        notes.push(
            "Nothing was recorded: the network was described in a file, so there is nothing to compare with.".into(),
        );
    }
    notes.extend(forecast.assumptions());
    notes.push(LEFT_OUT.into());
    let document = Document {
        title: format!("Simulated with sirtaki predict: {}", forecast.work.title),
        sentence: sentence(forecast),
        census: format!(
            "{} a host, {} Gbit/s and {} between hosts; a step computes for {} and reduces {}.",
            count(forecast.network.per_host, "worker"),
            figure(forecast.network.bandwidth * 8e-9),
            seconds(forecast.network.latency),
            seconds(forecast.work.computing()),
            bytes(forecast.work.bytes() as f64)
        ),
        keys: keys(forecast),
        notes,
        tables: calibration(forecast).into_iter().chain([rows(forecast)]).collect(),
        links: Vec::new(),
    };
    let sections = [Section { title: "Simulated".into(), figures: figures(forecast) }];
    page::assemble(&document, "", &sections, &READING, Appearance::Inside)
}

/// Goodput times efficiency.
fn overall(row: &Prediction) -> f64 {
    row.efficiency * row.failures.map_or(1.0, |found| found.goodput)
}

fn sentence(forecast: &Forecast) -> String {
    let Some(row) = forecast.rows.last() else { return String::new() };
    let most = forecast.rows.iter().filter(|other| other.workers == row.workers);
    let Some(best) = most.max_by(|one, other| overall(one).total_cmp(&overall(other))) else { return String::new() };
    let strategy =
        if forecast.strategies.len() > 1 { format!(" with {}", best.strategy.label()) } else { String::new() };
    let workers = count(best.workers, "worker");
    let speed = figure(best.speedup);
    let efficiency = percent(best.efficiency);
    match best.failures {
        None => {
            format!("Simulated: {workers} are {speed} times as fast as one{strategy}, an efficiency of {efficiency}.")
        }
        Some(found) => format!(
            "Simulated: {workers} are {speed} times as fast as one{strategy}, an efficiency of {efficiency}; failures leave {} \
             of the time.",
            percent(found.goodput)
        ),
    }
}

fn keys(forecast: &Forecast) -> Vec<Key> {
    let mut keys = Vec::new();
    if let Some(found) = forecast.calibration {
        keys.push(Key {
            name: "predicted for the record",
            value: format!("{:+.1} %", 100.0 * found.difference()),
            detail: format!(
                "a step of {}, recorded: {}",
                count(found.workers, "worker"),
                seconds(found.recorded_step_seconds)
            ),
        });
    }
    let varies = forecast.work.variation();
    let source = if forecast.work.noise.is_some() { "as given" } else { "as recorded" };
    keys.push(Key { name: "steps vary by", value: tidy_percent(varies), detail: source.into() });
    if let Some(faults) = forecast.faults {
        let detail = "mean time of one host".into();
        keys.push(Key { name: "between failures", value: long(faults.mtbf), detail });
    }
    keys
}

/// Lines over the number of workers: one for each strategy.
fn lines(forecast: &Forecast, value: impl Fn(&Prediction) -> Option<f64>) -> Vec<Series> {
    let line = |(style, strategy): (usize, &Strategy)| {
        let rows = forecast.rows.iter().filter(|row| row.strategy == *strategy);
        series(style, &strategy.label(), rows.filter_map(|row| Some((row.workers as f64, rounded(value(row)?)))))
    };
    forecast.strategies.iter().enumerate().map(line).collect()
}

/// Without the last bits, by which a share may be above 1.
fn rounded(value: f64) -> f64 {
    (value * 1e9).round() / 1e9
}

fn series(style: usize, name: &str, points: impl Iterator<Item = (f64, f64)>) -> Series {
    let points: Vec<(f64, f64)> = points.collect();
    let marks = points.iter().map(|(x, y)| format!("{name}: {} at {} (simulated)", figure(*y), figure(*x))).collect();
    Series { name: name.into(), style, points, marks: Some(marks), ..Series::default() }
}

fn chart(title: &str, y: (&'static str, Scale), series: Vec<Series>) -> Chart {
    let (title, x) = (format!("{title} (simulated)"), ("workers", Scale::Powers));
    Chart { title, x, y, from_zero: (false, true), series, guides: Vec::new() }
}

fn figures(forecast: &Forecast) -> Vec<Figure> {
    let efficiency = chart("Efficiency", ("efficiency", Scale::Share), lines(forecast, |row| Some(row.efficiency)));
    let mut speed = chart("Speed-up", ("speed-up", Scale::Powers), lines(forecast, |row| Some(row.speedup)));
    speed.guides.push(Guide { name: "ideal".into(), at: (0.0, 1.0) });
    let step = chart("Time of a step", ("seconds", Scale::Wide), lines(forecast, |row| Some(row.step_seconds)));
    let goodput = |row: &Prediction| row.failures.map(|found| found.goodput);
    let useful = chart("Goodput", ("goodput", Scale::Share), lines(forecast, goodput));
    let both = chart(
        "Efficiency times goodput",
        ("overall", Scale::Share),
        lines(forecast, |row| row.failures.map(|found| found.goodput * row.efficiency)),
    );
    let mut all = vec![
        Figure::of(&efficiency, "What workers achieve of what as many could without any loss, failures left out."),
        Figure::of(&useful, "What failures leave of the time."),
        Figure::of(&both, "What is left of the workers' time after both."),
        Figure::of(&speed, "Against one worker, failures left out."),
        Figure::of(&step, "Shorter is better only if steps compute the same; see the notes."),
    ];
    if forecast.strategies.len() == 1 {
        all.push(Figure::of(
            &parts(&forecast.rows),
            "What a step consists of: computing, waiting for slower workers, and communication that nothing hides.",
        ));
    }
    all.into_iter().flatten().collect()
}

/// What a step consists of.
fn parts(rows: &[Prediction]) -> Chart {
    let share = |row: &Prediction, seconds: f64| (seconds / row.step_seconds).clamp(0.0, 1.0);
    let of = |style, name: &str, part: &dyn Fn(&Prediction) -> f64| {
        series(style, name, rows.iter().map(|row| (row.workers as f64, share(row, part(row)))))
    };
    let series = vec![
        of(0, "computing", &|row| row.step_seconds - row.straggler_seconds.max(0.0) - row.communication_seconds),
        of(1, "waiting", &|row| row.straggler_seconds),
        of(2, "network", &|row| row.communication_seconds),
    ];
    chart("Where the time goes", ("of a step", Scale::Share), series)
}

/// What was recorded beside what is predicted for it, if anything was recorded.
fn calibration(forecast: &Forecast) -> Option<Table> {
    let found = forecast.calibration?;
    let cells = vec![
        count(found.workers, "worker"),
        seconds(found.recorded_step_seconds),
        seconds(found.predicted_step_seconds),
        format!("{:+.1} %", 100.0 * found.difference()),
    ];
    let note = "The recorded workers, predicted from their own record. docs/predict.md compares other links with measurements.";
    Some(Table {
        title: "Recorded beside predicted".into(),
        note: note.into(),
        head: vec!["recorded", "#recorded step", "#predicted step", "#difference"],
        more: Vec::new(),
        rows: vec![TableRow { cells, marked: false }],
    })
}

fn rows(forecast: &Forecast) -> Table {
    let row = |row: &Prediction| {
        let mut cells = vec![
            count(row.workers, "worker"),
            row.strategy.label(),
            seconds(row.step_seconds),
            percent(row.efficiency),
            seconds(row.straggler_seconds.max(0.0)),
            seconds(row.communication_seconds.max(0.0)),
            bytes(row.sent_bytes),
            bytes(row.memory_bytes as f64),
        ];
        if let Some(found) = row.failures {
            let every = found.checkpoint_seconds.map_or_else(|| "none".into(), long);
            cells.extend([long(found.failure_seconds), every, percent(found.goodput), percent(overall(row))]);
        }
        TableRow { cells, marked: false }
    };
    let mut head =
        vec!["workers", "strategy", "#step", "#efficiency", "#waiting", "#communication", "#sent", "#memory"];
    if forecast.faults.is_some() {
        head.extend(["#fails every", "#checkpoint every", "#goodput", "#overall"]);
    }
    Table {
        title: "Simulated".into(),
        note:
            "Sent is what a worker sends in a step; memory is that of a worker for weights, gradients and Adam's state."
                .into(),
        head,
        more: Vec::new(),
        rows: forecast.rows.iter().map(row).collect(),
    }
}
