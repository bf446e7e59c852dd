//! What timelines say about steps: how long each was, what happened in a usual one, and which tensors took how long. The
//! whole timeline is for a viewer of traces; this is what one looks for in it first.

use std::collections::BTreeMap;

use sirtaki_engine::files;

use super::{
    super::{
        document::{Table, TableRow},
        figures::{Figure, Section},
        read::RecordedRun,
        words::{bytes, duration, grouped},
    },
    Content,
};
use crate::{
    commands::predict::{
        record::{TIMELINE, steps},
        trace::{Rank, Trace},
    },
    plot::{Chart, Scale, Series, Span, Spans},
    printer::Printer,
};

/// How to read the page.
pub(super) const READING: [&str; 3] = [
    "A step of a rank lasts from the moment it has the results of one step to the moment it has those of the next.",
    "A tensor is under way from when a rank hands it in until it has the result: waiting for other ranks, copies and the \
     collective included.",
    "The files open in ui.perfetto.dev; `sirtaki predict` says from them what more workers would do.",
];
/// Bytes of a timeline at most: what the engine writes unless it is told otherwise.
const LARGEST: u64 = 256 << 20;
/// Ranks that are drawn.
const RANKS: usize = 8;
/// Points of a line of steps.
const POINTS: usize = 600;
/// Tensors with a row.
const TENSORS: usize = 20;
const PARTS: [&str; 5] = ["input", "forward", "backward", "optimizer", "tensors under way"];

/// Whether a run has one.
pub(super) fn has(run: &RecordedRun) -> bool {
    run.folder.join(TIMELINE).is_file()
}

/// What there is to say about these runs.
pub(super) fn content(runs: &[&RecordedRun], printer: &mut Printer) -> Option<Content> {
    let (mut sections, mut tables, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for run in runs {
        printer.progress(&format!("reading the timeline of {}", run.name));
        let bytes = files::read(&run.folder.join(TIMELINE), LARGEST).map_err(|error| error.to_string());
        match bytes.and_then(|bytes| Trace::parse(&bytes)) {
            Err(why) => notes.push(format!("{TIMELINE} of {} cannot be read: {why}", run.name)),
            Ok(trace) => {
                let dropped = trace.about.dropped;
                notes.extend((dropped > 0).then(|| {
                    format!("The timeline of {} lacks {dropped} records, for which there was no room.", run.name)
                }));
                let figures = [usual(&trace), lengths(&trace)].into_iter().flatten().collect();
                sections.push(Section { title: run.name.clone(), figures });
                tables.extend([phases(&run.name, &trace), tensors(&run.name, &trace)].into_iter().flatten());
            }
        }
    }
    (!sections.is_empty() || !notes.is_empty()).then_some((sections, tables, notes))
}

/// When each step of a rank began, and how long it was.
fn lasted(rank: &Rank) -> Vec<(f64, f64)> {
    let began: Vec<f64> = steps(rank).iter().map(|step| step.began).collect();
    began.windows(2).map(|pair| (pair[0], pair[1] - pair[0])).collect()
}

/// The step of rank 0 of the middle length, on all ranks.
fn usual(trace: &Trace) -> Option<Figure> {
    let mut steps = trace.ranks.first().map(lasted)?;
    steps.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (begin, length) = *steps.get(steps.len() / 2)?;
    let mut rows = Vec::new();
    for (number, rank) in trace.ranks.iter().enumerate().take(RANKS) {
        let span = |part: usize, from: f64, to: f64, tip: &str| {
            let ends = ((from - begin).max(0.0), (to - begin).min(length));
            let tip = format!("{tip} {}", duration(to - from));
            (ends.1 > ends.0).then_some(Span { part, ends: (1e3 * ends.0, 1e3 * ends.1), tip })
        };
        let place = |name: &str| PARTS.iter().position(|part| *part == name).unwrap_or(0);
        let computing = rank.phases.iter().filter_map(|(name, from, to)| span(place(name), *from, *to, name)).collect();
        let under_way = rank.tensors.iter().filter_map(|one| span(4, one.submitted, one.ended, &one.name)).collect();
        rows.extend([(format!("rank {number}"), computing), (String::new(), under_way)]);
    }
    let title = "A usual step";
    let x = ("ms since rank 0 had the results of the step before", Scale::Plain);
    let plot = Spans { title: title.into(), x, parts: PARTS.to_vec(), rows };
    let left = trace.ranks.len().saturating_sub(RANKS);
    let left = if left > 0 { format!(" {left} more ranks are not drawn.") } else { String::new() };
    let note = format!(
        "The step of middle length, {}, of {}. Upper bars: phases that the program reports; lower: tensors.{left}",
        duration(length),
        steps.len()
    );
    Some(Figure::new(title, note, plot.draw()))
}

fn lengths(trace: &Trace) -> Option<Figure> {
    let line = |(number, rank): (usize, &Rank)| {
        let steps: Vec<(f64, f64)> =
            lasted(rank).into_iter().enumerate().map(|(index, step)| (index as f64 + 2.0, step.1)).collect();
        let longest = |some: &[(f64, f64)]| some.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
        let points = steps.chunks(steps.len().div_ceil(POINTS).max(1)).filter_map(longest).collect();
        Series { name: format!("rank {number}"), style: number, points, noisy: true, ..Series::default() }
    };
    let chart = Chart {
        title: "Length of steps".into(),
        x: ("step", Scale::Plain),
        y: ("time", Scale::Moments),
        from_zero: (true, true),
        series: trace.ranks.iter().enumerate().take(RANKS).map(line).collect(),
        guides: Vec::new(),
    };
    Figure::of(
        &chart,
        format!("All steps, tests and checkpoints between them included; the longest of several from {POINTS} on."),
    )
}

/// Count, sum and largest of some times.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Times {
    count: usize,
    sum: f64,
    most: f64,
}

