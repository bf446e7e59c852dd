//! How runs went: loss, accuracy and throughput over time and over samples.

use super::Figure;
use crate::{
    commands::report::{
        compare::Group,
        findings::Findings,
        read::{RecordedRun, RecordedStep},
        words::{duration, grouped, percent, tidy_percent},
    },
    plot::{Chart, Dots, Dotted, Guide, Scale, Series},
};

/// Points of all lines of a plot together, and of one line at least and at most.
const POINTS: (usize, usize, usize) = (3000, 24, 240);
/// Points of a line of throughput; with more it would be too jagged.
const RATES: usize = 48;

/// The horizontal axis.
#[derive(Clone, Copy)]
enum Over {
    Time,
    Samples,
}

impl Over {
    fn of(self, step: &RecordedStep) -> Option<f64> {
        match self {
            Over::Time => step.seconds,
            Over::Samples => step.samples,
        }
    }

    fn axis(self) -> (&'static str, Scale) {
        match self {
            Over::Time => ("time since the start", Scale::Time),
            Over::Samples => ("samples seen by all workers", Scale::Plain),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Over::Time => "time",
            Over::Samples => "samples",
        }
    }
}

type Value = fn(&RecordedStep) -> Option<f64>;

/// Accuracy and loss over time and over samples, and throughput with the accuracy it led to.
pub(super) fn figures(findings: &Findings) -> Vec<Figure> {
    let accuracy: (Value, Value) = (|step| step.accuracy, |step| step.test_accuracy);
    let loss: (Value, Value) = (|step| step.loss, |step| step.test_loss);
    let accuracy = |over| learned(findings, "Accuracy", Scale::Share, accuracy, over);
    let loss = |over| learned(findings, "Loss", Scale::Wide, loss, over);
    let over_time = [accuracy(Over::Time), loss(Over::Time), throughput(findings)];
    let over_samples = [accuracy(Over::Samples), loss(Over::Samples), compared(findings)];
    over_time.into_iter().chain(over_samples).flatten().collect()
}

fn learned(findings: &Findings, name: &str, scale: Scale, of: (Value, Value), over: Over) -> Option<Figure> {
    let mut series = Vec::new();
    let tested = findings.runs.iter().any(|run| run.steps.iter().any(|step| of.1(step).is_some()));
    let alone = findings.runs.len() == 1;
    for (index, run) in findings.runs.iter().enumerate() {
        let (label, style) = (findings.label_of(index), findings.style_of(index));
        let training = thin(points(run, of.0, over), findings.runs.len());
        let test = points(run, of.1, over);
        let tips = test.iter().map(|point| tip(name, point.1)).collect();
        let names = match (alone, tested) {
            (true, _) => ("training".to_owned(), "test".to_owned()),
            (false, true) => (String::new(), label),
            (false, false) => (label, String::new()),
        };
        let (key, full) = (findings.key_of(index), findings.full_name_of(index));
        let full = |what: &str| [full.as_str(), what].join(" ").trim().to_owned();
        series.push(Series {
            name: names.0,
            style,
            points: training,
            faint: tested,
            noisy: true,
            full_name: full("training"),
            key,
            ..Series::default()
        });
        let (full_name, marks) = (full("test"), Some(tips));
        series.push(Series { name: names.1, style, points: test, marks, full_name, key, ..Series::default() });
    }
    if scale == Scale::Share && tested {
        let lowest = series.iter().filter(|series| series.marks.is_some()).flat_map(|series| &series.points);
        let lowest = lowest.map(|point| point.1).fold(1.0, f64::min);
        // Training that has not come as far as the first test would push everything that matters to the edge.
        let training = series.iter_mut().filter(|series| series.marks.is_none());
        training.for_each(|series| series.points.retain(|point| point.1 >= lowest));
    }
    series.retain(|series| !series.points.is_empty());
    let target = findings.groups.iter().find_map(|group| group.reached.as_ref()).map(|reached| reached.0);
    let one_target = findings.groups.iter().filter_map(|group| group.reached.as_ref()).all(|one| Some(one.0) == target);
    let guides = match target {
        Some(target) if one_target && scale == Scale::Share => {
            vec![Guide { name: format!("goal {}", tidy_percent(target)), at: (target, 0.0) }]
        }
        _ => Vec::new(),
    };
    let y = if scale == Scale::Share { ("accuracy", scale) } else { ("loss", scale) };
    let title = format!("{name} over {}", over.name());
    let chart = Chart { title, x: over.axis(), y, from_zero: (true, scale != Scale::Share), series, guides };
    let note = match (tested, alone) {
        (true, true) => "Marks: after each test, on samples that are not trained with. Thin line: training, averaged.",
        (true, false) => "Marks: after each test. Thin lines: training, averaged. All runs are drawn.",
        (false, _) => "Of training; no tests were recorded.",
    };
    let cut = if tested && scale == Scale::Share { " The axis begins with the lowest test." } else { "" };
    Figure::of(&chart, format!("{note}{cut}"))
}

fn tip(name: &str, value: f64) -> String {
    if name == "Accuracy" { percent(value) } else { format!("{value:.4}") }
}

