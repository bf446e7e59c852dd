//! A job in a few rows of a terminal, or in one line of a log.
//!
//! The same rows are always shown, whatever is known, so that nothing jumps: progress, training results, and, with
//! several ranks, which one is late; between them, once they are known, how full and busy GPUs are. What does not fit is left out from the right.

use sirtaki_engine::telemetry::GpuSample;
use sirtaki_launch::words::{grouped, percent, seconds_in_words};
use unicode_width::UnicodeWidthStr;

use super::going::Moment;
use crate::printer::Style;

/// Most cells of the bar.
const BAR: usize = 24;
/// Most cells for ranks.
const STRIP: usize = 32;
/// Shares from nothing to everything.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Seconds of silence after which it is mentioned.
const SILENCE: f64 = 10.0;
/// The share of the time that others have to wait for a rank before it is mentioned.
const LATE: f64 = 0.05;
/// How many times the mean of all ranks its lateness has to be before it is named: ranks are late in turn on any machine.
const ODD: f64 = 1.5;

/// Words that belong together: the name, the value, its unit.
#[derive(Debug, PartialEq)]
struct Figure(&'static str, String, &'static str);

impl Figure {
    fn text(&self) -> String {
        self.shown(&|_, text| text.into())
    }

    fn shown(&self, paint: &dyn Fn(Style, &str) -> String) -> String {
        let faint = |text: &str| if text.is_empty() { String::new() } else { paint(Style::Faint, text) };
        let parts = [faint(self.0), self.1.clone(), faint(self.2)];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

/// The rows of a window of `columns` columns.
pub(super) fn rows(moment: &Moment, columns: usize, paint: &dyn Fn(Style, &str) -> String) -> Vec<String> {
    let mut rows = vec![row(bar(moment, columns, paint), position(moment), columns, paint)];
    let learned = learned(moment);
    if !learned.is_empty() {
        rows.push(row((String::new(), 0), learned, columns, paint));
    }
    let gpus = gpus(moment);
    if !gpus.is_empty() {
        rows.push(row((String::new(), 0), gpus, columns, paint));
    }
    rows.extend(lateness(moment, columns, paint));
    rows
}

/// The same in one line.
pub(super) fn line(moment: &Moment) -> String {
    let figures = position(moment).into_iter().chain(learned(moment)).chain(gpus(moment));
    let mut parts: Vec<String> = figures.map(|figure| figure.text()).collect();
    parts.extend(latest(moment));
    parts.join("  ")
}

/// A beginning of known width, followed by as many figures as fit.
fn row(
    (mut row, mut width): (String, usize),
    figures: Vec<Figure>,
    columns: usize,
    paint: &dyn Fn(Style, &str) -> String,
) -> String {
    for figure in figures {
        let gap = if width == 0 { 0 } else { 2 };
        width += gap + figure.text().width();
        // The last column stays free: some terminals wrap as soon as it is filled.
        if width >= columns {
            break;
        }
        row.push_str(&" ".repeat(gap));
        row.push_str(&figure.shown(paint));
    }
    row
}

fn bar(moment: &Moment, columns: usize, paint: &dyn Fn(Style, &str) -> String) -> (String, usize) {
    let Some(done) = moment.done() else { return (String::new(), 0) };
    let cells = BAR.min(columns / 4);
    let full = (cells as f64 * done) as usize;
    let bar = [(Style::Good, "━".repeat(full)), (Style::Faint, "─".repeat(cells - full))];
    (bar.iter().filter(|(_, part)| !part.is_empty()).map(|(style, part)| paint(*style, part)).collect(), cells)
}

/// How far it is and how fast.
fn position(moment: &Moment) -> Vec<Figure> {
    let said = &moment.said;
    let of = |number: u64, all: Option<u64>| all.map_or(number.to_string(), |all| format!("{number}/{all}"));
    let epoch = said.epoch.map(|done| {
        let number = done.max(0.0) as u64 + 1;
        Figure("epoch", of(said.epochs.map_or(number, |all| number.min(all)), said.epochs), "")
    });
    let step = Figure("step", of(said.step, said.steps), "");
    let left = moment.left.map(|left| Figure("", whole_seconds(left.ceil()), "left"));
    let silent = Some(moment.silent).filter(|&silent| silent >= SILENCE);
    let silent = silent.map(|silent| Figure("last word", whole_seconds(silent.floor()), "ago"));
    [epoch, Some(step), silent, left, moment.steps_per_second.map(pace)].into_iter().flatten().collect()
}

/// Loss and accuracy, and the number of samples.
fn learned(moment: &Moment) -> Vec<Figure> {
    let said = &moment.said;
    let share = |name, share: Option<f64>, digits| share.map(|share| Figure(name, percent(share, digits), ""));
    let figures = [
        said.loss.map(|loss| Figure("loss", number(loss), "")),
        share("accuracy", said.accuracy, 1),
        share("test accuracy", said.test_accuracy, 2),
        said.test_accuracy.xor(said.test_loss).and(said.test_loss).map(|loss| Figure("test loss", number(loss), "")),
        moment.samples_per_second.map(|rate| Figure("", grouped(rate), "samples/s")),
    ];
    figures.into_iter().flatten().collect()
}

/// How busy GPUs are on average, and the memory of the fullest; ranks that share one count it several times.
fn gpus(moment: &Moment) -> Vec<Figure> {
    let known: Vec<GpuSample> = moment.ranks.iter().filter_map(|rank| rank.gpu).collect();
    let busy: Vec<f64> = known.iter().filter_map(|gpu| Some(f64::from(gpu.busy?))).collect();
    let several = known.len() > 1;
    let share = (!busy.is_empty()).then(|| busy.iter().sum::<f64>() / busy.len() as f64 / 100.0);
    let full = |gpu: &GpuSample| gpu.memory as f64 / gpu.total.max(1) as f64;
    let fullest = known.iter().max_by(|one, other| full(one).total_cmp(&full(other)));
    let in_gib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 30));
    let figures = [
        share.map(|share| Figure(if several { "GPUs" } else { "GPU" }, percent(share, 0), "busy")),
        fullest.map(|gpu| {
            let unit = if several { "GiB at most" } else { "GiB" };
            Figure("GPU memory", format!("{} of {}", in_gib(gpu.memory), in_gib(gpu.total)), unit)
        }),
    ];
    figures.into_iter().flatten().collect()
}

