//! Which plots there are, and what is in them. A plot without data is left out.

use sirtaki_launch::words::percent;
use sirtaki_search::{
    importance::importance,
    journal::Direction,
    space::{Choice, Domain, Parameter},
    study::{State, Study, Trial},
};

use crate::{
    commands::report::figures::Figure,
    plot::{BarRow, Bars, Chart, Dots, Dotted, Parallel, Scale, Series, Span, Spans, Strand, Upright},
    study::{SLOT, summary, template},
};

/// Most lines of a plot in which every trial is one.
const MOST_LINES: usize = 400;
/// Most plots of single parameters.
const MOST_SLICES: usize = 12;
/// Whole numbers that are few enough to be marked one by one.
const FEW: u64 = 12;
/// How many trials stand out.
pub(super) const BEST: usize = 5;

/// Values over trials and time.
pub(super) fn course(study: &Study) -> Vec<Figure> {
    [history(study), on_the_way(study), slots(study)].into_iter().flatten().collect()
}

/// What the parameters do.
pub(super) fn parameters(study: &Study) -> Vec<Figure> {
    let mut figures: Vec<Figure> = [importances(study), parallel(study)].into_iter().flatten().collect();
    figures.extend(super::contours::contours(study));
    figures.extend(slices(study));
    figures
}

/// Finished trials with their first value.
fn finished(study: &Study) -> Vec<(&Trial, f64)> {
    let trials = study.trials().iter().filter(|trial| trial.state == State::Finished);
    trials.filter_map(|trial| Some((trial, *trial.values.first()?))).collect()
}

fn direction(study: &Study) -> Direction {
    study.definition().objectives[0].direction
}

pub(super) fn tip(trial: &Trial, value: f64) -> String {
    format!("trial {}: {} ({})", trial.number, summary::short(value), summary::parameters(trial))
}

fn scatter(name: &str, style: usize, points: Vec<((f64, f64), String)>) -> Series {
    let (points, tips) = points.into_iter().unzip();
    Series { name: name.into(), style, points, marks: Some(tips), loose: true, ..Series::default() }
}

/// The best trials first.
pub(super) fn ranked(study: &Study) -> Vec<(&Trial, f64)> {
    let mut trials = finished(study);
    trials.sort_by(|a, b| direction(study).loss(a.1).total_cmp(&direction(study).loss(b.1)));
    trials
}

fn history(study: &Study) -> Option<Figure> {
    let trials = finished(study);
    let mut best: Vec<(f64, f64)> = Vec::new();
    for (trial, value) in &trials {
        let before = best.last().map_or(*value, |last| last.1);
        let better = if direction(study).loss(*value) < direction(study).loss(before) { *value } else { before };
        best.push((trial.number as f64, better));
    }
    let points = trials.iter().map(|(trial, value)| ((trial.number as f64, *value), tip(trial, *value))).collect();
    let line = Series { name: "best".into(), style: 1, points: best, ..Series::default() };
    let chart = Chart {
        title: "History".into(),
        x: ("trial", Scale::Plain),
        y: ("value", Scale::Wide),
        from_zero: (true, false),
        series: vec![scatter("", 0, points), line],
        guides: Vec::new(),
    };
    let objective = &study.definition().objectives[0].name;
    Figure::of(&chart, format!("{objective} of every trial that finished, and the best so far."))
}

/// Learning curves; where a rule compares trials at certain steps, how many came that far.
fn on_the_way(study: &Study) -> Option<Figure> {
    let curve = |trial: &Trial| -> Vec<(f64, f64)> {
        let finite = trial.reports.iter().filter(|(_, value)| value.is_finite());
        finite.map(|(step, value)| (*step as f64, *value)).collect()
    };
    let best: Vec<u64> = ranked(study).iter().take(1).map(|(trial, _)| trial.number).collect();
    let trials: Vec<&Trial> = study.trials().iter().filter(|trial| trial.reports.len() > 1).collect();
    let series: Vec<Series> = trials
        .iter()
        .rev()
        .take(MOST_LINES)
        .map(|trial| {
            let stands_out = best.contains(&trial.number);
            let name = if stands_out { format!("trial {}", trial.number) } else { String::new() };
            let style = usize::from(stands_out);
            let full_name = format!("trial {}", trial.number);
            let (points, faint) = (curve(trial), !stands_out);
            Series { name, style, points, faint, full_name, noisy: true, ..Series::default() }
        })
        .collect();
    let stopper = &study.definition().stopper;
    let reached = |step: u64| {
        let far = |trial: &&Trial| trial.reports.last().is_some_and(|(last, _)| *last >= step as i64);
        study.trials().iter().filter(far).count()
    };
    let rungs: Vec<String> = stopper.rungs(0).iter().map(|&step| format!("{} at step {step}", reached(step))).collect();
    let note = match rungs.is_empty() {
        true => "What trials reported on their way.".to_owned(),
        false => format!("What trials reported on their way. Trials that reached the rungs: {}.", rungs.join(", ")),
    };
    let chart = Chart {
        title: "Values on the way".into(),
        x: ("step", Scale::Plain),
        y: ("value", Scale::Wide),
        from_zero: (false, false),
        series,
        guides: Vec::new(),
    };
    Figure::of(&chart, note)
}