fn points(run: &RecordedRun, value: Value, over: Over) -> Vec<(f64, f64)> {
    run.steps.iter().filter_map(|step| Some((over.of(step)?, value(step)?))).collect()
}

/// Neighbours averaged, so that a page of many long runs stays small.
fn thin(points: Vec<(f64, f64)>, runs: usize) -> Vec<(f64, f64)> {
    let most = (POINTS.0 / runs.max(1)).clamp(POINTS.1, POINTS.2);
    if points.len() <= most {
        return points;
    }
    let mean = |chunk: &[(f64, f64)]| {
        let sum = chunk.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
        (sum.0 / chunk.len() as f64, sum.1 / chunk.len() as f64)
    };
    points.chunks(points.len().div_ceil(most)).map(mean).collect()
}

fn throughput(findings: &Findings) -> Option<Figure> {
    let line = |(index, run): (usize, &RecordedRun)| Series {
        name: findings.label_of(index),
        style: findings.style_of(index),
        points: rates(run),
        noisy: true,
        full_name: findings.full_name_of(index),
        key: findings.key_of(index),
        ..Series::default()
    };
    let series: Vec<Series> =
        findings.runs.iter().enumerate().map(line).filter(|series| !series.points.is_empty()).collect();
    let title = "Throughput over time".into();
    let (x, y) = (Over::Time.axis(), ("samples/s of all workers", Scale::Plain));
    let chart = Chart { title, x, y, from_zero: (true, true), series, guides: Vec::new() };
    Figure::of(&chart, format!("Tests included. {}", accuracies(findings)))
}

/// Test accuracy at the end, group by group.
fn accuracies(findings: &Findings) -> String {
    let one = |run: &RecordedRun| run.test_accuracy().map(percent);
    let list: Vec<String> = match findings.runs.as_slice() {
        [run] => one(run).into_iter().collect(),
        _ => findings
            .groups
            .iter()
            .filter_map(|group| Some(format!("{} {}", group.letter, percent(group.accuracy.as_ref()?.mean))))
            .collect(),
    };
    if list.is_empty() {
        "No test accuracy was recorded.".into()
    } else {
        format!("Test accuracy at the end: {}.", list.join(", "))
    }
}

/// Samples per second between rows, thinned to a limited number.
fn rates(run: &RecordedRun) -> Vec<(f64, f64)> {
    let rows = points(run, |step| step.samples, Over::Time);
    let every = rows.len().div_ceil(RATES).max(1);
    let mut marks: Vec<(f64, f64)> = rows.iter().copied().step_by(every).collect();
    marks.extend(rows.last().filter(|last| marks.last() != Some(last)));
    let rate = |pair: &[(f64, f64)]| {
        let (seconds, samples) = (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
        (seconds > 1e-6 && samples >= 0.0).then(|| ((pair[0].0 + pair[1].0) / 2.0, samples / seconds))
    };
    marks.windows(2).filter_map(rate).collect()
}

/// One line per group: throughput, with the test accuracy beside it.
fn compared(findings: &Findings) -> Option<Figure> {
    if findings.runs.len() < 2 {
        return None;
    }
    let line = |(index, group): (usize, &Group)| Dotted {
        name: findings.name_of(index),
        style: index,
        values: group.throughput.as_ref().map_or(Vec::new(), |spread| spread.values.clone()),
        mean: group.throughput.as_ref().map(|spread| spread.mean),
        note: group.accuracy.as_ref().map_or("no test".into(), |spread| percent(spread.mean)),
        key: findings.key_of_group(index),
    };
    let lines: Vec<Dotted> = findings.groups.iter().enumerate().map(line).collect();
    let title = "Throughput and test accuracy".to_owned();
    let show = |value| format!("{} samples/s", grouped(value));
    let dots = Dots { title: title.clone(), x: ("samples/s of all workers", Scale::Plain), lines, show };
    let longest = findings.runs.iter().filter_map(RecordedRun::lasted).fold(0.0, f64::max);
    let note = format!(
        "Marks: finished runs, of which the longest took {}. Stroke: their mean. To the right: mean test accuracy at the end.",
        duration(longest)
    );
    Some(Figure::new(title, note, dots.draw()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_averaged_and_keep_their_mean() {
        let line: Vec<(f64, f64)> = (0..1000).map(|index| (f64::from(index), f64::from(index % 2))).collect();
        let thinned = thin(line.clone(), 1);
        assert!(thinned.len() <= POINTS.2 && thinned.iter().all(|point| (0.2..0.8).contains(&point.1)));
        assert!(thin(line, 1000).len() <= POINTS.1);
        assert_eq!(thin(vec![(1.0, 2.0)], 5), [(1.0, 2.0)]);
    }

    #[test]
    fn rates_come_from_neighbours_and_ignore_clocks_that_stand_still() {
        let row = |seconds, samples| RecordedStep {
            seconds: Some(seconds),
            samples: Some(samples),
            ..RecordedStep::default()
        };
        let run = RecordedRun {
            steps: vec![row(1.0, 0.0), row(2.0, 50.0), row(2.0, 60.0), row(4.0, 160.0)],
            ..RecordedRun::default()
        };
        assert_eq!(rates(&run), [(1.5, 50.0), (3.0, 50.0)]);
    }
}