fn pace(rate: f64) -> Figure {
    match rate {
        ..0.2 => Figure("", seconds_in_words(1.0 / rate), "per step"),
        0.2..10.0 => Figure("", format!("{rate:.2}"), "steps/s"),
        10.0..100.0 => Figure("", format!("{rate:.1}"), "steps/s"),
        _ => Figure("", grouped(rate), "steps/s"),
    }
}

fn whole_seconds(seconds: f64) -> String {
    if seconds < 60.0 { format!("{seconds:.0} s") } else { seconds_in_words(seconds) }
}

fn number(value: f64) -> String {
    let size = value.abs();
    if size < 1e-4 && size > 0.0 || (1e5..f64::INFINITY).contains(&size) {
        format!("{value:.3e}")
    } else {
        format!("{value:.4}")
    }
}

/// A cell for each rank, or for a few neighbours, of which the latest is shown; and which rank that is.
fn lateness(moment: &Moment, columns: usize, paint: &dyn Fn(Style, &str) -> String) -> Option<String> {
    let words = latest(moment)?;
    let shares: Vec<f64> = moment.ranks.iter().filter_map(|rank| rank.late).collect();
    let together = shares.len().div_ceil(STRIP.min(columns / 3).max(1));
    let most = |shares: &[f64]| shares.iter().copied().fold(0.0, f64::max);
    let cell = |share: f64| LEVELS[((share * 8.0) as usize).min(7)];
    let strip: String = shares.chunks(together).map(|shares| cell(most(shares))).collect();
    let width = "late ".len() + strip.width();
    let style = if most(&shares) < LATE { Style::Good } else { Style::Warning };
    let begin = format!("{} {}", paint(Style::Faint, "late"), paint(style, &strip));
    Some(row((begin, width), vec![Figure("", words, "")], columns, paint))
}

/// The rank that others wait for most, in words.
fn latest(moment: &Moment) -> Option<String> {
    let (rank, share) = moment.latest()?;
    if share < LATE {
        return Some("no rank is late".into());
    }
    let shares: Vec<f64> = moment.ranks.iter().filter_map(|rank| rank.late).collect();
    if share < ODD * shares.iter().sum::<f64>() / shares.len() as f64 {
        return Some(format!("ranks take turns, {} of the time at most", percent(share, 0)));
    }
    let several_hosts = moment.ranks.iter().any(|other| other.host != rank.host);
    let host = if several_hosts { format!(" on {}", rank.host) } else { String::new() };
    let phase = rank.phase.map_or(String::new(), |phase| format!(", {phase}"));
    Some(format!("rank {}{host} keeps others waiting {} of the time{phase}", rank.rank, percent(share, 0)))
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
