//! More workers: speed-up and efficiency beside the ideal, and time to accuracy.

use super::Figure;
use crate::commands::report::{
    compare::{Point, Scaling},
    findings::Findings,
    plot::{Chart, Dots, Guide, Line, Scale, Series},
    spread::{ENOUGH, Spread},
    words::{count, duration, percent, rounded_percent, tidy_percent},
};

/// All of them that there is something to say about.
pub(super) fn figures(findings: &Findings) -> Vec<Figure> {
    let mut figures = Vec::new();
    for scaling in &findings.scalings {
        figures.push(speedup(findings, scaling));
        figures.push(efficiency(findings, scaling));
    }
    figures.extend(time_to_accuracy(findings));
    figures
}

/// Points with their ranges; groups of the same number of workers lie above each other.
fn series(scaling: &Scaling, of: fn(&Point) -> &Spread, show: fn(f64) -> String) -> Series {
    let tip = |point: &Point| {
        let accuracy = point.accuracy.as_ref().map_or(String::new(), |accuracy| format!(", test accuracy {}", percent(accuracy.mean)));
        format!("{}: {}{accuracy}", count(point.workers, "worker"), of(point).show(show))
    };
    Series {
        name: scaling.points.last().map_or(String::new(), |point| show(of(point).mean)),
        points: scaling.points.iter().map(|point| (point.workers as f64, of(point).mean)).collect(),
        ranges: scaling.points.iter().map(|point| (of(point).low(), of(point).high())).collect(),
        marks: Some(scaling.points.iter().map(tip).collect()),
        ..Series::default()
    }
}

/// Where the figures come from, with the accuracy of both ends.
fn note(findings: &Findings, scaling: &Scaling) -> String {
    let accuracy = |point: &Point| point.accuracy.as_ref().map(|accuracy| percent(accuracy.mean));
    let ends = scaling.points.first().zip(scaling.points.last());
    let ends = ends.and_then(|(first, last)| Some(format!("{} to {}", accuracy(first)?, accuracy(last)?)));
    let ends = ends.map_or("No test accuracy was recorded.".into(), |ends| format!("Test accuracy: {ends}."));
    let mut title = scaling.title();
    if let Some(first) = title.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    format!("{title}. Baseline: {}. Bars: range over runs. {ends}", scaling.baseline(&findings.groups))
}

fn speedup(findings: &Findings, scaling: &Scaling) -> Figure {
    let title = format!("Speed-up, {} scaling", scaling.kind.name());
    let chart = Chart {
        title: title.clone(),
        x: ("workers", Scale::Workers),
        y: ("speed-up in samples/s", Scale::Plain),
        from_zero: (true, true),
        series: vec![series(scaling, |point| &point.speedup, |value| format!("{value:.2}×"))],
        guides: vec![Guide { name: "ideal".into(), at: (0.0, 1.0) }],
    };
    Figure { title, note: note(findings, scaling), svg: chart.draw() }
}

fn efficiency(findings: &Findings, scaling: &Scaling) -> Figure {
    let title = format!("Efficiency, {} scaling", scaling.kind.name());
    let chart = Chart {
        title: title.clone(),
        x: ("workers", Scale::Workers),
        y: ("samples/s per worker, of the baseline's", Scale::Share),
        from_zero: (true, true),
        series: vec![series(scaling, |point| &point.efficiency, rounded_percent)],
        guides: vec![Guide { name: "ideal".into(), at: (1.0, 0.0) }],
    };
    Figure { title, note: note(findings, scaling), svg: chart.draw() }
}

/// Where several runs have a goal.
fn time_to_accuracy(findings: &Findings) -> Option<Figure> {
    let with_goal = findings.groups.iter().filter(|group| group.reached.is_some()).count();
    if findings.runs.len() < 2 || with_goal == 0 {
        return None;
    }
    let line = |(index, group): (usize, &crate::commands::report::compare::Group)| {
        let (target, reached) = group.reached.as_ref()?;
        let (got, of) = (reached.times.len(), reached.runs);
        let note = match got {
            _ if of == 0 => "no finished run".into(),
            0 => "not reached".into(),
            _ if got < of => format!("{got} of {of} runs"),
            _ => reached.mean.map_or(String::new(), duration),
        };
        let line = Line { name: findings.name_of(index), style: index, values: reached.times.clone(), mean: reached.mean, note };
        Some((*target, line))
    };
    let (targets, lines): (Vec<f64>, Vec<Line>) = findings.groups.iter().enumerate().filter_map(line).unzip();
    let mut goals: Vec<String> = targets.into_iter().map(tidy_percent).collect();
    goals.dedup();
    let title = format!("Time to {} test accuracy", goals.join(" or "));
    let dots = Dots { title: title.clone(), x: ("time since the start", Scale::Time), lines, show: duration };
    let note = format!(
        "Marks: finished runs, one per seed. Stroke: mean; from {ENOUGH} runs on without the best and the worst. A run that never got there counts as the worst."
    );
    Some(Figure { title, note, svg: dots.draw() })
}