impl Times {
    fn add(&mut self, seconds: f64) {
        *self = Self { count: self.count + 1, sum: self.sum + seconds, most: self.most.max(seconds) };
    }

    fn cells(&self) -> [String; 4] {
        let mean = self.sum / self.count.max(1) as f64;
        [grouped(self.count as f64), duration(mean), duration(self.most), duration(self.sum)]
    }
}

fn phases(name: &str, trace: &Trace) -> Option<Table> {
    let mut rows = Vec::new();
    for (number, rank) in trace.ranks.iter().enumerate() {
        for part in &PARTS[..4] {
            let mut times = Times::default();
            rank.phases.iter().filter(|phase| phase.0 == *part).for_each(|phase| times.add(phase.2 - phase.1));
            if times.count > 0 {
                let cells = [vec![number.to_string(), (*part).to_owned()], times.cells().to_vec()].concat();
                rows.push(TableRow { cells, marked: false });
            }
        }
    }
    (!rows.is_empty()).then(|| Table {
        title: format!("{name}: phases"),
        note: String::new(),
        head: vec!["#rank", "phase", "#times", "#mean", "#longest", "#in all"],
        more: Vec::new(),
        rows,
    })
}

fn tensors(name: &str, trace: &Trace) -> Option<Table> {
    let mut all: BTreeMap<&str, (usize, Times)> = BTreeMap::new();
    for tensor in trace.ranks.iter().flat_map(|rank| &rank.tensors) {
        let (size, times) = all.entry(&tensor.name).or_default();
        *size = tensor.bytes.max(*size);
        times.add((tensor.ended - tensor.submitted).max(0.0));
    }
    let mut list: Vec<(&str, usize, Times)> =
        all.into_iter().map(|(name, (size, times))| (name, size, times)).collect();
    list.sort_by(|a, b| b.2.sum.total_cmp(&a.2.sum));
    let left = list.len().saturating_sub(TENSORS);
    let row = |(name, size, times): &(&str, usize, Times)| TableRow {
        cells: [vec![(*name).to_owned(), bytes(*size as f64)], times.cells().to_vec()].concat(),
        marked: false,
    };
    (!list.is_empty()).then(|| Table {
        title: format!("{name}: tensors"),
        note: format!(
            "All ranks together; those that were under way longest{}",
            if left > 0 { format!(", without {left} others") } else { String::new() }
        ),
        head: vec!["tensor", "#bytes", "#times", "#mean", "#longest", "#in all"],
        more: Vec::new(),
        rows: list.iter().take(TENSORS).map(row).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ranks with the same tensor in each of four steps of 10 ms, the second of which takes 30.
    fn trace() -> Trace {
        let mut events = Vec::new();
        for pid in 0..2 {
            for (index, begin) in [0, 10_000, 40_000, 50_000].into_iter().enumerate() {
                events.extend([
                    serde_json::json!({ "ph": "X", "pid": pid, "name": "forward", "ts": begin, "dur": 4000, "args": {} }),
                    serde_json::json!({ "ph": "X", "pid": pid, "name": "all_reduce", "ts": begin + 5000, "dur": 3000,
                                        "args": { "number": index, "bytes": 64, "tensors": 1 } }),
                    serde_json::json!({ "ph": "X", "pid": pid, "name": "<w>", "ts": begin + 5000, "dur": 4000,
                                        "args": { "collective": index, "bytes": 64 } }),
                ]);
            }
        }
        let about = serde_json::json!({ "format": "sirtaki timeline, version 1", "ranks": 2, "dropped": 0 });
        Trace::parse(serde_json::json!({ "otherData": about, "traceEvents": events }).to_string().as_bytes()).unwrap()
    }

    #[test]
    fn steps_have_lengths_and_a_usual_one() {
        let trace = trace();
        let lengths: Vec<i64> = lasted(&trace.ranks[0]).iter().map(|step| (1e3 * step.1).round() as i64).collect();
        assert_eq!(lengths, [10, 30], "the first and the last are not whole");
        let figure = usual(&trace).unwrap();
        assert!(figure.svg.contains(">rank 1</text>") && figure.svg.contains("<title>forward 4 ms</title>"));
        assert!(figure.svg.contains("<title>&lt;w&gt; 4 ms</title>") && !figure.svg.contains("NaN"), "{}", figure.svg);
    }

    #[test]
    fn times_are_counted_for_phases_and_tensors() {
        let trace = trace();
        let rows = phases("run", &trace).unwrap().rows;
        assert_eq!(rows[1].cells, ["1", "forward", "4", "4 ms", "4 ms", &duration(0.016)]);
        let rows = tensors("run", &trace).unwrap().rows;
        assert_eq!(rows[0].cells, ["<w>", "64 B", "8", "4 ms", "4 ms", &duration(0.032)]);
        let empty = Trace { ranks: Vec::new(), ..trace };
        assert!(phases("run", &empty).is_none() && tensors("run", &empty).is_none() && usual(&empty).is_none());
    }
}
