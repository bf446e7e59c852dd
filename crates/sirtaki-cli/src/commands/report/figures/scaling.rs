//! More workers: speed-up and efficiency beside the ideal, and time to accuracy.

use super::Figure;
use crate::{
    commands::report::{
        compare::{Group, Point, ScalingSeries},
        findings::Findings,
        spread::{ENOUGH, Spread},
        words::{count, duration, percent, rounded_percent, tidy_percent},
    },
    plot::{Chart, Dots, Dotted, Guide, Scale, Series},
};

/// All figures for which there is data.
pub(super) fn figures(findings: &Findings) -> Vec<Figure> {
    [speedup(findings), efficiency(findings), time_to_accuracy(findings)].into_iter().flatten().collect()
}

/// One line per scaling, with the range of every point.
fn series(findings: &Findings, of: fn(&Point) -> &Spread, show: fn(f64) -> String) -> Vec<Series> {
    let tip = |point: &Point| {
        let accuracy = point.accuracy.as_ref().map_or("not recorded".into(), |accuracy| percent(accuracy.mean));
        format!("{}: {}, test accuracy {accuracy}", count(point.workers, "worker"), of(point).show(show))
    };
    let line = |(style, scaling): (usize, &ScalingSeries)| Series {
        name: scaling
            .points
            .last()
            .map_or(String::new(), |point| format!("{} {}", scaling.kind.name(), show(of(point).mean))),
        style,
        points: scaling.points.iter().map(|point| (point.workers as f64, of(point).mean)).collect(),
        ranges: scaling.points.iter().map(|point| (of(point).low(), of(point).high())).collect(),
        marks: Some(scaling.points.iter().map(tip).collect()),
        full_name: scaling.kind.name().into(),
        ..Series::default()
    };
    findings.scalings.iter().enumerate().map(line).collect()
}

/// What each scaling keeps equal and is compared with, and the accuracy at both ends.
fn note(findings: &Findings) -> String {
    let accuracy = |point: &Point| point.accuracy.as_ref().map(|accuracy| percent(accuracy.mean));
    let about = |scaling: &ScalingSeries| {
        let ends = scaling.points.first().zip(scaling.points.last());
        let ends = ends.and_then(|(first, last)| Some(format!("{} to {}", accuracy(first)?, accuracy(last)?)));
        let ends = ends.map_or("not recorded".into(), |ends| ends);
        let baseline = scaling.baseline(&findings.groups);
        format!("{}; baseline {baseline}; test accuracy {ends}.", scaling.title())
    };
    let about: Vec<String> = findings.scalings.iter().map(about).collect();
    format!("{} Bars: range over runs.", about.join(" "))
}

fn speedup(findings: &Findings) -> Option<Figure> {
    let chart = Chart {
        title: "Speed-up".into(),
        x: ("workers", Scale::Workers),
        y: ("samples/s, times the baseline's", Scale::Plain),
        from_zero: (true, true),
        series: series(findings, |point| &point.speedup, |value| format!("{value:.2}×")),
        guides: vec![Guide { name: "ideal".into(), at: (0.0, 1.0) }],
    };
    Figure::of(&chart, note(findings))
}

fn efficiency(findings: &Findings) -> Option<Figure> {
    let chart = Chart {
        title: "Efficiency".into(),
        x: ("workers", Scale::Workers),
        y: ("samples/s per worker, of the baseline's", Scale::Share),
        from_zero: (true, true),
        series: series(findings, |point| &point.efficiency, rounded_percent),
        guides: vec![Guide { name: "ideal".into(), at: (1.0, 0.0) }],
    };
    Figure::of(&chart, note(findings))
}

/// Time to accuracy, if several runs have a goal.
fn time_to_accuracy(findings: &Findings) -> Option<Figure> {
    let with_goal = findings.groups.iter().filter(|group| group.reached.is_some()).count();
    if findings.runs.len() < 2 || with_goal == 0 {
        return None;
    }
    let line = |(index, group): (usize, &Group)| {
        let (target, reached) = group.reached.as_ref()?;
        let (got, of) = (reached.times.len(), reached.runs);
        let note = match got {
            _ if of == 0 => "no finished run".into(),
            0 => "not reached".into(),
            _ if got < of => format!("{got} of {of} runs"),
            _ => reached.mean.map_or(String::new(), duration),
        };
        let line = Dotted {
            name: findings.name_of(index),
            style: index,
            values: reached.times.clone(),
            mean: reached.mean,
            note,
            key: findings.key_of_group(index),
        };
        Some((*target, line))
    };
    let (targets, lines): (Vec<f64>, Vec<Dotted>) = findings.groups.iter().enumerate().filter_map(line).unzip();
    let mut goals: Vec<String> = targets.into_iter().map(tidy_percent).collect();
    goals.dedup();
    let title = format!("Time to {} test accuracy", goals.join(" or "));
    let dots = Dots { title: title.clone(), x: ("time since the start", Scale::Time), lines, show: duration };
    let note = format!(
        "Marks: finished runs, one per seed. Stroke: mean; from {ENOUGH} runs on without the best and the worst. A run that never got there counts as the worst."
    );
    Some(Figure::new(title, note, dots.draw()))
}