const STATES: [State; 6] =
    [State::Finished, State::Stopped, State::Diverged, State::TimedOut, State::Failed, State::Running];

fn slots(study: &Study) -> Option<Figure> {
    let begin = study.trials().iter().filter_map(|trial| trial.start).min()?;
    let latest = study.trials().iter().flat_map(|trial| [trial.start, trial.end]).flatten().max()?;
    let mut rows: Vec<(String, Vec<Span>)> = Vec::new();
    for trial in study.trials() {
        let slot = trial.attribute(SLOT).and_then(|slot| slot.text());
        let part = STATES.iter().position(|state| *state == trial.state);
        let (Some(slot), Some(start), Some(part)) = (slot, trial.start, part) else { continue };
        let since = |time: sirtaki_search::journal::Time| (time.0 - begin.0) as f64 / 1e6;
        let ends = (since(start), since(trial.end.unwrap_or(latest)));
        let span = Span { part, ends, tip: format!("trial {}, {}", trial.number, trial.state.word()) };
        match rows.iter_mut().find(|(name, _)| name == slot) {
            Some((_, spans)) => spans.push(span),
            None => rows.push((slot.to_owned(), vec![span])),
        }
    }
    rows.sort_by(|a, b| (a.0.len(), &a.0).cmp(&(b.0.len(), &b.0)));
    let (count, x) = (rows.len(), ("time since the start", Scale::Time));
    let svg = Spans { title: "Slots".into(), x, parts: STATES.map(State::word).to_vec(), rows };
    let note = "Which trial ran where and when, the last time that it was started.";
    (count > 0).then(|| Figure::new("Slots", note, svg.draw()))
}

fn importances(study: &Study) -> Option<Figure> {
    let definition = study.definition();
    let shares = importance(&definition.space, study.history(), 0, definition.seed);
    let mut rows: Vec<(String, f64)> =
        definition.space.parameters().iter().map(|known| known.name.clone()).zip(shares).collect();
    rows.sort_by(|a, b| b.1.total_cmp(&a.1));
    let any = rows.iter().any(|row| row.1 > 0.0);
    let row = |(name, share): (String, f64)| BarRow {
        name,
        bars: vec![vec![(0, share)]],
        note: percent(share, 0),
        key: None,
    };
    let bars = Bars {
        title: "Importance".into(),
        x: ("share of the spread", Scale::Share),
        parts: Vec::new(),
        rows: rows.into_iter().map(row).collect(),
        show: |share| percent(share, 1),
    };
    let note = "How much of the spread of values each parameter explains on its own.";
    any.then(|| Figure::new("Importance", note, bars.draw()))
}

fn parallel(study: &Study) -> Option<Figure> {
    let trials = ranked(study);
    let values: Vec<f64> = trials.iter().map(|(_, value)| *value).collect();
    let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(low, high), &value| (low.min(value), high.max(value)));
    let parameters = study.definition().space.parameters();
    let mut axes: Vec<Upright> = parameters
        .iter()
        .map(|known| {
            let end = |unit: f64| match &known.domain {
                Domain::Float { .. } => summary::short(known.domain.from_unit(unit)),
                domain => template::word(domain, domain.from_unit(unit)),
            };
            Upright { name: known.name.clone(), ends: (end(0.0), end(1.0)) }
        })
        .collect();
    axes.push(Upright {
        name: study.definition().objectives[0].name.clone(),
        ends: (summary::short(low), summary::short(high)),
    });
    let strand = |(rank, (trial, value)): (usize, &(&Trial, f64))| {
        let unit = |known: &Parameter| Some(known.domain.to_unit(trial.setting(&known.name)?.value));
        let mut places: Vec<Option<f64>> = parameters.iter().map(unit).collect();
        places.push(Some(if high > low { (value - low) / (high - low) } else { 0.5 }));
        Strand { places, best: rank < BEST, tip: tip(trial, *value) }
    };
    let strands: Vec<Strand> = trials.iter().take(MOST_LINES).enumerate().map(strand).collect();
    let plot = Parallel { title: "All parameters at once".into(), axes, strands };
    let note = format!("One line per trial; the best {} stand out.", BEST.min(trials.len()));
    (!trials.is_empty() && parameters.len() > 1).then(|| Figure::new("All parameters at once", note, plot.draw()))
}

/// The value over each parameter alone.
fn slices(study: &Study) -> Vec<Figure> {
    let trials = finished(study);
    let objective = &study.definition().objectives[0].name;
    let slice = |known: &Parameter| {
        let settings = trials
            .iter()
            .filter_map(|(trial, value)| Some((*trial, trial.setting(&known.name)?.value, *value)))
            .collect();
        let note = format!("{objective} of every trial over {} alone.", known.name);
        match &known.domain {
            Domain::Choices(choices) => Some(Figure::new(&known.name, note, chosen(known, choices, settings).draw())),
            _ => Figure::of(&over(known, settings), note),
        }
    };
    match trials.is_empty() {
        true => Vec::new(),
        false => study.definition().space.parameters().iter().take(MOST_SLICES).filter_map(slice).collect(),
    }
}

/// Trials with a parameter's setting and their value.
type Settings<'a> = Vec<(&'a Trial, f64, f64)>;

fn chosen(known: &Parameter, choices: &[Choice], settings: Settings<'_>) -> Dots {
    let line = |(index, choice): (usize, &Choice)| {
        let own = settings.iter().filter(|(_, at, _)| *at == index as f64);
        let mut values: Vec<f64> = own.map(|(_, _, value)| *value).collect();
        values.sort_by(f64::total_cmp);
        let mean = (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
        let note = if values.len() == 1 { "1 trial".into() } else { format!("{} trials", values.len()) };
        Dotted { name: choice.to_string(), style: index, values, mean, note, key: None }
    };
    let lines = choices.iter().enumerate().map(line).collect();
    Dots { title: known.name.clone(), x: ("value", Scale::Plain), lines, show: summary::short }
}

fn over(known: &Parameter, settings: Settings<'_>) -> Chart {
    let points = settings.into_iter().map(|(trial, at, value)| ((at, value), tip(trial, value))).collect();
    Chart {
        title: known.name.clone(),
        x: ("parameter", scale(&known.domain)),
        y: ("value", Scale::Wide),
        from_zero: (false, false),
        series: vec![scatter("", 0, points)],
        guides: Vec::new(),
    }
}

/// The scale by which a parameter was searched.
fn scale(domain: &Domain) -> Scale {
    match domain {
        Domain::Float { log: true, .. } | Domain::Int { log: true, .. } => Scale::Powers,
        Domain::Int { .. } if domain.count().is_some_and(|count| count <= FEW) => Scale::Workers,
        _ => Scale::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_drawn_as_it_was_searched() {
        let drawn = |domain: Domain, values: &[f64]| {
            let known = Parameter { name: "p".into(), domain, when: None };
            let series = vec![scatter("", 0, values.iter().map(|&at| ((at, 1.0), String::new())).collect())];
            Chart { series, ..over(&known, Vec::new()) }.draw()
        };
        let float = |log| Domain::Float { low: 0.001, high: 1.0, log, step: None };
        let wide = [0.002, 0.4, 0.9];
        assert!(drawn(float(true), &wide).contains(">parameter, logarithmic</text>"));
        let linear = drawn(float(false), &wide);
        assert!(linear.contains(">parameter</text>") && linear.contains(">0.8</text>"), "{linear}");
        let layers = |log| Domain::Int { low: 1, high: 64, log, step: 1 };
        assert!(drawn(layers(true), &[1.0, 2.0]).contains("logarithmic"), "also where few values were tried");
        assert!(!drawn(layers(false), &[1.0, 60.0]).contains("logarithmic"));
    }
}
